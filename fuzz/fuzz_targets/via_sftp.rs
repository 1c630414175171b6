//! `elbow_fuzz::connection::sftp`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    elbow_fuzz::connection::sftp(bytes);
});
