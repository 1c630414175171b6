//! Directories that the file system encrypts (fscrypt), below the directory of a job and as such: nothing that it would encrypt lies in plain
//! text on the disk.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;

use crate::commands::Place;
use crate::loop_disk::LoopDisk;
use crate::test_dir::{snapshot_of, staging_below};

/// Encrypts an empty directory by a key of its own: `python3 - MOUNT DIR LETTER` (fscrypt.rst of the kernel: struct `fscrypt_add_key_arg`,
/// struct `fscrypt_policy_v2`).
const ENCRYPT: &str = r#"
import fcntl, os, struct, sys
mount, directory, letter = sys.argv[1:]
ADD_KEY, SET_POLICY = 0xc0506617, 0x800c6613
KEY_BY_IDENTIFIER, POLICY_V2, XTS, CTS = 2, 2, 1, 4
raw = letter.encode() * 64
argument = bytearray(struct.pack("=II32sII8I", KEY_BY_IDENTIFIER, 0, b"", len(raw), 0, *[0] * 8) + raw)
fcntl.ioctl(os.open(mount, os.O_RDONLY), ADD_KEY, argument, True)
policy = struct.pack("=BBBBB3s16s", POLICY_V2, XTS, CTS, 0, 0, b"", bytes(argument[8:24]))
fcntl.ioctl(os.open(directory, os.O_RDONLY), SET_POLICY, policy)
"#;

fn encrypt(mount: &Path, directory: &Path, letter: &str) -> Result<(), String> {
    fs::create_dir(directory).expect("a directory");
    let encrypted = Command::new("python3")
        .args(["-c", ENCRYPT])
        .args([mount, directory])
        .arg(letter)
        .output()
        .expect("python3");
    match encrypted.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&encrypted.stderr).into_owned()),
    }
}

/// A disk with such directories; `None`, said aloud, where the kernel has none.
fn disk_with(directories: &[(&str, &str)]) -> Option<LoopDisk> {
    let disk = LoopDisk::that_encrypts()?;
    for (directory, letter) in directories {
        let path = disk.path().join(directory);
        fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
        if let Err(error) = encrypt(&disk.path(), &path, letter) {
            // Nobody promises a kernel with them.
            let _ = writeln!(
                std::io::stderr(),
                "SKIPPED: this kernel does not encrypt directories ({error})"
            );
            return None;
        }
    }
    Some(disk)
}

/// Renames and links between all of these, each said with its errno.
const MOVES: &str = r#"
import os
def each(call, names):
    for a in names:
        for b in names:
            if a != b:
                try: call(a, b); print(call.__name__, a, b)
                except OSError as e: print(call.__name__, a, b, e.errno)
open("fresh", "w").write("x"); open("one/fresh", "w").write("y"); os.mkdir("one/sub"); os.mkdir("sub")
each(os.rename, ["plain", "one/old", "two/old", "gone", "one/gone", "one/sub/gone", "sub/gone"])
each(os.link, ["fresh", "one/fresh", "one/again", "two/again", "again", "one/sub/again"])
each(os.rename, ["sub", "one/sub", "one/moved", "two/moved", "moved"])
"#;

#[test]
fn what_is_plain_does_not_get_into_an_encrypted_directory() {
    let [native, job] = ["native", "job"];
    let directories = [
        ("native/one", "a"),
        ("native/two", "b"),
        ("job/one", "a"),
        ("job/two", "b"),
    ];
    let Some(disk) = disk_with(&directories) else { return };
    let out = tempfile::tempdir().expect("a directory");
    let run = |name: &str, is_job: bool| {
        let work = disk.path().join(name);
        for (file, content) in [("plain", "p"), ("one/old", "1"), ("two/old", "2")] {
            fs::write(work.join(file), content).expect("a file");
        }
        let place = Place {
            work: &work,
            out: out.path(),
        };
        let script = format!("python3 -c '{MOVES}'");
        let run = match is_job {
            true => place.start_job(&[], &[], &script).finish(),
            false => place.shell(&script),
        };
        run.assert_code(0);
        assert!(run.out.contains(" 18\n"), "some are refused: {}", run.out);
        (run.out, snapshot_of(&work).without_times())
    };
    let (wanted, found) = (run(native, false), run(job, true));
    assert_eq!(found.0, wanted.0);
    let difference = found.1.difference(&wanted.1);
    assert!(difference.is_none(), "{}", difference.unwrap_or_default());
    assert_eq!(staging_below(&disk.path()), 0);
}

/// Old files there cannot be written to by a job over a plain directory, which has no place for what it writes but a plain one.
#[test]
fn nothing_encrypted_lies_in_plain_text_on_the_disk() {
    let Some(disk) = disk_with(&[("work/closed", "a"), ("closed", "b")]) else {
        return;
    };
    let out = tempfile::tempdir().expect("a directory");
    // Not in the command, which its manifest tells.
    fs::write(out.path().join("words"), "hidden-words\n".repeat(10_000)).expect("a file");
    fs::write(out.path().join("target"), "hidden-target").expect("a file");
    fs::write(out.path().join("plain"), "plain-word").expect("a file");
    let work = |name: &str| disk.path().join(name);
    for name in ["work/closed/old", "closed/old"] {
        fs::write(work(name), "old").expect("a file");
    }
    let job = |name: &str, script: &str| {
        let place = Place {
            work: &work(name),
            out: out.path(),
        };
        place.start_job(&[], &[], script).finish()
    };
    for change in [
        "tee -a closed/old < $OUT/words",
        "truncate -s 0 closed/old",
        "fallocate -l 9 closed/old",
    ] {
        let run = job("work", change);
        assert!(run.code != 0 && run.err.contains("not supported"), "{change}: {run:?}");
        assert_eq!(fs::read(work("work/closed/old")).expect("a file"), b"old");
    }
    let made = "set -e; cp $OUT/plain seen; cp $OUT/words closed/new; mkdir closed/d; cp closed/new closed/d/more
        mv closed/old closed/d/old; ln -s $(cat $OUT/target) closed/link";
    job("work", made).assert_code(0);
    // A job over the directory itself, whose own directory is encrypted with it.
    let written = "set -e; cp $OUT/words new; cat new >> old; mkdir d; mv old d";
    job("closed", written).assert_code(0);
    let appended = fs::read(work("closed/d/old")).expect("a file");
    assert!(appended.starts_with(b"oldhidden") && appended.ends_with(b"hidden-words\n"));
    assert_eq!(staging_below(&disk.path()), 0);
    let image = disk.image();
    let holds = |words: &[u8]| image.windows(words.len()).any(|window| window == words);
    assert!(holds(b"plain-word"), "what is plain is found");
    for words in ["hidden-words", "hidden-target"] {
        assert!(!holds(words.as_bytes()), "{words} lies on the disk");
    }
}
