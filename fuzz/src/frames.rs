//! What must hold of the frames of the lock protocol, whatever the bytes.
//!
//! Used twice: by the fuzz targets, which search for bytes, and by a test of `elbow-lock`, which takes random ones.

use elbow_lock::wire::{append_reply, append_request, decode_reply, decode_request};

/// Bytes of a frame before its payload.
const LENGTH_BYTES: usize = 4;

/// What is taken for a request is exactly what a client would have sent.
pub fn request(payload: &[u8]) {
    if let Ok(request) = decode_request(payload) {
        let mut frame = Vec::new();
        append_request(&mut frame, &request);
        assert_eq!(&frame[LENGTH_BYTES..], payload, "{request:?}");
    }
}

/// What is taken for a reply is exactly what the service would have sent.
pub fn reply(payload: &[u8]) {
    if let Ok(reply) = decode_reply(payload) {
        let mut frame = Vec::new();
        append_reply(&mut frame, &reply);
        assert_eq!(&frame[LENGTH_BYTES..], payload, "{reply:?}");
    }
}
