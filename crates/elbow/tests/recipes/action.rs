//! `action.yml`: its steps' scripts, run as GitHub's runner runs those of a composite action, with the inputs that its guide shows.
//!
//! The runner is a small one of our own that knows no more of actions than this one uses, and fails at the rest: `run` steps of bash, `env`,
//! `working-directory`, `if: always()`, and values from `inputs`, `github`, `runner` and `steps`
//! (<https://docs.github.com/en/actions/reference/workflows-and-actions/metadata-syntax>). What the scripts would fetch from elsewhere comes from
//! programs in their places: cargo, curl and apt-get, which write down what they were asked for.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use yaml_rust2::{Yaml, YamlLoader};

use crate::ground::{Ended, Ground, Running, until};
use crate::page::Page;

const ACTION: &str = include_str!("../../../../action.yml");
const GUIDE: &str = include_str!("../../../../docs/src/guide/github-actions.md");

/// What `sudo`, `apt-get`, `cargo` and `curl` are in these tests.
const PROGRAMS: [(&str, &str); 4] = [
    ("sudo", "exec \"$@\""),
    (
        "apt-get",
        "echo \"apt-get $*\" >>$GROUND/asked
for last; do :; done
case $last in *.deb) dpkg-deb -x \"$last\" $GROUND/installed ;; esac",
    ),
    (
        "cargo",
        "echo \"cargo $*\" >>$GROUND/asked
while [ \"$1\" != --target-dir ]; do shift; done
mkdir -p \"$2/release\" && ln -s $ELBOW \"$2/release/elbow\"",
    ),
    (
        "curl",
        "echo \"curl $*\" >>$GROUND/asked
while [ \"$1\" != --output ]; do shift; done
cp $GROUND/release/${2##*/} \"$2\"",
    ),
];

/// A step that has ended, or runs.
struct Step {
    name: String,
    id: String,
    always: bool,
    script: String,
    environment: BTreeMap<String, String>,
    directory: String,
}

/// A run of the action.
struct Runner {
    ground: Ground,
    inputs: BTreeMap<String, String>,
    outputs: BTreeMap<String, String>,
}

impl Runner {
    /// A working copy with the inputs of the guide's example.
    fn new() -> Self {
        let mut ground = Ground::bare();
        let place = ground.path("").display().to_string();
        ground.set("GROUND", place.trim_end_matches('/'));
        ground.set("ELBOW", env!("CARGO_BIN_EXE_elbow"));
        for (name, text) in PROGRAMS {
            ground.write_program(&format!("stubs/{name}"), &format!("#!/bin/sh\nset -e\n{text}\n"));
        }
        for name in ["results", "index", "temp", "release"] {
            fs::create_dir(ground.path(name)).expect("a directory");
        }
        ground.write("results/old", "old\n");
        ground.write("scans/1", "picture 1\n");
        ground.write_program("convert", "#!/bin/sh\ncp $1/* $2/\n");
        ground.write_program("list", "#!/bin/sh\nls $1\n");
        let mut runner = Self {
            ground,
            inputs: BTreeMap::new(),
            outputs: BTreeMap::new(),
        };
        runner.take_defaults();
        runner.take(&example()["with"]);
        runner
    }

    fn take_defaults(&mut self) {
        let action = &yaml(ACTION);
        for (name, input) in action["inputs"].as_hash().expect("inputs") {
            let name = name.as_str().expect("a name").to_owned();
            self.inputs
                .insert(name, input["default"].as_str().unwrap_or_default().to_owned());
        }
    }

    /// Takes inputs, all of which the action has.
    fn take(&mut self, with: &Yaml) {
        for (name, value) in with.as_hash().expect("inputs") {
            let (name, value) = (name.as_str().expect("a name"), value.as_str().expect("a text"));
            self.give(name, value);
        }
    }

    fn give(&mut self, name: &str, value: &str) {
        let input = self
            .inputs
            .get_mut(name)
            .unwrap_or_else(|| panic!("the action has no input `{name}`"));
        value.clone_into(input);
    }

    /// What an expression stands for.
    fn value(&self, expression: &str) -> String {
        if let Some(name) = expression.strip_prefix("inputs.") {
            return self.inputs[name].clone();
        }
        match expression {
            "github.action_path" => env!("CARGO_MANIFEST_DIR").trim_end_matches("/crates/elbow").to_owned(),
            "runner.temp" => self.ground.path("temp").display().to_string(),
            _ => {
                let output = expression.strip_prefix("steps.").expect("an expression that is known");
                self.outputs.get(output).cloned().unwrap_or_default()
            }
        }
    }

    /// A text with the values of its expressions.
    fn expand(&self, text: &str) -> String {
        let mut parts = text.split("${{ ");
        let mut expanded = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let (expression, rest) = part.split_once(" }}").expect("an expression ends");
            expanded += &self.value(expression);
            expanded += rest;
        }
        expanded
    }

    fn step(&self, step: &Yaml) -> Step {
        for (key, _) in step.as_hash().expect("a step") {
            let known = ["name", "id", "if", "shell", "env", "run", "working-directory"];
            assert!(
                known.contains(&key.as_str().expect("a key")),
                "the runner of this test does not know {key:?}"
            );
        }
        assert_eq!(step["shell"].as_str(), Some("bash"));
        let script = step["run"].as_str().expect("a script").to_owned();
        assert!(
            !script.contains("${{"),
            "an input must not become a part of a script:\n{script}"
        );
        let environment = step["env"].as_hash().into_iter().flatten();
        let environment = environment.map(|(name, value)| {
            let (name, value) = (name.as_str().expect("a name"), value.as_str().expect("a text"));
            (name.to_owned(), self.expand(value))
        });
        assert!([None, Some("always()")].contains(&step["if"].as_str()));
        Step {
            name: step["name"].as_str().expect("a name").to_owned(),
            id: step["id"].as_str().unwrap_or_default().to_owned(),
            always: step["if"].as_str().is_some(),
            script,
            environment: environment.collect(),
            directory: self.expand(step["working-directory"].as_str().unwrap_or(".")),
        }
    }

    /// The PATH of a step: what earlier ones have added comes first.
    fn path(&self) -> String {
        let added = self.ground.read("github-path");
        let mut places: Vec<String> = added.lines().rev().map(str::to_owned).collect();
        for name in ["stubs", "installed/usr/bin"] {
            places.push(self.ground.path(name).display().to_string());
        }
        places.push(self.ground.programs().to_owned());
        places.join(":")
    }

    /// Starts a step as the runner does: a file for bash, and files for what it says to the runner.
    fn start(&self, step: &Step) -> Running {
        self.ground.write("temp/step.sh", &step.script);
        self.ground.write("github-output", "");
        let script = self.ground.path("temp/step.sh");
        let mut bash = Command::new("bash");
        bash.args(["--noprofile", "--norc", "-eo", "pipefail"]).arg(script);
        bash.env("PATH", self.path())
            .env("GITHUB_PATH", self.ground.path("github-path"))
            .env("GITHUB_OUTPUT", self.ground.path("github-output"))
            .env("GITHUB_WORKSPACE", self.ground.path(""))
            .env("RUNNER_TEMP", self.ground.path("temp"))
            .env("GITHUB_ACTIONS", "true")
            .envs(&step.environment);
        self.ground.start_in(&step.directory, &mut bash)
    }

    fn take_outputs(&mut self, step: &Step) {
        for line in self.ground.read("github-output").lines() {
            let (name, value) = line.split_once('=').expect("NAME=VALUE");
            self.outputs
                .insert(format!("{}.outputs.{name}", step.id), value.to_owned());
        }
    }

    /// Runs the action; `meanwhile` is called with each step that runs. What the first step that failed said, or the last one.
    fn run(&mut self, mut meanwhile: impl FnMut(&Self, &Step, &Running)) -> Ended {
        let action = &yaml(ACTION)["runs"];
        assert_eq!(action["using"].as_str(), Some("composite"));
        let mut ended = None::<Ended>;
        for step in action["steps"].as_vec().expect("steps") {
            let step = self.step(step);
            let has_failed = ended.as_ref().is_some_and(|ended| ended.code != 0);
            if has_failed && !step.always {
                continue;
            }
            let running = self.start(&step);
            meanwhile(self, &step, &running);
            let end = running.finish();
            self.take_outputs(&step);
            if !has_failed {
                ended = Some(end);
            } else {
                end.assert_code(0);
            }
        }
        ended.expect("steps")
    }

    fn run_through(&mut self) -> Ended {
        self.run(|_, _, _| {})
    }

    /// An output of the action.
    fn output(&self, name: &str) -> String {
        let action = yaml(ACTION);
        self.expand(action["outputs"][name]["value"].as_str().expect("an output"))
    }

    /// What the programs in the places of others were asked for.
    fn asked(&self) -> String {
        self.ground
            .read("asked")
            .replace(&self.ground.path("").display().to_string(), "")
    }

    fn is_as_it_was(&self) -> bool {
        self.ground.names("results") == ["old"] && self.ground.names("index").is_empty()
    }
}

fn yaml(text: &str) -> Yaml {
    YamlLoader::load_from_str(text).expect("YAML").remove(0)
}

/// The step of the guide's workflow that uses the action.
fn example() -> Yaml {
    let mut page = Page::new(GUIDE);
    let workflow = yaml(page.next("uses:"));
    page.finish();
    let steps = workflow["jobs"]["convert"]["steps"].as_vec().expect("steps").clone();
    let uses = |step: &Yaml| step["uses"].as_str().is_some_and(|name| name.contains("elbowroom@"));
    steps.into_iter().find(uses).expect("a step that uses the action")
}

/// An archive of a release as `scripts/packages.sh` lays it out, with the program of this build.
fn write_archive(ground: &Ground, name: &str) {
    let tree = ground.path("tree").join(name.trim_end_matches(".tar.gz")).join("bin");
    link_elbow(&tree);
    let pack = format!(
        "tar --dereference -C tree -c {} | gzip -1 >release/{name}",
        name.trim_end_matches(".tar.gz")
    );
    ground.run(&pack).assert_code(0);
}

fn link_elbow(place: &Path) {
    fs::create_dir_all(place).expect("a directory");
    // Without debug information, which would take longer to pack than all else here.
    let strip = Command::new("strip")
        .args(["-o".as_ref(), place.join("elbow").as_os_str()])
        .arg(env!("CARGO_BIN_EXE_elbow"))
        .status();
    assert!(strip.is_ok_and(|status| status.success()), "strip");
}

fn archive_of_example() -> String {
    let package = example()["with"]["package"].as_str().expect("a package").to_owned();
    package.rsplit('/').next().expect("a name").to_owned()
}

fn checksum(ground: &Ground, file: &str) -> String {
    let said = ground.run(&format!("sha256sum {file}")).said;
    said.split(' ').next().expect("a checksum").to_owned()
}

#[test]
fn the_example_of_the_guide_is_stored() {
    let mut runner = Runner::new();
    let archive = archive_of_example();
    write_archive(&runner.ground, &archive);
    let sum = checksum(&runner.ground, &format!("release/{archive}"));
    runner.give("sha256", &sum);
    runner.run_through().assert_code(0);
    assert_eq!(runner.ground.names("results"), ["1", "old"]);
    assert_eq!(runner.ground.read("index/all"), "1\nold\n");
    assert_eq!(runner.output("outcome"), "committed");
    let report: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(runner.output("report")).expect("a report")).expect("JSON");
    assert_eq!(report["directories"].as_array().map(Vec::len), Some(2));
    assert!(runner.asked().contains(&archive), "{}", runner.asked());
    let later = runner.ground.run(&format!("PATH='{}' elbow --version", runner.path()));
    assert!(later.said.starts_with("elbow "), "{}", later.said);
}

#[test]
fn commands_that_fail_change_nothing_and_fail_the_step() {
    let mut runner = Runner::new();
    runner.give("package", ""); // Built, by the cargo of these tests.
    runner.give(
        "run",
        "./convert scans results\nfalse | cat\n./list results > index/all\n",
    );
    let ended = runner.run_through();
    ended.assert_code(1);
    assert!(runner.is_as_it_was(), "{}", ended.said);
    assert_eq!(runner.output("outcome"), "rolled_back");
    let asked = runner.asked();
    assert!(
        asked.starts_with("cargo build --release --locked -p elbow --manifest-path"),
        "{asked}"
    );
    let manifest = asked
        .split(' ')
        .find(|word| word.ends_with("/Cargo.toml"))
        .expect("a manifest");
    assert!(PathBuf::from(manifest).is_file(), "{manifest}");

    // Once more on the same machine, with options.
    runner
        .ground
        .run("rm -r temp/elbow github-path; echo 1 >tries")
        .assert_code(0);
    runner.give(
        "run",
        "./convert scans results\nread n <tries; echo 2 >tries; [ $n = 2 ]\n./list results > index/all\n",
    );
    runner.give("options", "--retry 1\n--quiet");
    runner.run_through().assert_code(0);
    assert_eq!(runner.ground.read("index/all"), "1\nold\n");
    assert_eq!(runner.output("outcome"), "committed");
}

#[test]
fn a_debian_package_is_installed() {
    let mut runner = Runner::new();
    link_elbow(&runner.ground.path("tree/usr/bin"));
    let control = "Package: elbow\nVersion: 0.1.0\nArchitecture: all\nMaintainer: Nobody <nobody@localhost>\nDescription: a test\n";
    runner.ground.write("tree/DEBIAN/control", control);
    let built = runner.ground.run("dpkg-deb -Znone --build tree release/elbow.deb");
    built.assert_code(0);
    runner.give("package", "release/elbow.deb");
    runner.run_through().assert_code(0);
    assert_eq!(runner.output("outcome"), "committed");
    assert_eq!(runner.asked(), "apt-get -qq -y install release/elbow.deb\n");
}

#[test]
fn what_is_no_such_package_is_not_installed() {
    let mut runner = Runner::new();
    let archive = archive_of_example();
    runner.ground.write(&format!("release/{archive}"), "something else");
    runner.give("sha256", &"0".repeat(64));
    let ended = runner.run_through();
    assert!(ended.code != 0 && ended.said.contains("sha256sum"), "{}", ended.said);
    runner.ground.write("release/elbow.zip", "");
    runner.give("package", "release/elbow.zip");
    runner.give("sha256", "");
    let ended = runner.run_through();
    assert!(
        ended.code == 1 && ended.said.contains("::error::package is neither"),
        "{}",
        ended.said
    );
    assert!(runner.is_as_it_was() && runner.output("outcome").is_empty());
}

#[test]
fn fuse_is_installed_where_it_is_missing() {
    let mut runner = Runner::new();
    runner.give("package", "");
    runner.ground.without("fusermount3");
    let ended = runner.run_through();
    let asked = runner.asked();
    assert!(
        asked.contains("apt-get -qq -y --no-install-recommends install fuse3"),
        "{asked}{}",
        ended.said
    );
}

/// As the runner does it: to the process of the step alone, SIGINT and later SIGTERM.
#[test]
fn a_run_that_is_cancelled_changes_nothing() {
    let mut runner = Runner::new();
    runner.give("package", "");
    runner.give("run", "./convert scans results\n: >begun\nsleep 100\n");
    let ended = runner.run(|runner, step, running| {
        if step.name == "Run" {
            until("the commands", || runner.ground.path("begun").exists());
            running.signal("INT");
            std::thread::sleep(std::time::Duration::from_secs(1));
            running.signal("TERM");
        }
    });
    assert!(ended.code == 130 || ended.code == 143, "{}: {}", ended.code, ended.said);
    assert!(runner.is_as_it_was(), "{}", ended.said);
    assert_eq!(runner.output("outcome"), "rolled_back");
}
