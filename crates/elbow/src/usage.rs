//! Mistakes in the use of the command line.

use clap::CommandFactory;

use crate::cli::Cli;
use crate::exit::{ELBOW_FAILED, SORT_TROUBLE};
use crate::{suggest, version};

/// Prints help or a usage error and ends: 0 for help that was asked for, 125 for a mistake (as env(1)), 2 for one in the
/// use of `elbow sort`. Always in words, for nobody knows then whether JSON was asked for.
pub(crate) fn told(mut error: clap::Error) -> ! {
    let words: Vec<_> = std::env::args_os().skip(1).collect();
    if let Some(asked) = version::asked(&words) {
        // As below.
        let _ = version::tell(asked);
        std::process::exit(0)
    }
    let mut root = Cli::command();
    root.build();
    suggest::improve(&mut error, &root, &words);
    // Nowhere to complain to when even this cannot be printed.
    let _ = error.print();
    let is_sort = words.first().is_some_and(|word| word == "sort");
    let mistake = if is_sort { SORT_TROUBLE } else { ELBOW_FAILED };
    std::process::exit(if error.use_stderr() { mistake.into() } else { 0 })
}
