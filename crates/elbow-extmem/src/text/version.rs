//! Version numbers in names (`-V`), as `ls -v` and Debian order them.
//!
//! ```text
//!   "lib-1.02~rc1.tar.gz"
//!    ~~~~ ~ ~~ ~~~ ~~~~~~  '-- file endings count only where all before them is equal
//!    |    | |  |
//!    |    | |  '-- `~` comes before everything, even before the end
//!    |    | '----- digits count as a number
//!    '----'------- other bytes one by one: letters first, then the rest
//! ```
//!
//! The empty text comes first, then `.`, `..`, other texts with a dot in front, and all others.
//!
//! Source: GNU coreutils manual, chapter "Version sort ordering"; Debian Policy Manual, section 5.6.12. As coreutils 9.1 in
//! what the manual leaves open: all of `.a` is a file ending, so that it comes before `.0` (after it from 9.2 on).

use std::cmp::Ordering;

use super::prefix::common_length;

/// `-V`.
pub(super) fn compare(a: &[u8], b: &[u8]) -> Ordering {
    let groups = group(a).cmp(&group(b));
    groups.then_with(|| {
        let (base_a, base_b) = (without_endings(a), without_endings(b));
        let bases = compare_parts(base_a, base_b);
        if bases.is_ne() || (base_a.len() == a.len() && base_b.len() == b.len()) {
            return bases;
        }
        compare_parts(a, b)
    })
}

fn group(text: &[u8]) -> u8 {
    match text {
        b"" => 0,
        b"." => 1,
        b".." => 2,
        [b'.', ..] => 3,
        _ => 4,
    }
}

/// The text without what looks like `.tar.gz`: at its end, dots each followed by a letter or `~` and then letters, digits
/// and `~`. All of `.profile` is one.
fn without_endings(text: &[u8]) -> &[u8] {
    let mut end = text.len();
    let mut at = text.len();
    // From the end: `at` goes over one ending after the other, as long as they are endings.
    while let Some(dot) = text[..at].iter().rposition(|byte| !is_ending(*byte)) {
        let begins_well = text
            .get(dot + 1)
            .is_some_and(|byte| byte.is_ascii_alphabetic() || *byte == b'~');
        if text[dot] != b'.' || !begins_well || dot + 1 == at {
            break;
        }
        end = dot;
        at = dot;
    }
    &text[..end]
}

fn is_ending(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'~'
}

/// The group and seven bytes of what is compared first, up to the first digit.
pub(super) fn prefix(text: &[u8]) -> u64 {
    let mut bytes = without_endings(text).iter();
    let mut prefix = u64::from(group(text));
    let mut is_over = false;
    for _ in 0..7 {
        let byte = bytes.next().filter(|_| !is_over);
        let rank = if is_over { 0 } else { rank(byte) };
        prefix = prefix << 8 | u64::from(rank);
        is_over = is_over || byte.is_none_or(u8::is_ascii_digit);
    }
    prefix
}

/// The order of [`weight`] in a byte. A digit is as good as the end here: a zero may be followed by nothing more.
fn rank(byte: Option<&u8>) -> u8 {
    match byte {
        Some(b'~') => 0,
        None | Some(b'0'..=b'9') => 1,
        Some(byte @ b'A'..=b'Z') => 2 + byte - b'A',
        Some(byte @ b'a'..=b'z') => 28 + byte - b'a',
        // After those above; as many of them as come before the byte itself are not counted twice.
        Some(byte) => {
            let classes = [(b'0', 10), (b'A', 26), (b'a', 26), (b'~', 1)];
            let before = classes.iter().filter(|(first, _)| first < byte).map(|(_, count)| count);
            byte - before.sum::<u8>() + 54
        }
    }
}

/// Compares parts that are no numbers byte by byte, and numbers by value, in turn.
fn compare_parts(mut a: &[u8], mut b: &[u8]) -> Ordering {
    // Both are passed over in step as long as they are the same; a number is compared from its beginning.
    let same = common_length(a, b);
    let digits = a[..same].iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    (a, b) = (&a[same - digits..], &b[same - digits..]);
    while !a.is_empty() || !b.is_empty() {
        while a.first().is_some_and(|byte| !byte.is_ascii_digit())
            || b.first().is_some_and(|byte| !byte.is_ascii_digit())
        {
            let order = weight(a.first()).cmp(&weight(b.first()));
            if order.is_ne() {
                return order;
            }
            (a, b) = (&a[1..], &b[1..]); // equal weights: both have a byte, the same
        }
        let (number_a, number_b);
        (number_a, a) = number(a);
        (number_b, b) = number(b);
        let order = number_a.len().cmp(&number_b.len()).then_with(|| number_a.cmp(number_b));
        if order.is_ne() {
            return order;
        }
    }
    Ordering::Equal
}

/// `~`, the end, digits, letters, the rest.
fn weight(byte: Option<&u8>) -> i32 {
    match byte {
        Some(b'~') => -2,
        None => -1,
        Some(byte) if byte.is_ascii_digit() => 0,
        Some(byte) if byte.is_ascii_alphabetic() => i32::from(*byte),
        Some(byte) => i32::from(*byte) + 256,
    }
}

/// The digits in front, without zeros, and what follows them.
fn number(text: &[u8]) -> (&[u8], &[u8]) {
    let zeros = text.iter().take_while(|byte| **byte == b'0').count();
    let length = text[zeros..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    text[zeros..].split_at(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_ordered_as_the_manual_says() {
        let ascending = [
            "",
            ".",
            "..",
            ".A",
            ".Z",
            ".a~",
            ".a",
            ".b~",
            ".b",
            ".z",
            ".zz~",
            ".zz",
            ".zz.~1~",
            ".0",
            ".9",
            ".zz.0",
            ".\u{1}",
            "~",
            "0",
            "9",
            "A",
            "Z",
            "a~",
            "a",
            "a.b~",
            "a.b",
            "a.bc~",
            "a.bc",
            "a+",
            "a.",
            "a..a",
            "a.+",
            "b~",
            "b",
            "gcc-c++-10.fc9.tar.gz",
            "gcc-c++-10.8.12-0.7rc2.fc9.tar.bz2",
            "glibc-2-0.1.beta1.fc10.rpm",
            "glibc-common-5-0.2.beta2.fc9.ebuild",
            "glibc-common-5-0.2b.deb",
            "glibc-common-11b.ebuild",
            "glibc-common-11-0.6rc2.ebuild",
            "libstdc++-0.5.8.11-0.7rc2.fc10.tar.gz",
            "libstdc++-4a.fc8.tar.gz",
            "libstdc++-4.10.4.20040204svn.rpm",
            "libstdc++-devel-3.fc8.ebuild",
            "libstdc++-devel-3a.fc9.tar.gz",
            "libstdc++-devel-8.fc8.deb",
            "libstdc++-devel-8.6.2-0.4b.fc8",
            "nss_ldap-1-0.2b.fc9.tar.bz2",
            "nss_ldap-1-0.6rc2.fc8.tar.gz",
            "nss_ldap-1.0-0.1a.tar.gz",
            "nss_ldap-10beta1.fc8.tar.gz",
            "nss_ldap-10.11.8.6.20040204cvs.fc10.ebuild",
            "z",
            "zz~",
            "zz",
            "zz.~1~",
            "zz.0",
            "zz.0.txt",
            "\u{1}",
        ];
        for (i, a) in ascending.iter().enumerate() {
            for (j, b) in ascending.iter().enumerate() {
                assert_eq!(compare(a.as_bytes(), b.as_bytes()), i.cmp(&j), "{a:?} {b:?}");
                assert!(i >= j || prefix(a.as_bytes()) <= prefix(b.as_bytes()), "{a:?} {b:?}");
            }
        }
    }

    #[test]
    fn numbers_have_any_length_and_zeros_in_front_do_not_count() {
        let long = "9".repeat(100);
        assert_eq!(compare(long.as_bytes(), format!("1{long}").as_bytes()), Ordering::Less);
        assert_eq!(compare(b"a007", b"a7"), Ordering::Equal);
        assert_eq!(compare(b"a0", b"a"), Ordering::Equal);
        assert_eq!(compare(b"a1.0", b"a1.00"), Ordering::Equal);
        assert_eq!(prefix(b"a0"), prefix(b"a"));
    }

    #[test]
    fn ranks_are_in_the_order_of_weights() {
        let all = || (0..=255_u8).map(Some).chain([None]);
        for (a, b) in all().flat_map(|a| all().map(move |b| (a, b))) {
            let (a, b) = (a.as_ref(), b.as_ref());
            let end_or_digit = |byte: Option<&u8>| byte.is_none_or(u8::is_ascii_digit);
            if !(end_or_digit(a) && end_or_digit(b)) {
                assert_eq!(rank(a).cmp(&rank(b)), weight(a).cmp(&weight(b)), "{a:?} {b:?}");
            }
        }
    }

    #[test]
    fn endings_count_last() {
        assert_eq!(without_endings(b"a.tar.gz"), b"a");
        assert_eq!(without_endings(b"a.1.gz"), b"a.1");
        assert_eq!(without_endings(b"a.g-z"), b"a.g-z");
        assert_eq!(without_endings(b".bashrc"), b"");
        assert_eq!(without_endings(b"a..gz"), b"a.");
        assert_eq!(without_endings(b"a.~1~"), b"a");
        assert_eq!(without_endings(b"a."), b"a.");
        assert_eq!(compare(b"a1.txt", b"a1b.c"), Ordering::Less);
    }
}
