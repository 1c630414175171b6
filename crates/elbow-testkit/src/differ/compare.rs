//! What two runs of a case differ in, the worst first.

use std::collections::BTreeMap;
use std::fmt;

use super::answer::Visibility;
use super::case::{Case, Ending, Runner};
use super::draw::ordinary;
use super::ground::Storage;
use super::look::{FileView, View};
use super::word::spell;

/// What one run said and left.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// What each call answered, as far as it came.
    pub answers: Vec<String>,
    /// What the command saw at its end.
    pub inside: View,
    /// What was stored before.
    pub before: View,
    /// What is stored after it.
    pub after: View,
    /// Its exit code; `None` when it did not end.
    pub code: Option<i32>,
    /// What it said on standard error.
    pub said: String,
}

/// A difference. Its signature is what makes two of them the same: no names, no numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What sort of difference it is.
    pub class: Class,
    /// The same text for the same bug, mostly.
    pub signature: String,
    /// Where, and what each run had, for people.
    pub detail: String,
    /// The call in question, where it is one.
    pub step: Option<usize>,
}

/// How bad, the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// The job did not end, or a call of it was not answered.
    Hang,
    /// Exit code 0, and the storage has not what the command saw, or would have left without a job.
    Wrong,
    /// A job that was rolled back, or said so, left something else than the old tree.
    Mixture,
    /// A job whose command succeeded was refused.
    Refused,
    /// The command saw another tree at its end.
    Seen,
    /// A call answered otherwise.
    Answer,
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Hang => "hang",
            Self::Wrong => "wrong-after-0",
            Self::Mixture => "not-rolled-back",
            Self::Refused => "refused",
            Self::Seen => "seen-inside",
            Self::Answer => "answer",
        })
    }
}

/// All differences of a job to the native run of the same case.
pub fn compare(case: &Case, native: &Run, job: &Run) -> Vec<Finding> {
    let visibility = Visibility {
        own: (case.runner == Runner::User).then(|| ordinary().uid),
        is_far: is_far(case),
    };
    compare_equal_eyes(case, &native.seen_by(visibility), &job.seen_by(visibility))
}

impl Run {
    /// As who worked in it knows it. What is stored is looked at by root.
    fn seen_by(&self, visibility: Visibility) -> Self {
        let part = |(part, value): (&String, &String)| Some((part.clone(), visibility.part(part, value)?));
        let see = |seen: &FileView| seen.iter().filter_map(part).collect();
        Self {
            answers: self.answers.iter().map(|said| visibility.answer(said)).collect(),
            inside: self
                .inside
                .iter()
                .map(|(name, seen)| (name.clone(), see(seen)))
                .collect(),
            ..self.clone()
        }
    }
}

fn compare_equal_eyes(case: &Case, native: &Run, job: &Run) -> Vec<Finding> {
    let mut findings = Vec::new();
    let first = first_answer(case, native, job);
    let is_same_so_far = first.is_none();
    findings.extend(first);
    if is_same_so_far {
        findings.extend(views(Class::Seen, "inside", &native.inside, &job.inside));
    }
    findings.extend(ending(case, native, job, is_same_so_far));
    if case.runner == Runner::User {
        findings.iter_mut().for_each(|finding| finding.signature += " (user)");
    }
    findings.sort_by_key(|finding| finding.class);
    findings
}

fn first_answer(case: &Case, native: &Run, job: &Run) -> Option<Finding> {
    let number = (0..case.steps.len()).find(|number| native.answers.get(*number) != job.answers.get(*number))?;
    let step = &case.steps[number];
    let said = |run: &Run| run.answers.get(number).cloned().unwrap_or_else(|| "nothing".to_owned());
    let (native, job) = (said(native), said(job));
    let class = if job == "hangs" { Class::Hang } else { Class::Answer };
    Some(Finding {
        class,
        signature: format!("{class} {} {}", step.call.verb(), answer_difference(&native, &job)),
        detail: format!(
            "call {} {}: native {native}, job {job}",
            step.worker,
            step.call.encode()
        ),
        step: Some(number),
    })
}

/// How much was read, of an answer that tells that and a digest.
fn length_of_read(word: &str) -> Option<u64> {
    word.split_once(':')?.0.parse().ok()
}

/// Errors by name; of two good answers which of their words differ, and whether less was read.
fn answer_difference(native: &str, job: &str) -> String {
    let short = |said: &str| said.split(' ').next().unwrap_or_default().to_owned();
    if short(native) != "ok" || short(job) != "ok" {
        return format!("{}/{}", short(native), short(job));
    }
    let words = native
        .split(' ')
        .zip(job.split(' '))
        .filter(|(native, job)| native != job);
    let key = |(native, job): (&'_ str, &str)| {
        let is_less = || Some(length_of_read(job)? < length_of_read(native)?);
        match native.split_once('=') {
            Some((key, _)) => Some(key.to_owned()),
            None => is_less()?.then(|| "less".to_owned()),
        }
    };
    let keys: Vec<String> = words
        .filter_map(key)
        .filter(|key| key.bytes().all(|byte| byte.is_ascii_lowercase()) && key.len() > 2)
        .collect();
    format!("ok/ok {}", keys.join(","))
}

fn ending(case: &Case, native: &Run, job: &Run, is_same_so_far: bool) -> Vec<Finding> {
    let Some(code) = job.code else {
        let detail = format!("the job did not end\n{}", job.said);
        return vec![whole(Class::Hang, "hang of the job", &detail)];
    };
    let expected = native.code.unwrap_or_default();
    if code != expected {
        return vec![refused(code, expected, job)];
    }
    let mut findings = leftovers(job);
    if code == 0 {
        findings.extend(committed(case, native, job, is_same_so_far));
    } else {
        findings.extend(views(Class::Mixture, "after", &job.before, &job.after));
    }
    findings
}

/// One finding, whatever is wrong with the tree: it has one cause.
fn refused(code: i32, expected: i32, job: &Run) -> Finding {
    let left = leftovers(job)
        .into_iter()
        .chain(views(Class::Mixture, "after", &job.before, &job.after));
    let wrong: Vec<String> = left.map(|finding| finding.detail).collect();
    let class = if wrong.is_empty() {
        Class::Refused
    } else {
        Class::Mixture
    };
    let signature = format!("{class} {code}/{expected} {}", cause(&job.said));
    whole(class, &signature, &format!("{}\n{}", job.said.trim(), wrong.join("\n")))
}

/// What is stored is what the native run left, and what the command saw last.
fn committed(case: &Case, native: &Run, job: &Run, is_same_so_far: bool) -> Vec<Finding> {
    if is_same_so_far {
        return views(Class::Wrong, "after", &native.after, &job.after);
    }
    // An ordinary user, or one over sshfs, does not see all that root sees afterwards.
    let sees_all = case.runner == Runner::Root && case.ending != Ending::Leave && !is_far(case);
    if sees_all {
        views(Class::Wrong, "after", &job.inside, &job.after)
    } else {
        Vec::new()
    }
}

fn is_far(case: &Case) -> bool {
    Storage::of_name(&case.storage).is_some_and(Storage::is_far)
}

fn leftovers(job: &Run) -> Vec<Finding> {
    let is_staged = |path: &[u8]| {
        path.split(|byte| *byte == b'/')
            .any(|name| name.starts_with(b".elbow-"))
    };
    let left = job.after.keys().find(|name| is_staged(&name.0));
    let finding = |name| whole(Class::Mixture, "staging is left behind", &spell(name));
    left.map(finding).into_iter().collect()
}

fn whole(class: Class, signature: &str, detail: &str) -> Finding {
    Finding {
        class,
        signature: signature.to_owned(),
        detail: detail.to_owned(),
        step: None,
    }
}

/// The first sentence that names an error, of the last attempt, without paths and numbers.
fn cause(said: &str) -> String {
    let said = said
        .rsplit_once("elbow: running it again")
        .map_or(said, |(_, last)| last);
    let names_one = |line: &&str| {
        let is_good = line.starts_with("elbow: committed") || line.contains(" is stored over SFTP on ");
        line.contains(": ") && !is_good
    };
    let line = said.lines().find(names_one).unwrap_or(said);
    let is_word = |word: &&str| word.len() > 1 && word.bytes().all(|byte| byte.is_ascii_alphabetic());
    let words = line.split([' ', ':', ';', '(', ')', ',']).filter(is_word);
    words.take(16).collect::<Vec<_>>().join(" ")
}

/// Where two views differ: a finding for each part that does, with all paths.
fn views(class: Class, when: &str, expected: &View, found: &View) -> Vec<Finding> {
    let mut parts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let nothing = FileView::new();
    for name in expected
        .keys()
        .chain(found.keys().filter(|name| !expected.contains_key(*name)))
    {
        if is_of_no_command(&name.0) {
            continue;
        }
        let (had, has) = (
            expected.get(name).unwrap_or(&nothing),
            found.get(name).unwrap_or(&nothing),
        );
        for (part, detail) in differing(had, has) {
            parts
                .entry(part)
                .or_default()
                .push(format!("{}: {detail}", spell(name)));
        }
    }
    let finding = |(part, lines): (String, Vec<String>)| Finding {
        class,
        signature: format!("{class} {when} {part}"),
        detail: lines.join("\n"),
        step: None,
    };
    parts.into_iter().map(finding).collect()
}

/// Whether a path is one that no command made: a staging directory, which is said by itself, or sshfs's own name of a removed open file.
fn is_of_no_command(path: &[u8]) -> bool {
    let mut parts = path.split(|byte| *byte == b'/');
    parts.any(|part| part.starts_with(b".elbow-") || part.starts_with(b".fuse_hidden"))
}

/// The parts that differ, each with what it was and is.
fn differing(had: &FileView, has: &FileView) -> Vec<(String, String)> {
    match (had.get("kind"), has.get("kind")) {
        (Some(kind), None) => return vec![(format!("{kind} missing"), "missing".to_owned())],
        (None, Some(kind)) => return vec![(format!("{kind} too many"), "not expected".to_owned())],
        _ => {}
    }
    let kind = had.get("kind").map_or("", String::as_str);
    let absent = "none".to_owned();
    let keys: std::collections::BTreeSet<&String> = had.keys().chain(has.keys()).collect();
    let different = keys
        .into_iter()
        .filter(|key| had.get(*key) != has.get(*key))
        .map(|key| {
            let (was, is) = (had.get(key).unwrap_or(&absent), has.get(key).unwrap_or(&absent));
            let sort = if key.starts_with("x:system") {
                key
            } else {
                key.split(':').next().unwrap_or_default()
            };
            let now = if key.ends_with("time") { direction(was, is) } else { "" };
            (format!("{kind} {sort}{now}"), format!("{key} is {is}, expected {was}"))
        });
    different.collect()
}

/// Of two times, which is that of the run.
fn direction(was: &str, is: &str) -> &'static str {
    match (was, is) {
        ("now", _) => " is not now",
        (_, "now") => " is now",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::differ::look::decode_view;

    fn run(answers: &[&str], after: &str) -> Run {
        let after = decode_view(after.lines());
        Run {
            answers: answers.iter().map(|said| (*said).to_owned()).collect(),
            inside: after.clone(),
            before: View::new(),
            after,
            code: Some(0),
            said: String::new(),
        }
    }

    fn case(calls: &[&str]) -> Case {
        let calls: String = calls.iter().map(|call| format!("call 0 {call}\n")).collect();
        Case::decode(&format!("# elbow differ 1\nworker 0 0\n{calls}")).expect("a case")
    }

    fn signatures(findings: &[Finding]) -> Vec<&str> {
        findings.iter().map(|finding| finding.signature.as_str()).collect()
    }

    #[test]
    fn the_same_is_no_finding() {
        let same = run(&["ok", "ENOENT"], "a kind=file mode=0644\n");
        assert_eq!(compare(&case(&["getcwd", "umask 0022"]), &same, &same), []);
    }

    #[test]
    fn only_the_first_answer_that_differs_is_told() {
        let case = case(&["getcwd", "rmdir root a", "rmdir root b"]);
        let (native, job) = (
            run(&["ok", "ENOTEMPTY", "ok"], ""),
            run(&["ok", "EEXIST", "ENOENT"], ""),
        );
        assert_eq!(
            signatures(&compare(&case, &native, &job)),
            ["answer rmdir ENOTEMPTY/EEXIST"]
        );
    }

    #[test]
    fn less_that_is_read_is_told_apart_from_something_else() {
        let case = case(&["pread f0 10 0"]);
        let told = |native: &str, job: &str| {
            let found = compare(&case, &run(&[native], ""), &run(&[job], ""));
            signatures(&found).join(" ")
        };
        assert_eq!(told("ok 10:1a", "ok 7:2b"), "answer pread ok/ok less");
        assert_eq!(told("ok 10:1a", "ok 10:2b"), "answer pread ok/ok ");
        assert_eq!(told("ok 7:1a", "ok 10:2b"), "answer pread ok/ok ");
    }

    #[test]
    fn another_tree_after_exit_0_is_told_by_its_parts() {
        let native = run(&[], "a kind=file mode=0644 content=1\nb kind=dir mode=0755\n");
        let mut job = native.clone();
        job.after = decode_view("a kind=file mode=0600 content=2\nc kind=fifo\n".lines());
        let found = compare(&case(&[]), &native, &job);
        let expected = [
            "after dir missing",
            "after fifo too many",
            "after file content",
            "after file mode",
        ];
        assert_eq!(signatures(&found), expected.map(|part| format!("wrong-after-0 {part}")));
    }

    #[test]
    fn a_roll_back_is_compared_with_the_old_tree() {
        let (mut native, mut job) = (
            run(&[], "a kind=file"),
            run(&[], "a kind=file mtime=now\n.elbow-x kind=dir\n"),
        );
        (native.code, job.code) = (Some(7), Some(7));
        job.before = decode_view("a kind=file mtime=5\n".lines());
        job.inside = native.inside.clone();
        let found = compare(&case(&[]), &native, &job);
        assert_eq!(
            signatures(&found),
            ["staging is left behind", "not-rolled-back after file mtime is now"]
        );
    }
}
