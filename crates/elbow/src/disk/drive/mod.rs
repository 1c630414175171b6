//! `elbow disk attach`, `status`, `powercut`, `detach`: an emulated drive and the process that serves it (`crate::attached`).

pub(super) mod attach;
pub(super) mod clients;
mod known;
pub(super) mod options;
mod server;
