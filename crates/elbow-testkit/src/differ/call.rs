//! The system calls of a case, each a line of its own in a script.

use super::word::{
    AccessFlags, At, AtFlags, Bits, Data, FallocateFlags, Kind, Lock, Map, MapFlags, Name, OpenFlags, RenameFlags,
    Slot, Time, Whence, Which, XattrFlags, lines,
};

lines! {
    /// One system call of a worker.
    Call {
    /// openat(2) into a slot.
    Open "open" { slot: Slot, at: At, name: Name, flags: OpenFlags, mode: Bits }
    Close "close" { slot: Slot }
    /// dup(2): the second slot shares the position of the first.
    Dup "dup" { slot: Slot, to: Slot }
    Read "read" { slot: Slot, length: u64 }
    Pread "pread" { slot: Slot, length: u64, offset: u64 }
    Write "write" { slot: Slot, data: Data }
    Pwrite "pwrite" { slot: Slot, data: Data, offset: u64 }
    Writev "writev" { slot: Slot, first: Data, second: Data }
    Seek "seek" { slot: Slot, offset: i64, whence: Whence }
    /// Walks through data and holes and checks that what is called a hole reads as zeros.
    Holes "holes" { slot: Slot }
    Ftruncate "ftruncate" { slot: Slot, length: i64 }
    Truncate "truncate" { at: At, name: Name, length: i64 }
    Fallocate "fallocate" { slot: Slot, flags: FallocateFlags, offset: i64, length: i64 }
    /// copy_file_range(2).
    Copy "copy" { from: Slot, from_offset: Option<u64>, to: Slot, to_offset: Option<u64>, length: u64 }
    Mkdir "mkdir" { at: At, name: Name, mode: Bits }
    Mknod "mknod" { at: At, name: Name, kind: Kind, mode: Bits }
    Symlink "symlink" { target: Name, at: At, name: Name }
    Link "link" { at: At, name: Name, to_at: At, to: Name, flags: AtFlags }
    Unlink "unlink" { at: At, name: Name }
    Rmdir "rmdir" { at: At, name: Name }
    Rename "rename" { at: At, name: Name, to_at: At, to: Name, flags: RenameFlags }
    Chmod "chmod" { at: At, name: Name, mode: Bits, flags: AtFlags }
    Fchmod "fchmod" { slot: Slot, mode: Bits }
    Chown "chown" { at: At, name: Name, uid: i64, gid: i64, flags: AtFlags }
    Fchown "fchown" { slot: Slot, uid: i64, gid: i64 }
    Utimens "utimens" { at: At, name: Name, atime: Time, mtime: Time, flags: AtFlags }
    Futimens "futimens" { slot: Slot, atime: Time, mtime: Time }
    Setxattr "setxattr" { at: At, name: Name, key: Name, value: Data, flags: XattrFlags, follow: AtFlags }
    Getxattr "getxattr" { at: At, name: Name, key: Name, follow: AtFlags }
    Listxattr "listxattr" { at: At, name: Name, follow: AtFlags }
    Removexattr "removexattr" { at: At, name: Name, key: Name, follow: AtFlags }
    Fsetxattr "fsetxattr" { slot: Slot, key: Name, value: Data, flags: XattrFlags }
    Fgetxattr "fgetxattr" { slot: Slot, key: Name }
    Fremovexattr "fremovexattr" { slot: Slot, key: Name }
    /// setxattr(2) of an access control list, written as in `u::rwx,u1001:r--,g::r-x,m::r-x,o::---`.
    Setacl "setacl" { at: At, name: Name, which: Which, entries: Name }
    /// All names of a directory, sorted.
    List "list" { at: At, name: Name }
    /// The same of an open one, from its beginning.
    Flist "flist" { slot: Slot }
    Stat "stat" { at: At, name: Name, flags: AtFlags }
    Fstat "fstat" { slot: Slot }
    Readlink "readlink" { at: At, name: Name }
    Access "access" { at: At, name: Name, mode: AccessFlags, flags: AtFlags }
    /// mmap(2), shared unless it is said.
    Map "map" { slot: Slot, map: Map, offset: u64, length: u64, flags: MapFlags }
    Mapread "mapread" { map: Map, offset: u64, length: u64 }
    Mapwrite "mapwrite" { map: Map, offset: u64, data: Data }
    Msync "msync" { map: Map }
    Unmap "unmap" { map: Map }
    /// flock(2), without waiting.
    Flock "flock" { slot: Slot, lock: Lock }
    /// An open file description lock of fcntl(2), without waiting.
    Ofdlock "ofdlock" { slot: Slot, lock: Lock, start: u64, length: u64 }
    /// A process's lock of fcntl(2), without waiting.
    Lockf "lockf" { slot: Slot, lock: Lock, start: u64, length: u64 }
    Fsync "fsync" { slot: Slot }
    Fdatasync "fdatasync" { slot: Slot }
    Syncfs "syncfs" { slot: Slot }
    Chdir "chdir" { at: At, name: Name }
    Fchdir "fchdir" { slot: Slot }
    Umask "umask" { mode: Bits }
    Getcwd "getcwd" { }
    /// Nothing for that many milliseconds: whatever works in the background goes on meanwhile.
    Pause "pause" { milliseconds: u64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_reads_back_as_the_call() {
        for line in [
            "open f0 cwd a/b RW+CREAT 0644",
            "rename root a f3 b EXCHANGE",
            "copy f0 - f1 4096 100",
            "setacl root a access u::rwx,g::r-x,o::---",
            "getcwd",
            "pause 40",
        ] {
            assert_eq!(Call::decode(line).map(|call| call.encode()).as_deref(), Some(line));
        }
        assert_eq!(Call::decode("open f0 cwd a"), None);
        assert_eq!(Call::decode("close f0 f1"), None);
        assert_eq!(Call::decode("fly"), None);
    }
}
