//! The command `elbow` (floor 5): one file per subcommand.
//!
//! ```text
//!   cli       what can be asked for          run, mount     begin jobs, mount them, end them
//!   job_end   commit or roll back, timed     jobs, status, diff, commit, rollback    talk to the process of a job (control, job_server)
//!   progress  what is seen meanwhile
//!   report    what is said at the end        recover, completions, man
//!   json, names    what is said to programs; report_file    where `--report` writes; suggest    for mistyped words
//!   via       directories that are reached by ssh      serve    the far end of that
//!   zero, holes    free what is dead, show and make holes (no job, no mount)    consume    give a file to a pipe, and free it
//!   lock, lockd    list locks: commands under them, and their service
//!   settings  what options are when nobody names them      config    shows that
//!   log       what it does, for who looks for a fault; off unless asked for
//!   trace     what a run did and waited for, and when: `elbow run --trace`, `elbow explain`
//!   doctor         what works here, by trying it         version    what this was built from
//!   disk           a simulated disk: what it is, and what requests take there
//!   bark           a write-ahead region on a device
//!   attached       block devices that a process in the background serves, for both
//! ```
//!
//! Everything for people goes to standard error; standard output belongs to the command that runs (or to what was
//! asked for: a status, a list of changes). Exit codes are in [`exit`], and nowhere else.

mod allocator;
mod attached;
mod background;
mod bark;
mod bench;
mod child;
mod cli;
mod commit;
mod completions;
mod config;
mod consume;
mod control;
mod daemon;
mod diff;
mod disk;
mod doctor;
mod errno_name;
mod exit;
mod help;
mod holes;
mod holes_args;
mod job;
mod job_end;
mod job_server;
mod jobs;
mod json;
mod lock;
mod log;
mod man;
mod messages;
mod mount;
mod names;
mod output;
mod partial_output;
mod process_limits;
mod progress;
mod recover;
mod report;
mod report_file;
mod resume;
mod rollback;
mod run;
mod runtime_directory;
mod serve;
mod settings;
mod shown_at;
mod signal_probe;
mod signals;
mod size;
mod sort;
mod stall;
mod standard_streams;
mod status;
mod suggest;
mod system_memory;
mod trace;
mod usage;
mod version;
mod via;
mod zero;

use std::process::ExitCode;

use clap::Parser;
use cli::{Cli, Command};

fn main() -> ExitCode {
    allocator::keep_small();
    let cli = Cli::try_parse().unwrap_or_else(|error| usage::told(error));
    if let Err(error) = log::start() {
        return not_begun(&cli.command, &error);
    }
    let cli = match settings::applied(&cli) {
        Ok(applied) => applied.unwrap_or(cli),
        Err(error) => return not_begun(&cli.command, &error),
    };
    let ended = match &cli.command {
        Command::Run(args) => run::run(args),
        Command::Mount(args) => mount::run(args),
        Command::Jobs(args) => jobs::run(args),
        Command::Status(args) => status::run(args),
        Command::Explain(args) => trace::explain::run(args),
        Command::Commit(args) => commit::run(args),
        Command::Rollback(args) => rollback::run(args),
        Command::Diff(args) => diff::run(args),
        Command::Resume(args) => resume::run(args),
        Command::Recover(args) => recover::run(args),
        Command::Serve(args) => serve::run(args),
        Command::Sort(args) => sort::run(args),
        Command::Zero(args) => zero::run(args),
        Command::Holes(args) => holes::run(args),
        Command::Consume(args) => consume::run(args),
        Command::Bench(args) => bench::run(args),
        Command::Lock(args) => lock::run(args),
        Command::Lockd(args) => lock::run_daemon(args),
        Command::Disk(args) => disk::run(args),
        Command::Bark(args) => bark::run(args),
        Command::Doctor(args) => doctor::run(args),
        Command::Config(args) => config::run(args),
        Command::Completions(args) => completions::run(args),
        Command::Man(args) => man::run(args),
    };
    ended.unwrap_or_else(|error| exit::failed(&error))
}

/// Says why a command was not even begun; with its code for wrong usage.
fn not_begun(command: &Command, error: &anyhow::Error) -> ExitCode {
    let said = exit::failed(error);
    match command {
        Command::Sort(_) => ExitCode::from(exit::SORT_TROUBLE),
        _ => said,
    }
}
