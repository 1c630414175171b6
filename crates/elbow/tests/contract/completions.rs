//! The scripts of `elbow completions`, asked by the shells themselves.

use std::path::Path;
use std::process::Command;

use crate::stage::{Said, Stage};

/// Where bash-completion is, where it is installed.
const BASH_COMPLETION: &str = "/usr/share/bash-completion/bash_completion";

/// What is typed, and one of the answers.
const QUESTIONS: [(&str, &str); 11] = [
    ("elbow re", "recover"),
    ("elbow run --ret", "--retry"),
    ("elbow run --on x -- gre", "grep"),
    ("elbow run gre", "grep"),
    ("elbow run --retry 2 gre", "grep"),
    ("elbow run -- cat in", "input.txt"),
    ("elbow run cat in", "input.txt"),
    ("elbow lock hold in", "input.txt"),
    ("elbow lock hold x -- gre", "grep"),
    ("elbow lock exec --prefix . -- cat in", "input.txt"),
    ("elbow lock mpi -- gre", "grep"),
];

/// A stage with a file to be completed and the script of a shell, under a name.
fn stage_with(shell: &str, name: &str) -> Stage {
    let stage = Stage::new();
    std::fs::write(stage.path("work/input.txt"), "").expect("a file");
    let script = stage.elbow(&["completions", shell]).assert_code(0).out.clone();
    std::fs::write(stage.path(name), script).expect("a script");
    stage
}

fn ask(stage: &Stage, command: &mut Command) -> Said {
    stage.start(command).finish()
}

#[track_caller]
fn assert_answered(said: &Said, line: &str, answer: &str) {
    let is_there = said.out.lines().any(|it| it.trim_end() == answer);
    assert!(is_there, "`{line}` does not give {answer}: {said:#?}");
}

/// Prints what bash itself would: the function's answers, or files where it has none (`-o default`).
const BASH: &str = r#"
    read -ra COMP_WORDS <<<"$LINE"
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) COMP_LINE=$LINE COMP_POINT=${#LINE}
    [[ $(complete -p elbow) =~ -o\ default\ .*-F\ ([^ ]+)\ elbow ]] || exit 1
    current=${COMP_WORDS[COMP_CWORD]}
    ${BASH_REMATCH[1]} elbow "$current" "${COMP_WORDS[COMP_CWORD - 1]}"
    ((${#COMPREPLY[@]})) || mapfile -t COMPREPLY < <(compgen -f -- "$current")
    printf '%s\n' "${COMPREPLY[@]}"
"#;

fn ask_bash(before: &str) {
    let stage = stage_with("bash", "elbow.bash");
    for (line, answer) in QUESTIONS {
        let script = format!("{before}\nsource ../elbow.bash\n{BASH}");
        let said = ask(
            &stage,
            Command::new("bash").args(["--norc", "-c", &script]).env("LINE", line),
        );
        assert_answered(&said, line, answer);
    }
}

/// After `--` nothing was completed but files.
#[test]
fn bash_completes_commands_and_their_files() {
    ask_bash("");
}

#[test]
fn bash_completes_commands_by_their_own_completions() {
    if !Path::new(BASH_COMPLETION).exists() {
        assert!(std::env::var_os("CI").is_none(), "bash-completion is not installed");
        eprintln!("SKIPPED: bash-completion is not installed");
        return;
    }
    let load = format!("shopt -s progcomp extglob\nsource {BASH_COMPLETION}");
    ask_bash(&load);
    let own = format!(
        "{load}\n_of_cat() {{ COMPREPLY=(own-answer); }}\ncomplete -F _of_cat cat\nsource ../elbow.bash\n{BASH}"
    );
    let stage = stage_with("bash", "elbow.bash");
    for line in ["elbow run --on x -- cat o", "elbow lock hold x -- cat o"] {
        let said = ask(
            &stage,
            Command::new("bash").args(["--norc", "-c", &own]).env("LINE", line),
        );
        assert_answered(&said, line, "own-answer");
    }
}

/// Types the line and a tab in a terminal, and prints what is offered; FILE is a directory.
const ZSH: &str = r#"
    zmodload zsh/zpty
    zpty inner zsh -f -i
    zpty -w inner "PS1= PS2=; stty -echo; fpath=(${(q)1} \$fpath); autoload -U compinit; compinit -u -D; bindkey '^I' complete-word"
    zpty -w inner 'compadd() {
        if [[ ${@[1,(i)(-|--)]} == *-(O|A|D)\ * ]]; then builtin compadd "$@"; return; fi
        typeset -a offered; builtin compadd -A offered "$@"; print -rl -- "${offered[@]/#/OFFER:}"; builtin compadd "$@" }'
    zpty -w inner 'over() { print "EN""D"; exit }; comppostfuncs=(over); print "REA""DY"'
    zpty -r inner said '*READY*'
    zpty -w -n inner "$2"$'\t'
    zpty -r inner said '*END*'
    print -r -- "$said" | tr -d '\r' | grep -a -o 'OFFER:.*' | sed 's/OFFER://'
"#;

#[test]
fn zsh_completes_commands_and_their_files() {
    if is_missing("zsh") {
        return;
    }
    let stage = stage_with("zsh", "_elbow");
    for (line, answer) in QUESTIONS {
        let said = ask(
            &stage,
            Command::new("zsh")
                .args(["-f", "-c", ZSH, "zsh"])
                .arg(stage.path(""))
                .arg(line),
        );
        assert_answered(&said, line, answer);
    }
}

#[test]
fn fish_completes_commands_and_their_files() {
    if is_missing("fish") {
        return;
    }
    let stage = stage_with("fish", "elbow.fish");
    for (line, answer) in QUESTIONS {
        let mut fish = Command::new("fish");
        fish.args([
            "--no-config",
            "-c",
            "source ../elbow.fish; complete -C $LINE | string split -f1 \\t",
        ]);
        let said = ask(&stage, fish.env("LINE", line).env("HOME", stage.path("")));
        assert_answered(&said, line, answer);
    }
}

/// Whether a shell is not installed; says so, and fails where everything has to be.
fn is_missing(shell: &str) -> bool {
    let is_there = Command::new(shell).args(["-c", "exit 0"]).status().is_ok();
    assert!(is_there || std::env::var_os("CI").is_none(), "{shell} is not installed");
    if !is_there {
        eprintln!("SKIPPED: {shell} is not installed");
    }
    !is_there
}
