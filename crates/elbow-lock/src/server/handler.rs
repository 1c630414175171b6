//! What stands between a connection and what answers its requests: the service, or a proxy of it.

use std::sync::Arc;

use super::listen::Peer;
use super::long_comparison::LongComparison;
use super::session::ServerSession;
use crate::hello::{UpstreamSilent, Welcome};
use crate::memory::Memory;
use crate::message::{LockId, Refusal, Request};
use crate::shard::Limits;
use crate::table::KnownOverlaps;

/// Who answers the requests of a connection. Replies go to the member's outbox, then or later.
pub(crate) trait RequestHandler: Send + Sync {
    /// Opens a session for a client that asked for a lease of `ttl_ms`; an error is why it cannot come in.
    fn open(&self, name: String, ttl_ms: u32, peer: Peer) -> Result<(Arc<ServerSession>, Welcome), UpstreamSilent>;
    /// It is known by which socket the client is dead or alive.
    fn watch(&self, _member: &ServerSession) {}
    /// Does what a client asks; not called with `Close`. Given back is what takes long to compare: it is to be compared, and applied again
    /// (boxed, because hardly any request is, and each call would leave room for one).
    #[must_use]
    fn apply(&self, member: &ServerSession, request: Request, known: KnownOverlaps) -> Option<Box<LongComparison>>;
    /// These locks are no more without the client having said so.
    fn forget(&self, member: &ServerSession, refused: &[LockId]);
    /// The client has gone.
    fn close(&self, member: &ServerSession);
    /// The connection has gone, or nothing more is taken from it, and perhaps the client has not: what it waits for is taken back.
    fn disconnect(&self, member: &ServerSession);
    /// Whether there are locks that the client may be using.
    fn holds_something(&self, member: &ServerSession) -> bool;
    /// Somebody was not let in.
    fn turned_away(&self);
    /// What a client may send.
    fn limits(&self) -> &Limits;
    /// What all clients together may have under way.
    fn memory(&self) -> &Memory;
    /// That there is nothing left of it.
    fn full_memory(&self) -> Refusal {
        self.limits().full_memory()
    }
}
