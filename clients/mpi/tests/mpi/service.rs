//! A lock service in a thread of the test.

use std::path::Path;
use std::sync::mpsc;

use elbow_lock::Limits;
use elbow_lock::server::{Server, Settings, Users};

/// A service on a Unix socket; it ends with this value.
pub(crate) struct Service {
    pub(crate) url: String,
    end: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Service {
    pub(crate) fn start(dir: &Path) -> Self {
        let url = format!("unix:{}", dir.join("locks").display());
        let settings = Settings {
            listen: vec![url.parse().expect("an address")],
            users: Users::Same,
            credentials: None,
            ttl_ms_max: 10_000,
            memory: dir.join("locks.state"),
            first: true,
            metrics: None,
            shards: 2,
            clients_max: 100,
            limits: Limits::default(),
            drain_ms_max: 0,
            warn: |_| {},
            give_back: || {},
        };
        let (ready, is_ready) = mpsc::channel();
        let (end, ended) = tokio::sync::oneshot::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Runtime::new().expect("threads");
            runtime.block_on(async {
                let server = Server::open(settings).await.expect("a service");
                ready.send(()).expect("the test waits");
                let until = async {
                    let _ = ended.await;
                };
                server.run(until).await.expect("it serves");
            });
        });
        is_ready.recv().expect("the service is ready");
        Self {
            url,
            end: Some(end),
            thread: Some(thread),
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.end.take().map(|end| end.send(()));
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(ended.is_ok() || std::thread::panicking(), "the service panicked");
        }
    }
}
