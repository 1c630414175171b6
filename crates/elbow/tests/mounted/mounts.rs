//! Mounts that a job meets, and the mount that it makes: paths of all lengths, other places of the same directory, options that hold below it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::commands::unavailable;
use crate::ordinary_user::{USER, as_user, ground_of};
use crate::test_dir::TestDir;

/// A directory that is mounted at another place, too, or something like it; unmounted when dropped.
struct Mounted(PathBuf);

impl Mounted {
    /// By mount(8) with these words before the place; `None`, said aloud, where that cannot be.
    fn at(place: &Path, words: &[&str]) -> Option<Self> {
        let made = Command::new("mount").args(words).arg(place).output().expect("mount");
        if !made.status.success() {
            unavailable(&format!("mount {words:?} ({})", String::from_utf8_lossy(&made.stderr)));
            return None;
        }
        Some(Self(place.to_owned()))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// A directory below `top` whose path has so many bytes.
fn deep(top: &Path, bytes: usize) -> PathBuf {
    let mut path = top.to_owned();
    while path.as_os_str().len() < bytes {
        let left = bytes - path.as_os_str().len() - 1;
        // Nothing is left for a name of no bytes.
        let name = if left <= 100 { left } else { 98.min(left - 2) };
        path.push("d".repeat(name));
    }
    assert_eq!(path.as_os_str().len(), bytes);
    fs::create_dir_all(&path).expect("directories");
    path
}

/// The kernel takes 255 bytes to say what a mount shows. A job over a directory with a longer path was refused: "cannot make a FUSE mount: Invalid
/// argument".
#[test]
fn a_directory_may_have_a_path_of_any_length() {
    for (test_dir, is_root) in [(TestDir::new("true"), true), (ground_of(USER, "true"), false)] {
        let place = test_dir.work("");
        let place = Path::new(place.to_str().expect("UTF-8").trim_end_matches('/')).to_owned();
        for bytes in [255, 256, 257, 600, 3000] {
            let dir = deep(&place, bytes);
            let owned = Command::new("chown")
                .arg("-R")
                .arg("--reference")
                .args([&place, &place])
                .status();
            assert!(owned.expect("chown").success());
            let named = dir.to_str().expect("UTF-8");
            let script = format!("cd '{named}' && echo {bytes} > made && ls");
            let run = test_dir.job(&["--on", named], &script);
            run.assert_code(0);
            assert_eq!(
                fs::read_to_string(dir.join("made")).expect("it is made"),
                format!("{bytes}\n")
            );
            if !is_root {
                continue; // what this user mounts in one command the next does not see
            }
            let at = test_dir.outside("at");
            fs::create_dir_all(&at).expect("a mount point");
            let at = at.to_str().expect("UTF-8");
            test_dir.elbow(&["mount", named, at]).assert_code(0);
            test_dir
                .native(&format!("echo by mount > '{at}/mounted'"))
                .assert_code(0);
            test_dir.elbow(&["commit", at]).assert_code(0);
            assert_eq!(
                fs::read_to_string(dir.join("mounted")).expect("it is made"),
                "by mount\n"
            );
        }
    }
}

/// Two directories of a job were compared by their paths alone: over one and a bind mount of it half of the job was committed, and the rest
/// was a conflict with that half.
#[test]
fn two_places_of_one_directory_are_no_two_directories() {
    let test_dir = TestDir::new("mkdir -p a/sub b; echo old > a/sub/f");
    let alias = test_dir.outside("alias");
    fs::create_dir(&alias).expect("a mount point");
    let (a, b) = (test_dir.work("a"), test_dir.work("b"));
    let text = |path: &Path| path.to_str().expect("UTF-8").to_owned();
    for (of, other) in [
        (a.clone(), a.clone()),
        (a.join("sub"), a.clone()),
        (test_dir.work(""), a),
    ] {
        let Some(_bound) = Mounted::at(&alias, &["--bind", &text(&of)]) else {
            return;
        };
        for pair in [[&alias, &other], [&other, &alias]] {
            let before = test_dir.snapshot();
            let run = test_dir.job(&["--on", &text(pair[0]), "--on", &text(pair[1])], "touch \"$OUT/ran\"");
            run.assert_code(125);
            assert!(run.err.contains("mounted at another place"), "{}", run.err);
            assert!(!test_dir.outside("ran").exists(), "COMMAND ran");
            test_dir.assert_equals(&before);
        }
        if of != test_dir.work("") {
            let options = ["--on", &text(&alias), "--on", &text(&b)];
            let script = format!("echo x > '{}/new'; echo y > '{}/new'", alias.display(), b.display());
            test_dir.job(&options, &script).assert_code(0);
            assert_eq!(test_dir.content("b/new"), b"y\n");
            assert_eq!(fs::read(of.join("new")).expect("it is made"), b"x\n");
        }
    }
}

/// Where a mount follows no symbolic links (mount -o nosymfollow), a job over it followed them; and a job of an ordinary user ran programs where nothing is
/// to be run (noexec).
#[test]
fn links_are_not_followed_in_a_job_where_they_are_not_followed_below_it() {
    let test_dir = TestDir::new("true");
    let place = test_dir.outside("place");
    fs::create_dir(&place).expect("a mount point");
    let Some(_mounted) = Mounted::at(&place, &["-t", "tmpfs", "-o", "nosymfollow,noexec", "none"]) else {
        return;
    };
    let ground = |user: bool| {
        let seed = format!("echo x > f; ln -s f l; mkdir d; ln -s d dl; chown -hR {USER} .");
        let test_dir = TestDir::at(&place, &seed);
        if user { as_user(test_dir) } else { test_dir }
    };
    let script =
        "readlink l; cat l 2>/dev/null || echo refused; ls dl/ 2>/dev/null || echo refused; ln -s f new; readlink new
        cat new 2>/dev/null || echo refused; cp /bin/true t; ./t 2>/dev/null || echo refused; rm t";
    for user in [false, true] {
        let test_dir = ground(user);
        let native = test_dir.native(script);
        native.assert_code(0);
        assert_eq!(native.out, "f\nrefused\nrefused\nf\nrefused\nrefused\n");
        fs::remove_file(test_dir.work("new")).expect("made natively");
        let run = test_dir.job(&[], script);
        run.assert_code(0);
        assert_eq!(run.out, native.out, "user: {user}");
    }
}
