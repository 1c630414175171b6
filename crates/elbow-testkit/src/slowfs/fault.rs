//! Faults: which operations fail with which error, written as on the command line.
//!
//! `OPERATION:ERRNO[:after=N][:count=N][:name=GLOB]`, for example `write:EIO:after=10` or `create:ENOSPC:name=foo*`.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::str::FromStr;

use super::counters::Op;

/// One rule: operations that match it fail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The operation, or `None` for any.
    pub op: Option<Op>,
    /// The error number that the caller gets.
    pub errno: i32,
    /// How many matching operations go through before the first failure.
    pub after: u64,
    /// How many fail; `None` for all from then on.
    pub count: Option<u64>,
    /// Which names match: `*` and `?` as in a shell, against the last component; `None` for any. An operation on an open
    /// file matches by the name under which the file was last looked up, created or renamed.
    pub name: Option<String>,
}

impl Fault {
    /// Every `op` fails with `errno`.
    pub fn new(op: Op, errno: i32) -> Self {
        Self {
            op: Some(op),
            errno,
            after: 0,
            count: None,
            name: None,
        }
    }

    /// Lets the first `operations` go through.
    #[must_use]
    pub fn after(self, operations: u64) -> Self {
        Self {
            after: operations,
            ..self
        }
    }

    /// Stops failing after `failures`.
    #[must_use]
    pub fn count(self, failures: u64) -> Self {
        Self {
            count: Some(failures),
            ..self
        }
    }

    /// Only for names that match `glob`.
    #[must_use]
    pub fn name(self, glob: &str) -> Self {
        Self {
            name: Some(glob.to_owned()),
            ..self
        }
    }

    fn matches(&self, op: Op, name: &OsStr) -> bool {
        self.op.is_none_or(|wanted| wanted == op)
            && self
                .name
                .as_ref()
                .is_none_or(|glob| glob_matches(glob.as_bytes(), name.as_bytes()))
    }
}

/// A text that is not a fault, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseFaultError(String);

impl fmt::Display for ParseFaultError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}; a fault is OPERATION:ERRNO[:after=N][:count=N][:name=GLOB], as in write:EIO:after=10",
            self.0
        )
    }
}

impl std::error::Error for ParseFaultError {}

impl FromStr for Fault {
    type Err = ParseFaultError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut parts = text.split(':');
        let op = parse_op(parts.next().unwrap_or_default())?;
        let errno = parse_errno(parts.next().unwrap_or_default())?;
        let mut fault = Self {
            op,
            errno,
            after: 0,
            count: None,
            name: None,
        };
        for part in parts {
            match part.split_once('=') {
                Some(("after", n)) => fault.after = parse_number(n)?,
                Some(("count", n)) => fault.count = Some(parse_number(n)?),
                Some(("name", glob)) => fault.name = Some(glob.to_owned()),
                _ => return Err(ParseFaultError(format!("unknown part '{part}'"))),
            }
        }
        Ok(fault)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.op.map_or("any", Op::name), errno_name(self.errno))?;
        if self.after > 0 {
            write!(f, ":after={}", self.after)?;
        }
        if let Some(count) = self.count {
            write!(f, ":count={count}")?;
        }
        self.name.as_ref().map_or(Ok(()), |name| write!(f, ":name={name}"))
    }
}

/// The rules in force and how often each has matched and fired.
#[derive(Debug, Default)]
pub(super) struct FaultPlan {
    rules: Vec<Rule>,
}

#[derive(Debug)]
struct Rule {
    fault: Fault,
    matched: u64,
    fired: u64,
}

impl FaultPlan {
    pub(super) fn new(faults: Vec<Fault>) -> Self {
        Self {
            rules: faults
                .into_iter()
                .map(|fault| Rule {
                    fault,
                    matched: 0,
                    fired: 0,
                })
                .collect(),
        }
    }

    /// The error with which this operation fails, if a rule fires.
    pub(super) fn strike(&mut self, op: Op, name: &OsStr) -> Option<i32> {
        self.rules.iter_mut().find_map(|rule| rule.strike(op, name))
    }

    /// Each rule with the number of times that it fired.
    pub(super) fn fired(&self) -> impl Iterator<Item = (&Fault, u64)> {
        self.rules.iter().map(|rule| (&rule.fault, rule.fired))
    }

    pub(super) fn reset(&mut self) {
        for rule in &mut self.rules {
            rule.matched = 0;
            rule.fired = 0;
        }
    }
}

impl Rule {
    fn strike(&mut self, op: Op, name: &OsStr) -> Option<i32> {
        if !self.fault.matches(op, name) {
            return None;
        }
        self.matched += 1;
        let due = self.matched > self.fault.after && self.fault.count.is_none_or(|count| self.fired < count);
        self.fired += u64::from(due);
        due.then_some(self.fault.errno)
    }
}

fn parse_op(text: &str) -> Result<Option<Op>, ParseFaultError> {
    if text == "any" {
        return Ok(None);
    }
    let known = || Op::ALL.iter().map(|op| op.name()).collect::<Vec<_>>().join(", ");
    let op = Op::from_name(text);
    op.map(Some)
        .ok_or_else(|| ParseFaultError(format!("unknown operation '{text}' (any, {})", known())))
}

fn parse_number(text: &str) -> Result<u64, ParseFaultError> {
    text.parse()
        .map_err(|_| ParseFaultError(format!("'{text}' is not a number")))
}

/// The errors that storage gives, by name; any other may be given as a number.
const ERRNOS: &[(&str, i32)] = &[
    ("EACCES", libc::EACCES),
    ("EAGAIN", libc::EAGAIN),
    ("EBUSY", libc::EBUSY),
    ("EDQUOT", libc::EDQUOT),
    ("EEXIST", libc::EEXIST),
    ("EFBIG", libc::EFBIG),
    ("EINTR", libc::EINTR),
    ("EINVAL", libc::EINVAL),
    ("EIO", libc::EIO),
    ("EMLINK", libc::EMLINK),
    ("ENAMETOOLONG", libc::ENAMETOOLONG),
    ("ENOENT", libc::ENOENT),
    ("ENOMEM", libc::ENOMEM),
    ("ENOSPC", libc::ENOSPC),
    ("ENOSYS", libc::ENOSYS),
    ("ENOTCONN", libc::ENOTCONN),
    ("ENOTEMPTY", libc::ENOTEMPTY),
    ("EOPNOTSUPP", libc::EOPNOTSUPP),
    ("EPERM", libc::EPERM),
    ("EROFS", libc::EROFS),
    ("ESTALE", libc::ESTALE),
    ("ETIMEDOUT", libc::ETIMEDOUT),
    ("EXDEV", libc::EXDEV),
];

/// The largest error number that the kernel passes on.
const MAX_ERRNO: i32 = 511;

fn parse_errno(text: &str) -> Result<i32, ParseFaultError> {
    let named = ERRNOS.iter().find(|(name, _)| *name == text).map(|(_, errno)| *errno);
    let number = || text.parse().ok().filter(|errno| (1..=MAX_ERRNO).contains(errno));
    named
        .or_else(number)
        .ok_or_else(|| ParseFaultError(format!("unknown error '{text}'")))
}

fn errno_name(errno: i32) -> String {
    let named = ERRNOS.iter().find(|(_, number)| *number == errno);
    named.map_or_else(|| errno.to_string(), |(name, _)| (*name).to_owned())
}

/// Whether a shell pattern of `*`, `?` and plain characters matches all of `name`.
fn glob_matches(glob: &[u8], name: &[u8]) -> bool {
    match (glob.split_first(), name.split_first()) {
        (None, None) => true,
        (Some((b'*', rest)), None) => glob_matches(rest, name),
        (Some((b'*', rest)), Some((_, tail))) => glob_matches(rest, name) || glob_matches(glob, tail),
        (Some((b'?', rest)), Some((_, tail))) => glob_matches(rest, tail),
        (Some((wanted, rest)), Some((found, tail))) => wanted == found && glob_matches(rest, tail),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strikes(plan: &mut FaultPlan, name: &str, times: usize) -> Vec<Option<i32>> {
        (0..times).map(|_| plan.strike(Op::Write, OsStr::new(name))).collect()
    }

    #[test]
    fn a_fault_reads_back_as_it_was_written() {
        for text in [
            "write:EIO:after=10",
            "create:ENOSPC:name=foo*",
            "any:EROFS:after=1:count=2:name=?x",
            "fsync:200",
        ] {
            assert_eq!(text.parse::<Fault>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn nonsense_is_refused_with_a_reason() {
        for text in [
            "",
            "write",
            "wrote:EIO",
            "write:EWHAT",
            "write:0",
            "write:EIO:after=x",
            "write:EIO:sometimes",
        ] {
            let said = text.parse::<Fault>().unwrap_err().to_string();
            assert!(said.contains("a fault is OPERATION:ERRNO"), "{said}");
        }
    }

    #[test]
    fn a_rule_lets_the_first_through_and_stops_after_its_count() {
        let mut plan = FaultPlan::new(vec!["write:EIO:after=1:count=2".parse().unwrap()]);
        let io = Some(libc::EIO);
        assert_eq!(strikes(&mut plan, "a", 5), [None, io, io, None, None]);
        assert_eq!(plan.fired().map(|(_, fired)| fired).sum::<u64>(), 2);
    }

    #[test]
    fn names_match_as_in_a_shell() {
        let mut plan = FaultPlan::new(vec![Fault::new(Op::Write, libc::EIO).name("a*b?")]);
        assert_eq!(strikes(&mut plan, "axxbc", 1), [Some(libc::EIO)]);
        assert_eq!(strikes(&mut plan, "ab", 1), [None]);
        assert_eq!(plan.strike(Op::Read, OsStr::new("axxbc")), None);
    }
}
