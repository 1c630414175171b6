//! Detaching what has no process any more.

use std::process::ExitCode;

use anyhow::Result;
use serde::Serialize;

use super::registry::{Attached, Place};
use super::remains;
use crate::output::{answer, print_message};

/// What was attached, of a process that had died.
#[derive(Serialize)]
struct CleanedUp<'a, A> {
    #[serde(flatten)]
    attached: &'a A,
    died: bool,
}

/// Takes away what a process that was killed has left, and nothing that is another's by now.
pub(crate) fn clean_up<A: Attached>(place: &Place, attached: &A, json: bool, left: &str) -> Result<ExitCode> {
    let device = attached.device();
    remains::take_away(device, &place.hidden_file())?;
    place.forget();
    let died = true;
    match json {
        true => answer(crate::json::line(&CleanedUp { attached, died })?)?,
        false => print_message(format_args!("{device}: its process had died; {left}")),
    }
    Ok(ExitCode::SUCCESS)
}
