//! What is refused of regions, and how that is told.

use std::path::Path;

use super::{Region, TestDirectory, bark, has_fuse, refused};

#[test]
fn what_lies_there_is_not_written_over() {
    if has_fuse().is_none() {
        return;
    }
    let directory = TestDirectory::new();
    let (on, door) = (directory.name("region"), directory.name("journal"));
    assert!(refused(&["attach", &on]).contains("--size makes a region"));
    assert!(!Path::new(&on).exists());
    let mut bytes = vec![0; 8 << 20];
    bytes[(8 << 20) - 1] = 1;
    std::fs::write(&on, &bytes).expect("it writes");
    for args in [
        &["attach", &on, "--size", "1M", "--file", &door][..],
        &["format", &on, "--size", "1M"],
    ] {
        assert!(refused(args).contains("not empty"), "{args:?}");
    }
    assert_eq!(std::fs::read(&on).expect("it reads"), bytes);
    assert!(bark(&["format", &on, "--size", "1M", "--force"]).status.success());
    assert!(refused(&["format", &on, "--size", "1M"]).contains("a region lies there"));
    assert!(refused(&["attach", &on, "--size", "2M", "--file", &door]).contains("1048576"));
    let region = Region::attach(&[&on, "--size", "1M", "--file", &door]);
    assert_eq!(region.count("region_bytes"), 8 << 20, "all of the file");
    let other = directory.name("other");
    assert!(refused(&["attach", &on, "--file", &other]).contains("another process has it"));
    assert!(refused(&["format", &on, "--size", "1M", "--force"]).contains("another process has it"));
    drop(region);
    assert!(refused(&["format", &on, "--size", "5M", "--force"]).contains("at least"));
}

#[test]
fn options_stand_in_front_of_two_dashes() {
    let directory = TestDirectory::new();
    let region = Region::attach(&[
        "--size",
        "1M",
        "--nbd",
        &directory.nbd(),
        "--",
        &directory.name("-region"),
    ]);
    assert!(region.detach().status.success());
}

#[test]
fn what_is_wrong_with_a_region_is_told() {
    let directory = TestDirectory::new();
    let nowhere = directory.name("nowhere/region");
    let told = refused(&["format", &nowhere, "--size", "1M"]);
    assert!(told.contains("cannot make") && told.contains("No such file"), "{told}");
    let on = directory.name("region");
    assert!(bark(&["format", &on, "--size", "1M"]).status.success());
    let told = refused(&[
        "attach",
        &on,
        "--size",
        "1M",
        "--factor",
        "8",
        "--nbd",
        &directory.nbd(),
    ]);
    assert!(told.contains("4194304 bytes for 1048576"), "{told}");
    let region = Region::attach(&[&on, "--size", "1M", "--factor", "4", "--nbd", &directory.nbd()]);
    assert!(region.detach().status.success());
}
