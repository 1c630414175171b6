//! What nodes send each other, in the bytes of the shipped codec: requests to the end of a link that was connected to, replies to the one that connected.
//!
//! The hello and the welcome of the simulation say less than the shipped ones and something more, and have bytes of their own in the same frames.

use elbow_lock::{Reply, Request, wire};

use crate::world::Hello;

#[derive(Clone, Debug)]
pub(crate) enum Message {
    Hello(Hello),
    Welcome {
        ttl_ms: u32,
        epoch: u32,
        grace_ms: u32,
        grace_ms_max: u32,
    },
    Request(Request),
    Reply(Reply),
}

/// Types that no request and no reply has.
const HELLO: u8 = 0x01;
const WELCOME: u8 = 0x81;

/// A frame more.
pub(crate) fn append(bytes: &mut Vec<u8>, message: &Message) {
    match message {
        Message::Request(request) => wire::append_request(bytes, request),
        Message::Reply(reply) => wire::append_reply(bytes, reply),
        Message::Hello(Hello { is_proxy, ttl_ms }) => own(bytes, HELLO, [*ttl_ms, u32::from(*is_proxy), 0, 0]),
        Message::Welcome {
            ttl_ms,
            epoch,
            grace_ms,
            grace_ms_max,
        } => own(bytes, WELCOME, [*ttl_ms, *epoch, *grace_ms, *grace_ms_max]),
    }
}

fn own(bytes: &mut Vec<u8>, mode: u8, numbers: [u32; 4]) {
    bytes.extend(17_u32.to_le_bytes());
    bytes.push(mode);
    bytes.extend(numbers.into_iter().flat_map(u32::to_le_bytes));
}

/// The content of a frame, as it is read at an end of a link (1: the one that was connected to).
pub(crate) fn decode(payload: &[u8], end: usize) -> Message {
    let number = |at: usize| u32::from_le_bytes(payload[1 + 4 * at..5 + 4 * at].try_into().expect("four bytes"));
    match (payload[0], end) {
        (HELLO, 1) => Message::Hello(Hello {
            ttl_ms: number(0),
            is_proxy: number(1) == 1,
        }),
        (WELCOME, 0) => Message::Welcome {
            ttl_ms: number(0),
            epoch: number(1),
            grace_ms: number(2),
            grace_ms_max: number(3),
        },
        (_, 1) => Message::Request(wire::decode_request(payload).expect("a request of ours")),
        _ => Message::Reply(wire::decode_reply(payload).expect("a reply of ours")),
    }
}
