//! A node's lock proxy as a node: the real relay between clients and one session with the service, by a world's events.

use std::collections::BTreeMap;

use elbow_lock::SessionId;
use elbow_lock::proxy::{Relay, Send, Terms};

use crate::TTL_MS;
use crate::frame::Message;
use crate::world::{Ending, Hello, LinkId, Node, NodeId, Out};

/// A bug of a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProxyFlaw {
    None,
    /// Gives each client the whole lease, whenever it comes.
    PromisesWholeLease,
    /// Answers its clients' renewals itself.
    RenewsItself,
}

/// With no client for so long it ends its session; a real one would be told to.
const LONELY_MS: u64 = 1_000;

pub(crate) struct Proxy {
    service: NodeId,
    flaw: ProxyFlaw,
    upstream: Upstream,
    clients: BTreeMap<LinkId, SessionId>,
    last_session: u64,
}

enum Upstream {
    /// Connects again when a client comes.
    Down,
    Opening {
        since_ms: u64,
    },
    Hello {
        link: LinkId,
        sent_ms: u64,
    },
    Up {
        link: LinkId,
        relay: Box<Relay>,
        epoch: u32,
        grace_ms_max: u32,
        lonely_since_ms: u64,
    },
}

impl Proxy {
    /// As its `incarnation`-th.
    pub(crate) fn new(service: NodeId, incarnation: u64, flaw: ProxyFlaw) -> Self {
        Self {
            service,
            flaw,
            upstream: Upstream::Down,
            clients: BTreeMap::new(),
            // The names of sessions are compared in beliefs: never those of the service, nor of another incarnation.
            last_session: (1 << 62) + (incarnation << 32),
        }
    }

    fn is_upstream(&self, link: LinkId) -> bool {
        matches!(self.upstream, Upstream::Hello { link: ours, .. } | Upstream::Up { link: ours, .. } if ours == link)
    }

    /// Lets the relay do something, and sends what follows.
    fn relayed<T>(&mut self, out: &mut Out, act: impl FnOnce(&mut Relay, &mut Vec<Send>) -> T) -> Option<T> {
        let Upstream::Up { link, relay, .. } = &mut self.upstream else {
            return None;
        };
        let mut sent = Vec::new();
        let result = act(relay, &mut sent);
        for send in sent {
            match send {
                Send::Up(request) => out.send(*link, Message::Request(request)),
                Send::Down(client, reply) => {
                    if let Some((&link, _)) = self.clients.iter().find(|(_, session)| **session == client) {
                        out.send(link, Message::Reply(reply));
                    }
                }
            }
        }
        Some(result)
    }

    fn hello(&mut self, now_ms: u64, link: LinkId, out: &mut Out) {
        self.last_session += 1;
        let (session, flaw) = (SessionId(self.last_session), self.flaw);
        let Upstream::Up {
            relay,
            epoch,
            grace_ms_max,
            ..
        } = &mut self.upstream
        else {
            out.close(link); // Nobody listens.
            return self.connect(now_ms, out);
        };
        match relay.open(now_ms, session, TTL_MS) {
            Err(_) => out.close(link),
            Ok(Terms { ttl_ms, grace_ms }) => {
                let ttl_ms = if flaw == ProxyFlaw::PromisesWholeLease {
                    TTL_MS
                } else {
                    ttl_ms
                };
                let (epoch, grace_ms_max) = (*epoch, *grace_ms_max);
                self.clients.insert(link, session);
                out.send(
                    link,
                    Message::Welcome {
                        ttl_ms,
                        epoch,
                        grace_ms,
                        grace_ms_max,
                    },
                );
            }
        }
    }

    fn asked(&mut self, now_ms: u64, link: LinkId, request: elbow_lock::Request, out: &mut Out) {
        let Some(&session) = self.clients.get(&link) else {
            return;
        };
        if let (elbow_lock::Request::Renew { seq }, ProxyFlaw::RenewsItself) = (&request, self.flaw) {
            return out.send(link, Message::Reply(elbow_lock::Reply::Renewed { seq: *seq }));
        }
        let leaves = matches!(request, elbow_lock::Request::Close);
        self.relayed(out, |relay, sent| relay.ask(now_ms, session, request, sent));
        if leaves {
            self.clients.remove(&link);
        }
    }

    fn connect(&mut self, now_ms: u64, out: &mut Out) {
        if matches!(self.upstream, Upstream::Down) {
            self.upstream = Upstream::Opening { since_ms: now_ms };
            out.connect(self.service);
        }
    }

    /// The session is over, or the way to it: so are the clients' connections.
    fn down(&mut self, lost: Option<&elbow_lock::Reply>, out: &mut Out) {
        if let Upstream::Hello { link, .. } | Upstream::Up { link, .. } = self.upstream {
            out.close(link);
        }
        self.upstream = Upstream::Down;
        for link in std::mem::take(&mut self.clients).into_keys() {
            if let Some(lost) = lost {
                out.send(link, Message::Reply(lost.clone()));
            }
            out.close(link);
        }
    }
}

fn lost() -> elbow_lock::Reply {
    elbow_lock::Reply::Lost { why: String::new() }
}

impl Node for Proxy {
    fn started(&mut self, now_ms: u64, out: &mut Out) {
        self.connect(now_ms, out);
    }

    /// Its own, if it asked for one; else a client's, which speaks first.
    fn opened(&mut self, now_ms: u64, link: LinkId, is_own: bool, out: &mut Out) {
        if !is_own {
            return;
        }
        if !matches!(self.upstream, Upstream::Opening { .. }) {
            return out.close(link);
        }
        self.upstream = Upstream::Hello { link, sent_ms: now_ms };
        out.send(
            link,
            Message::Hello(Hello {
                is_proxy: true,
                ttl_ms: TTL_MS,
            }),
        );
    }

    fn received(&mut self, now_ms: u64, link: LinkId, message: Message, out: &mut Out) {
        match message {
            Message::Hello(_) => self.hello(now_ms, link, out),
            Message::Request(request) => self.asked(now_ms, link, request, out),
            _ if !self.is_upstream(link) => {}
            Message::Welcome {
                ttl_ms,
                epoch,
                grace_ms,
                grace_ms_max,
            } => {
                if let Upstream::Hello { link, sent_ms } = self.upstream {
                    let relay = Box::new(Relay::new(sent_ms, ttl_ms, grace_ms));
                    self.upstream = Upstream::Up {
                        link,
                        relay,
                        epoch,
                        grace_ms_max,
                        lonely_since_ms: now_ms,
                    };
                }
            }
            Message::Reply(reply @ elbow_lock::Reply::Lost { .. }) => self.down(Some(&reply), out),
            Message::Reply(reply) => {
                self.relayed(out, |relay, sent| relay.handle_reply(now_ms, reply, sent));
            }
        }
    }

    fn ended(&mut self, now_ms: u64, link: LinkId, _ending: Ending, out: &mut Out) {
        if self.is_upstream(link) {
            return self.down(None, out);
        }
        if let Some(session) = self.clients.remove(&link) {
            self.relayed(out, |relay, sent| relay.close(session, sent));
        } else if let Upstream::Opening { since_ms } = self.upstream
            && since_ms < now_ms
        {
            self.upstream = Upstream::Down; // Refused; the next client tries again.
        }
    }

    fn woke(&mut self, now_ms: u64, out: &mut Out) {
        match &mut self.upstream {
            Upstream::Down => {}
            Upstream::Opening { since_ms: sent_ms } | Upstream::Hello { sent_ms, .. } => {
                if *sent_ms + u64::from(TTL_MS) <= now_ms {
                    self.down(None, out);
                }
            }
            Upstream::Up {
                link, lonely_since_ms, ..
            } => {
                let link = *link;
                if !self.clients.is_empty() {
                    *lonely_since_ms = now_ms;
                } else if *lonely_since_ms + LONELY_MS <= now_ms {
                    out.send(link, Message::Request(elbow_lock::Request::Close));
                    return self.down(None, out);
                }
                if self.relayed(out, |relay, sent| relay.tick(now_ms, sent)) == Some(false) {
                    self.down(Some(&lost()), out);
                }
            }
        }
    }

    fn deadline(&self) -> Option<u64> {
        match &self.upstream {
            Upstream::Down => None,
            Upstream::Opening { since_ms: sent_ms } | Upstream::Hello { sent_ms, .. } => {
                Some(sent_ms + u64::from(TTL_MS))
            }
            Upstream::Up {
                relay, lonely_since_ms, ..
            } => Some(relay.deadline().min(lonely_since_ms + LONELY_MS)),
        }
    }
}
