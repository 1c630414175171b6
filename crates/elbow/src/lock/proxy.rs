//! `elbow lockd proxy`.

use std::process::ExitCode;

use anyhow::{Context, Result};
use elbow_lock::proxy::{self, Settings};

use super::args::ProxyArgs;
use super::serve::told_to_end;
use super::service;
use crate::output::{answer, print_message};

/// Serves the processes of this node until told to end.
pub(super) fn run(args: &ProxyArgs) -> Result<ExitCode> {
    crate::process_limits::raise_open_files(); // two for each client
    crate::allocator::return_large_pieces();
    let name = format!("elbow lockd proxy, process {}", std::process::id());
    let settings = Settings {
        listen: args.listen.clone(),
        users: args.users.into(),
        service: service::address_of(&args.service)?.clone(),
        options: service::options_of(&args.service, args.ttl, name)?,
        clients_max: args.clients,
        memory_bytes: usize::try_from(args.memory).unwrap_or(usize::MAX),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("threads for the proxy")?;
    let ready = |address: &elbow_lock::Address| {
        if let Err(error) = answer(format_args!("listening on {address}")) {
            print_message(error);
        }
    };
    runtime.block_on(async {
        proxy::run(settings, ready, told_to_end()?)
            .await
            .context("the lock proxy has ended")
    })?;
    Ok(ExitCode::SUCCESS)
}
