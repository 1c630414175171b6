//! Settings: which of several holds, whose files count, and what a mistake in one is told with.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::process::Command;

use serde_json::Value;

use crate::stage::{ELBOW, Said, Stage, word};

/// Runs `elbow` in `work` of a user whose home is the stage.
fn elbow(stage: &Stage, variables: &[(&str, &str)], words: &[&str]) -> Said {
    let mut command = Command::new(ELBOW);
    command
        .args(words)
        .env_remove("XDG_CONFIG_HOME")
        .env("HOME", stage.path("home"));
    command.envs(variables.iter().copied());
    stage.start(&mut command).finish()
}

fn user_file(stage: &Stage, text: &str) {
    fs::create_dir_all(stage.path("home/.config/elbow")).expect("a directory");
    fs::write(stage.path("home/.config/elbow/config.toml"), text).expect("a file");
}

/// The value of a key and where it is from.
fn shown(said: &Said, key: &str) -> (Value, String) {
    let object: Value = serde_json::from_str(&said.assert_code(0).out).expect("JSON");
    let settings = object["settings"].as_array().expect("a list").clone();
    let of_key = settings
        .into_iter()
        .find(|setting| setting["key"] == key)
        .expect("the key");
    (
        of_key["value"].clone(),
        of_key["origin"].as_str().expect("text").to_owned(),
    )
}

#[test]
fn the_nearest_holds_and_where_it_is_from_is_told() {
    let stage = Stage::new();
    stage.make_dir("work/below");
    let retry = |variables: &[(&str, &str)]| {
        shown(
            &elbow(&stage, variables, &["config", "show", "--json", "below"]),
            "retry",
        )
    };
    assert_eq!(retry(&[]), ("0".into(), "default".into()));
    user_file(&stage, "[run]\n\nretry = 1\n");
    let user = stage.path("home/.config/elbow/config.toml");
    assert_eq!(retry(&[]), ("1".into(), format!("{}:3", user.display())));
    fs::write(stage.path("work/.elbow.toml"), "[run]\nretry = 2\n").expect("a file");
    assert_eq!(
        retry(&[]),
        ("2".into(), format!("{}:2", stage.path("work/.elbow.toml").display()))
    );
    fs::write(stage.path("work/below/.elbow.toml"), "[run]\nretry = 3\n").expect("a file");
    assert_eq!(retry(&[]).0, "3");
    assert_eq!(retry(&[("ELBOW_RETRY", "4")]), ("4".into(), "ELBOW_RETRY".into()));
}

/// A command that fails the first two times.
const THIRD_TIME: &str = "echo >> ../times; [ $(wc -l < ../times) -gt 2 ]";

#[test]
fn a_job_works_as_it_is_set_and_an_option_goes_before() {
    let stage = Stage::new();
    fs::write(stage.path("work/.elbow.toml"), "[run]\nretry = 2\n").expect("a file");
    elbow(&stage, &[], &["run", "--", "sh", "-c", THIRD_TIME]).assert_code(0);
    fs::remove_file(stage.path("times")).expect("it was written");
    elbow(&stage, &[], &["run", "--retry", "0", "--", "sh", "-c", THIRD_TIME]).assert_code(1);
    elbow(&stage, &[("ELBOW_RETRY", "1")], &["run", "--", "sh", "-c", THIRD_TIME]).assert_code(0);
}

#[test]
fn what_is_shown_is_a_file_of_settings() {
    let stage = Stage::new();
    user_file(
        &stage,
        "[job]\nmem = \"1G\"\ndurable = true\nscratch = \"local\"\n[run]\nprogress = \"never\"\n",
    );
    let first = elbow(&stage, &[], &["config", "show", "--origin"]);
    let text = first.assert_code(0).out.clone();
    assert!(
        text.contains("config.toml:2\n") && text.contains("# default\n"),
        "{text}"
    );
    let scratch = stage.path("home/.config/elbow/local");
    assert!(text.contains(&format!("scratch = \"{}\"", scratch.display())), "{text}");
    user_file(&stage, &text);
    let again = elbow(&stage, &[], &["config", "show"]);
    let first = |text: &str| {
        text.lines()
            .map(|line| line.split(" # ").next().unwrap_or("").trim_end().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(first(&again.assert_code(0).out), first(&text));
}

#[test]
fn a_mistake_is_told_with_file_and_line_and_nothing_is_run() {
    let stage = Stage::new();
    fs::write(stage.path("work/.elbow.toml"), "[job]\nmemm = \"2G\"\n").expect("a file");
    let said = elbow(&stage, &[], &["run", "--", "touch", "made"]);
    said.assert_code(125)
        .assert_says(&["work/.elbow.toml:2: unknown key `memm`; did you mean `mem`?"]);
    assert_eq!(stage.names(), [".elbow.toml"]);
    elbow(&stage, &[], &["sort", "/dev/null"]).assert_code(2);
    fs::write(stage.path("work/.elbow.toml"), "").expect("a file");
    let said = elbow(&stage, &[("ELBOW_MEM", "lots")], &["run", "--", "true"]);
    said.assert_code(125)
        .assert_says(&["ELBOW_MEM: invalid value 'lots' for '--mem <SIZE>'"]);
    // Commands without options that can be set do not read any.
    fs::write(stage.path("work/.elbow.toml"), "[").expect("a file");
    elbow(&stage, &[], &["jobs"]).assert_code(0);
}

#[test]
fn files_of_others_do_not_count_and_that_is_said() {
    let stage = Stage::new();
    let file = stage.path("work/.elbow.toml");
    let ignored = |why: &str| {
        let said = elbow(&stage, &[], &["run", "--", "true"]);
        said.assert_code(0)
            .assert_says(&["work/.elbow.toml does not count: ", why]);
        assert_eq!(
            shown(&elbow(&stage, &[], &["config", "show", "--json"]), "retry").1,
            "default"
        );
    };
    fs::write(&file, "[run]\nretry = 2\n").expect("a file");
    chown(&file, Some(1), Some(1)).expect("root may");
    ignored("it belongs to user 1");
    chown(&file, Some(0), Some(0)).expect("root may");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).expect("root may");
    ignored("everybody may write to it");
    fs::rename(&file, stage.path("elsewhere")).expect("room");
    symlink(stage.path("elsewhere"), &file).expect("a link");
    ignored("it is a link");
    fs::remove_file(&file).expect("a link");
    // Nobody writes to it, and to open it must not wait for that.
    Command::new("mkfifo").arg(&file).status().expect("mkfifo");
    ignored("no regular file");
    fs::remove_file(&file).expect("a pipe");
    fs::write(&file, "# \n".repeat(30_000)).expect("a file");
    ignored("more than 65536 bytes");
}

/// Who has become another user still has the home of the first one.
#[test]
fn a_home_that_cannot_be_entered_has_no_settings() {
    let stage = Stage::open_to_all();
    user_file(&stage, "[run]\nretry = 1\n");
    fs::set_permissions(stage.path("home"), fs::Permissions::from_mode(0o700)).expect("root may");
    let said = stage
        .apart("exec setpriv --reuid 1 --regid 1 --clear-groups env HOME=\"$PWD/../home\" $ELBOW config show --json");
    assert_eq!(shown(&said, "retry").1, "default");
    assert_eq!(said.err, "");
}

#[test]
fn directories_of_one_job_must_agree_or_the_option_is_said() {
    let stage = Stage::new();
    stage.make_dir("a");
    stage.make_dir("b");
    fs::write(stage.path("b/.elbow.toml"), "[job]\npublish = \"eager\"\n").expect("a file");
    let (a, b) = (stage.path("a"), stage.path("b"));
    let said = elbow(&stage, &[], &["run", "--on", word(&a), "--on", word(&b), "--", "true"]);
    said.assert_code(125).assert_says(&[
        "`publish` is eager in ",
        "b/.elbow.toml:2 for it and not set for the directory before it",
    ]);
    let both = "[job]\npublish = \"eager\"\n";
    fs::write(stage.path("a/.elbow.toml"), both).expect("a file");
    elbow(&stage, &[], &["run", "--on", word(&a), "--on", word(&b), "--", "true"]).assert_code(0);
}

#[test]
fn locks_and_sorts_have_settings_too() {
    let stage = Stage::new();
    user_file(
        &stage,
        "[lock]\nserver = \"unix:/nonexistent/locks\"\n[sort]\ntemporary-directory = \"/nonexistent\"\nbuffer-size = \"64K\"\n",
    );
    let said = elbow(&stage, &[], &["lock", "status"]);
    said.assert_code(125).assert_says(&["/nonexistent/locks"]);
    let lines: String = (0..100_000).map(|number| format!("{number}\n")).collect();
    fs::write(stage.path("work/lines"), lines).expect("a file");
    let sort = ["sort", "-o", "sorted", "lines"];
    let said = elbow(&stage, &[], &sort);
    said.assert_code(2).assert_says(&["/nonexistent"]);
    elbow(&stage, &[], &[&sort[..], &["-T", "."]].concat()).assert_code(0);
}

/// `buffer-size = "zz"` was told by sort as a mistake on its command line, and by no other command.
#[test]
fn what_sort_would_refuse_is_refused_with_file_and_line() {
    let stage = Stage::new();
    for (line, told) in [
        ("buffer-size = \"zz\"", "invalid value 'zz' for '--buffer-size'"),
        ("parallel = 0", "number in parallel must be nonzero"),
    ] {
        user_file(&stage, &format!("[sort]\n{line}\n"));
        for (words, code) in [(&["sort", "/dev/null"][..], 2), (&["config", "show"], 125)] {
            let said = elbow(&stage, &[], words);
            said.assert_code(code).assert_says(&["config.toml:2: ", told]);
        }
    }
    user_file(&stage, "");
    let said = elbow(&stage, &[("ELBOW_SORT_PARALLEL", "0")], &["sort", "/dev/null"]);
    said.assert_code(2).assert_says(&["ELBOW_SORT_PARALLEL: "]);
}

/// A setting may be for other directories, too; who says it just now means this one.
#[test]
fn what_lies_elsewhere_can_be_passed_through_by_a_setting_alone() {
    let stage = Stage::new();
    let run = ["run", "--", "touch", "made"];
    elbow(&stage, &[("ELBOW_PASS_THROUGH", "/etc")], &run).assert_code(0);
    let said = elbow(&stage, &[], &["run", "--pass-through", "/etc", "--", "touch", "other"]);
    said.assert_code(125)
        .assert_says(&["/etc: cannot be passed through: it does not lie in the directory of the job"]);
    assert_eq!(stage.names(), ["made"]);
}
