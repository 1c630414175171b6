//! Mistakes in the use of the command line.

use std::io::{self, Write};

use clap::CommandFactory;

use crate::cli::Cli;
use crate::exit::{ELBOW_FAILED, SORT_TROUBLE};
use crate::output::{print_message, read_or_not};
use crate::{suggest, version};

/// Prints help or a usage error and ends: 0 for help that was asked for, 125 for a mistake (as env(1)), 2 for one in the
/// use of `elbow sort`. Always in words, for nobody knows then whether JSON was asked for.
pub(crate) fn told(mut error: clap::Error) -> ! {
    let words: Vec<_> = std::env::args_os().skip(1).collect();
    let is_sort = words.first().is_some_and(|word| word == "sort");
    let mistake = if is_sort { SORT_TROUBLE } else { ELBOW_FAILED };
    if let Some(asked) = version::asked(&words) {
        end(version::tell(asked), mistake)
    }
    let mut root = Cli::command();
    root.build();
    suggest::improve(&mut error, &root, &words);
    let told = read_or_not(error.print().and_then(|()| io::stdout().flush()));
    if error.use_stderr() {
        // Nowhere to complain to when even this cannot be printed.
        std::process::exit(mistake.into())
    }
    end(told, mistake)
}

/// Ends after an answer, which may not have been taken: a full disk is a failure, a reader that has gone is none.
fn end(told: io::Result<()>, code: u8) -> ! {
    match told {
        Err(error) => {
            print_message(error);
            std::process::exit(code.into())
        }
        Ok(()) => std::process::exit(0),
    }
}
