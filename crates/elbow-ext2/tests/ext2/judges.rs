//! e2fsck and debugfs, who know what an ext2 file system is.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::{Command, Output};

use elbow_ext2::Ext2;
use elbow_file::{Access, RealStorage};

use crate::observed::{PathState, Tree};

fn tool(name: &str) -> Command {
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new(name);
    command.env("PATH", format!("{path}:/usr/sbin:/sbin"));
    command
}

/// Are they there? In the continuous integration they are.
pub(crate) fn are_there() -> bool {
    let there = tool("e2fsck").arg("-V").output().is_ok() && tool("debugfs").arg("-V").output().is_ok();
    if !there {
        assert!(
            std::env::var_os("CI").is_none(),
            "the continuous integration has e2fsprogs"
        );
        eprintln!("SKIPPED: no e2fsck or debugfs (package e2fsprogs)");
    }
    there
}

fn text(output: &Output) -> String {
    let (out, err) = (&output.stdout, &output.stderr);
    format!("{}{}", String::from_utf8_lossy(out), String::from_utf8_lossy(err))
}

/// An image of a synced file system.
pub(crate) fn image(fs: &mut Ext2) -> tempfile::NamedTempFile {
    let image = tempfile::NamedTempFile::new().unwrap();
    let file = RealStorage::open_file(image.path(), Access::ReadWrite).unwrap();
    fs.write_image(&RealStorage, &file).unwrap();
    image
}

/// What e2fsck says against an image; nothing if it is clean.
pub(crate) fn e2fsck(image: &tempfile::NamedTempFile) -> Result<(), String> {
    let output = tool("e2fsck").arg("-fn").arg(image.path()).output().unwrap();
    let said = text(&output);
    match output.status.success() && !said.contains("Fix?") && !said.contains("WARNING") {
        true => Ok(()),
        false => Err(said),
    }
}

/// Asserts that both tools find in the image what a tree says.
pub(crate) fn judge(fs: &mut Ext2, tree: &Tree) {
    let image = image(fs);
    e2fsck(&image).unwrap_or_else(|said| panic!("e2fsck: {said}"));
    assert_eq!(listed(&image, tree), tree.0);
}

/// All that debugfs lists in the directories of a tree.
fn listed(image: &tempfile::NamedTempFile, tree: &Tree) -> BTreeMap<String, PathState> {
    let directories: Vec<&String> = tree
        .0
        .iter()
        .filter(|(_, there)| **there == PathState::Directory)
        .map(|(path, _)| path)
        .collect();
    let mut script = tempfile::NamedTempFile::new().unwrap();
    for directory in &directories {
        writeln!(script, "ls -p \"{directory}\"").unwrap();
    }
    let output = tool("debugfs")
        .arg("-f")
        .arg(script.path())
        .arg(image.path())
        .output()
        .unwrap();
    let mut found = BTreeMap::from([("/".to_owned(), PathState::Directory)]);
    let mut directory = "";
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        if let Some(path) = line.strip_prefix("debugfs: ls -p ") {
            directory = directories
                .iter()
                .find(|known| path.trim_matches('"') == known.as_str())
                .unwrap();
        }
        // /INODE/MODE/UID/GID/NAME/SIZE/
        let words: Vec<&str> = line.split('/').collect();
        if let ["", _, mode, _, _, name, size, ""] = words[..]
            && !matches!(name, "" | "." | "..")
        // no name: free room
        {
            let there = match mode.starts_with("04") {
                true => PathState::Directory,
                false => PathState::File(size.parse().unwrap()),
            };
            found.insert(format!("{}/{name}", directory.trim_end_matches('/')), there);
        }
    }
    found
}

#[test]
fn e2fsck_finds_what_is_wrong() {
    if !are_there() {
        return;
    }
    use elbow_ext2::Options;
    use elbow_file::Storage;
    let mut fs = Ext2::new(Options::new(3000)).unwrap();
    let image = image(&mut fs);
    assert_eq!(e2fsck(&image), Ok(()));
    let file = RealStorage::open_file(image.path(), Access::ReadWrite).unwrap();
    let bitmap = 2 * 4096 + 300; // block 2400 of the group
    RealStorage
        .write(&file, &[std::io::IoSlice::new(&[1])], bitmap)
        .unwrap();
    assert!(e2fsck(&image).unwrap_err().contains("Block bitmap differences"));
}
