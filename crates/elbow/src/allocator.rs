//! Settings of the C library's allocator.

/// glibc gives every few threads a heap of their own, and none returns what others could use. With a hundred
/// threads that write, that costs more memory than the data: two heaps are enough, because the threads wait for
/// storage and not for memory.
pub(crate) fn keep_small() {
    #[cfg(target_env = "gnu")]
    {
        const ARENAS_MAX: i32 = 2;
        // SAFETY: called before the first thread is started; the parameter is one that mallopt(3) names.
        #[allow(unsafe_code)]
        unsafe {
            // Without effect, memory is used less well; nothing else.
            libc::mallopt(libc::M_ARENA_MAX, ARENAS_MAX);
        }
    }
}

/// glibc keeps large pieces that were freed once for the next ones that are alike. A sort whose memory is counted
/// cannot afford that: they go back to the system. Nor can a service, whose large lists are those of clients that go.
pub(crate) fn return_large_pieces() {
    #[cfg(target_env = "gnu")]
    {
        const LARGE_BYTES: i32 = 1 << 20;
        // SAFETY: called before the first thread is started; the parameter is one that mallopt(3) names.
        #[allow(unsafe_code)]
        unsafe {
            // Without effect, memory is used less well; nothing else.
            libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE_BYTES);
        }
    }
}

/// Gives what was freed back to the system: glibc keeps it in its heaps, however much that is.
pub(crate) fn give_back() {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: malloc_trim(3) may be called at any time, by any thread.
        #[allow(unsafe_code)]
        unsafe {
            // Without effect, nothing could be given back.
            libc::malloc_trim(0);
        }
    }
}
