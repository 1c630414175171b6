//! Makes a case small that shows a difference: takes away calls, old objects and options as long as the difference stays.
//!
//! Zeller and Hildebrandt, "Simplifying and Isolating Failure-Inducing Input" (2002), with pieces taken away only: what is left when no single
//! piece can go is what the difference needs.

use super::call::Call;
use super::case::{Case, Ending, Runner, WorkerIdentity};
use super::old::Old;
use super::word::Data;

/// Makes it smaller while `shows` says that the difference is there.
pub fn shrink(case: &Case, shows: &mut impl FnMut(&Case) -> bool) -> Case {
    let mut case = case.clone();
    loop {
        let before = case.clone();
        case = fewer(case, |case| &mut case.steps, shows);
        case = fewer(case, |case| &mut case.old, shows);
        case = fewer(case, |case| &mut case.options, shows);
        case = simpler(case, shows);
        if case == before {
            return case;
        }
    }
}

/// Takes pieces out of one of its lists: halves, quarters and so on, down to single ones.
fn fewer<T: Clone>(case: Case, list: impl Fn(&mut Case) -> &mut Vec<T>, shows: &mut impl FnMut(&Case) -> bool) -> Case {
    let mut case = case;
    let mut piece = list(&mut case).len();
    while piece > 0 {
        let mut start = 0;
        while start < list(&mut case).len() {
            let mut smaller = case.clone();
            let items = list(&mut smaller);
            let end = (start + piece).min(items.len());
            items.drain(start..end);
            if shows(&smaller) {
                case = smaller;
            } else {
                start = end;
            }
        }
        piece /= 2;
    }
    case
}

/// Replaces what is special by what is usual.
fn simpler(case: Case, shows: &mut impl FnMut(&Case) -> bool) -> Case {
    let mut case = case;
    let mut attempt = |change: &dyn Fn(&mut Case)| {
        let mut other = case.clone();
        change(&mut other);
        if other != case && shows(&other) {
            case = other;
        }
    };
    attempt(&|case| case.ending = Ending::Commit);
    attempt(&|case| {
        case.workers
            .truncate(1 + case.steps.iter().map(|step| step.worker).max().unwrap_or(0));
    });
    attempt(&|case| {
        case.workers.truncate(1);
        case.steps.iter_mut().for_each(|step| step.worker = 0);
    });
    for number in 0..3 {
        attempt(&|case| {
            if let (Runner::Root, Some(worker)) = (case.runner, case.workers.get_mut(number)) {
                *worker = WorkerIdentity::default();
            }
        });
    }
    for length in [1, 5000] {
        attempt(&|case| each_data(case, &|data| data.length = data.length.min(length)));
    }
    attempt(&|case| each_data(case, &|data| data.seed = data.seed.min(1)));
    case
}

fn each_data(case: &mut Case, change: &dyn Fn(&mut Data)) {
    for old in &mut case.old {
        if let Old::File { data, .. } | Old::Data { data, .. } = old {
            change(data);
        }
    }
    for step in &mut case.steps {
        if let Call::Write { data, .. } | Call::Pwrite { data, .. } | Call::Mapwrite { data, .. } = &mut step.call {
            change(data);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_difference_needs_is_left() {
        let calls: String = (0..100).map(|number| format!("call 0 pause {number}\n")).collect();
        let text =
            format!("# elbow differ 1\nending fail\noption --durable\nworker 1001 1001\nold dir a 0755 0 0\n{calls}");
        let case = Case::decode(&text).expect("a case");
        let has = |case: &Case, line: &str| case.encode().lines().any(|other| other == line);
        let mut asked = 0;
        let small = shrink(&case, &mut |case| {
            asked += 1;
            has(case, "call 0 pause 17") && has(case, "call 0 pause 80") && has(case, "ending fail")
        });
        let expected =
            "# elbow differ 1\nstorage \nrunner root\nending fail\nworker 0 0\ncall 0 pause 17\ncall 0 pause 80\n";
        assert_eq!(small.encode(), expected);
        assert!(asked < 120, "{asked} trials");
    }
}
