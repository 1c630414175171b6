//! `elbow bench`: the official sums of NAS EP, sorted records, and the disk space that freeing saves.

use serde_json::Value;

use crate::stage::{Said, Stage};

/// A file system of their own for the streams.
fn on_tmpfs(script: &str) -> Said {
    Stage::new().apart(&format!("mkdir m; mount -t tmpfs none m; {script}"))
}

fn object(said: &Said) -> Value {
    serde_json::from_str(&said.assert_code(0).out).unwrap_or_else(|error| panic!("{error}: {}", said.out))
}

fn peak(object: &Value) -> f64 {
    object["peak_disk_bytes"].as_f64().expect("a number") / object["bytes"].as_f64().expect("a number")
}

#[test]
fn ep_gives_the_official_sums_of_class_s_and_takes_half_the_space_when_it_consumes() {
    let kept = object(&on_tmpfs("$ELBOW bench ep --class S --json -T m -S 16M"));
    let consumed = object(&on_tmpfs("$ELBOW bench ep --class S --json -T m -S 16M --consume"));
    for run in [&kept, &consumed] {
        assert_eq!(
            (run["verified"].as_bool(), run["accepted"].as_u64()),
            (Some(true), Some(13_176_389)),
            "{run}"
        );
    }
    assert!((1.7..1.85).contains(&peak(&kept)), "N + N pi/4: {kept}");
    assert!((0.95..1.1).contains(&peak(&consumed)), "N: {consumed}");
}

#[test]
fn s24_is_sorted_completely_in_half_the_space_when_it_consumes() {
    let run = |option: &str| {
        object(&on_tmpfs(&format!(
            "$ELBOW bench s24 --records 3000000 --json -T m -S 16M {option}"
        )))
    };
    let (kept, consumed) = (run(""), run("--consume"));
    for run in [&kept, &consumed] {
        assert_eq!(
            (run["verified"].as_bool(), run["records"].as_u64()),
            (Some(true), Some(3_000_000)),
            "{run}"
        );
    }
    assert!(peak(&kept) > 1.9, "{kept}");
    assert!(peak(&consumed) < 1.2, "{consumed}");
}

#[test]
fn an_unknown_class_and_too_little_memory_are_refused() {
    let said = on_tmpfs("$ELBOW bench ep --class X");
    said.assert_code(125).assert_says(&["`X` is no class: S, W, A, B or C"]);
    let said = on_tmpfs("$ELBOW bench s24 --records 10 -S 4M -T m");
    said.assert_code(125).assert_says(&["at least 8388608 are needed"]);
}
