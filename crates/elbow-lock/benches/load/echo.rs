//! The bound: a round trip to a service that does nothing, over the same kind of socket with messages as long as ours.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{Client, Load};

/// As long as a request for a strided lock, and as its grant.
const REQUEST_BYTES: usize = 36;
const GRANT_BYTES: usize = 12;

pub(super) fn serve(socket: &Path) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let listener = tokio::net::UnixListener::bind(socket).unwrap();
        println!("listening");
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let mut request = Vec::with_capacity(64 << 10);
                let mut had = 0;
                loop {
                    request.clear();
                    match stream.read_buf(&mut request).await {
                        Ok(0) | Err(_) => return,
                        Ok(got) => had += got,
                    }
                    let answers = had / REQUEST_BYTES;
                    had %= REQUEST_BYTES;
                    if stream.write_all(&vec![7; answers * GRANT_BYTES]).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
}

pub(super) fn client(load: &Load) -> Client {
    let mut stream = UnixStream::connect(load.address.strip_prefix("unix:").unwrap()).unwrap();
    let round = load.in_flight;
    let requests = vec![7; REQUEST_BYTES * round as usize];
    let mut grants = vec![0; GRANT_BYTES * round as usize];
    Box::new(move || {
        stream.write_all(&requests).unwrap();
        stream.read_exact(&mut grants).unwrap();
        round
    })
}
