//! The lock service at its edge: sockets, time, and a task for each connection.
//!
//! ```text
//!   listener(s) --- a task per client (connection) ---.
//!   timer       --- leases, time-outs, grace ----------+--- service: shards, sessions, leases
//!   metrics     --- Prometheus text --------------------'
//! ```
//!
//! Not here: when a lock is granted (`shard`, `table`), what a lease is (`lease`), the bytes (`wire`, `hello`).

mod breaks;
pub(crate) mod connection;
pub(crate) mod handler;
mod incarnation;
pub(crate) mod listen;
pub(crate) mod long_comparison;
mod metrics;
pub(crate) mod outbox;
mod request_trace;
pub(crate) mod service;
pub(crate) mod session;
mod status;

use std::future::Future;
use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;

use self::handler::RequestHandler;
use self::incarnation::{Before, Claim, Incarnation};
use self::listen::Listener;
pub use self::listen::Users;
use self::service::Service;
use crate::address::Address;
use crate::credentials::Credentials;
use crate::lease::LEASE_MS_MIN;
use crate::shard::Limits;

/// A machine that is out of file descriptors or memory for another connection gets this long to find some.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Ended sessions get this long to take their last words.
const LAST_WORDS_FOR: Duration = Duration::from_millis(500);
const DRAIN_POLL: Duration = Duration::from_millis(10);
/// Between two looks whether much memory was freed.
const GIVE_BACK_EVERY: Duration = Duration::from_secs(1);
/// A memory that cannot be written gets this long until the next attempt.
const MEMORY_PAUSE: Duration = Duration::from_secs(1);

/// What a service is to do.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where it listens; at least one.
    pub listen: Vec<Address>,
    /// Whose processes may use its Unix sockets.
    pub users: Users,
    /// By what clients over TCP and it know each other; without, it listens to this machine only.
    pub credentials: Option<Credentials>,
    /// Longest lease that a client gets, milliseconds, at least [`LEASE_MS_MIN`]. Also how long after a crash holders may come back; longer, if the service before
    /// gave longer leases.
    pub ttl_ms_max: u32,
    /// Where it remembers its epoch; one service at a time may have it.
    pub memory: PathBuf,
    /// There was no service here before, if the memory says nothing of one. Otherwise a service without a memory waits until whatever
    /// one before it has granted is over; over Unix sockets alone, if they are there already.
    pub first: bool,
    /// Where it answers with its metrics, HOST:PORT.
    pub metrics: Option<String>,
    /// How many parts share the files, so that as many requests can be decided at one time.
    pub shards: usize,
    /// Most clients at a time.
    pub clients_max: usize,
    /// What a client, and all of them, may ask for at most.
    pub limits: Limits,
    /// How long, when told to end, to wait for locks to be given back, milliseconds.
    pub drain_ms_max: u32,
    /// Is told of trouble that whoever runs it should see to, and who broke whose locks.
    pub warn: fn(&str),
    /// Gives memory that was freed back to the system, where the allocator keeps it: called when much of it was.
    pub give_back: fn(),
}

/// A service that listens.
#[derive(Debug)]
pub struct Server {
    settings: Settings,
    service: Arc<Service>,
    listeners: Vec<Listener>,
    metrics: Option<tokio::net::TcpListener>,
    incarnation: Arc<Incarnation>,
}

impl Server {
    /// Takes its memory and begins to listen. Where that fails, the memory is as it was.
    ///
    /// # Errors
    /// When another service has the memory or the address, when the memory is damaged, when its leases would be too short, or when it would listen to
    /// strangers without credentials.
    pub async fn open(settings: Settings) -> io::Result<Self> {
        let lease_ms_max = settings.ttl_ms_max;
        if lease_ms_max < LEASE_MS_MIN {
            let why = format!("leases of {lease_ms_max} ms at most are too short: {LEASE_MS_MIN} ms is the least");
            return Err(io::Error::new(ErrorKind::InvalidInput, why));
        }
        let memory = || naming(settings.memory.display().to_string());
        let first = settings.first || settings.listen.iter().all(is_unused);
        let claim = Claim::take(&settings.memory).map_err(memory())?;
        // The socket of a service before is all that tells of it: what it says is written down before another one takes its place.
        let begins_early = claim.is_blank() && !first && settings.listen.iter().any(is_left);
        let begun = match begins_early {
            true => Ok(claim.begin(first, lease_ms_max).map_err(memory())?),
            false => Err(claim),
        };
        let listeners = listen(&settings).await?;
        let metrics = listen_for_metrics(&settings).await?;
        // Nobody was let in yet.
        let incarnation = begun.or_else(|claim| claim.begin(first, lease_ms_max).map_err(memory()))?;
        let grace = incarnation.grace();
        tracing::info!(epoch = incarnation.epoch, grace_ms = grace.ms, "a service begins");
        let service = Service::new(
            settings.shards.max(1),
            incarnation.epoch,
            grace,
            lease_ms_max,
            &settings.limits,
        )
        .with_warnings(settings.warn);
        Ok(Self {
            settings,
            service: Arc::new(service),
            listeners,
            metrics,
            incarnation: Arc::new(incarnation),
        })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// When the system does not know.
    pub fn addresses(&self) -> io::Result<Vec<Address>> {
        self.listeners.iter().map(Listener::address).collect()
    }

    /// For how long only holders from before a crash are let in, milliseconds.
    #[must_use]
    pub fn grace_left_ms(&self) -> u32 {
        self.service.grace_left_ms()
    }

    /// Whether nothing is known of a service before this one: then nobody is let in so long.
    #[must_use]
    pub fn has_no_memory(&self) -> bool {
        matches!(self.incarnation.before, Before::Unknown(_))
    }

    /// Serves until `told_to_end`; then grants nothing new, waits for locks to be given back, and ends.
    /// Returns how many sessions still held something.
    ///
    /// # Errors
    /// When its memory cannot be written at the end: the next incarnation will then wait for holders that there are not.
    pub async fn run(self, told_to_end: impl Future<Output = ()>) -> io::Result<usize> {
        let Self {
            settings,
            service,
            listeners,
            metrics,
            incarnation,
        } = self;
        let mut tasks = tokio::task::JoinSet::new();
        let places = Arc::new(Semaphore::new(settings.clients_max));
        for listener in listeners {
            tasks.spawn(accept(
                listener,
                Arc::clone(&service),
                settings.credentials.clone(),
                Arc::clone(&places),
            ));
        }
        tasks.spawn(keep_time(Arc::clone(&service), Arc::clone(&incarnation), settings.warn));
        tasks.spawn(give_back(Arc::clone(&service), settings.give_back));
        if let Some(listener) = metrics {
            tasks.spawn(metrics::serve(listener, Arc::clone(&service)));
        }
        told_to_end.await;
        let still_held = drain(&service, settings.drain_ms_max).await;
        if still_held == 0 {
            incarnation.end_well()?;
        }
        service.end_all("the lock service has ended");
        tokio::time::sleep(if service.members().is_empty() {
            Duration::ZERO
        } else {
            LAST_WORDS_FOR
        })
        .await;
        tasks.shutdown().await;
        Ok(still_held)
    }
}

/// An error with what it is about.
fn naming(what: String) -> impl FnOnce(io::Error) -> io::Error {
    move |error| io::Error::new(error.kind(), format!("{what}: {error}"))
}

/// Opens all sockets for clients; who comes waits.
async fn listen(settings: &Settings) -> io::Result<Vec<Listener>> {
    let mut listeners = Vec::new();
    for address in &settings.listen {
        let opened = Listener::open(address, settings.users).await;
        let listener = opened.map_err(naming(address.to_string()))?;
        if !listener.is_local()? && settings.credentials.is_none() {
            let why = format!("{address} is open to other machines: it needs a key file or certificates");
            return Err(io::Error::new(ErrorKind::InvalidInput, why));
        }
        listeners.push(listener);
    }
    Ok(listeners)
}

async fn listen_for_metrics(settings: &Settings) -> io::Result<Option<tokio::net::TcpListener>> {
    let Some(place) = &settings.metrics else {
        return Ok(None);
    };
    let opened = tokio::net::TcpListener::bind(place).await;
    opened.map(Some).map_err(naming(place.clone()))
}

/// Lets clients in, as many at a time as there are places.
pub(crate) async fn accept<D: RequestHandler + 'static>(
    listener: Listener,
    handler: Arc<D>,
    credentials: Option<Credentials>,
    places: Arc<Semaphore>,
) {
    let credentials = credentials.filter(|_| !listener.has_peer_credentials());
    let mut connections = tokio::task::JoinSet::new();
    loop {
        match listener.accept().await {
            Ok(Some(arrival)) => {
                // Not before: a listener to which nobody comes would take the place of another one's client.
                let Ok(place) = Arc::clone(&places).acquire_owned().await else {
                    return;
                };
                let served = connection::serve(Arc::clone(&handler), arrival, credentials.clone());
                connections.spawn(async move {
                    served.await;
                    drop(place);
                });
            }
            Ok(None) => handler.turned_away(),
            Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
        }
        while connections.try_join_next().is_some() {}
    }
}

/// Wakes the service when something is due.
async fn keep_time(service: Arc<Service>, incarnation: Arc<Incarnation>, warn: fn(&str)) {
    let mut is_known = false;
    loop {
        if service.grace_left_ms() == 0 {
            match incarnation.grants() {
                Ok(()) => service.may_grant(),
                // The next incarnation would let holders from before the grace period in beside those whom we would let in now.
                Err(error) => {
                    service.stay_in_grace(MEMORY_PAUSE);
                    if !std::mem::replace(&mut is_known, true) {
                        let path = incarnation.path.display();
                        warn(&format!(
                            "{path} cannot be written ({error}): until it can, nothing new is granted"
                        ));
                    }
                }
            }
        }
        let next = service.tick();
        let sleep = next.map(|next| Duration::from_millis(next.saturating_sub(service.now_ms()).max(1)));
        tokio::select! {
            () = tokio::time::sleep(sleep.unwrap_or(Duration::from_secs(3600))) => {}
            () = service.rearm.notified() => {}
        }
    }
}

/// Gives memory back to the system now and then.
async fn give_back(service: Arc<Service>, give_back: fn()) {
    loop {
        tokio::time::sleep(GIVE_BACK_EVERY).await;
        if service.has_freed_much() {
            // It takes milliseconds for each hundred megabytes.
            drop(tokio::task::spawn_blocking(give_back).await);
        }
    }
}

/// A Unix socket that is not there, or a port that the system is to choose: nobody can have been a client of it.
#[allow(
    clippy::disallowed_methods,
    reason = "the service's own socket, not storage of the user's"
)]
fn is_unused(address: &Address) -> bool {
    match address {
        Address::Unix(path) => !path.exists(),
        Address::Tcp(place) => place.ends_with(":0"),
    }
}

/// A Unix socket that is there: of a service that has died, unless one listens.
fn is_left(address: &Address) -> bool {
    matches!(address, Address::Unix(_)) && !is_unused(address)
}

/// Waits until nothing is held, at most for `ms_max`; says how many sessions still hold something.
async fn drain(service: &Service, ms_max: u32) -> usize {
    service.drain();
    let until = service.now_ms() + u64::from(ms_max);
    while !service.is_idle() && service.now_ms() < until {
        tokio::time::sleep(DRAIN_POLL).await;
    }
    if service.is_idle() { 0 } else { service.members().len() }
}
