//! Access control lists as text, and as the attributes that the kernel takes (version 2 of `linux/posix_acl_xattr.h`).

use super::word::{Name, Which};

/// The attribute of a list.
pub(super) fn key(which: Which) -> &'static str {
    match which {
        Which::Access => "system.posix_acl_access",
        Which::Default => "system.posix_acl_default",
    }
}

/// The value of a list like `u::rwx,u1001:r--,g::r-x,m::r-x,o::---`; `None` when it is none. The order is kept: the kernel judges it.
pub(super) fn encode(entries: &Name) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(&entries.0).ok()?;
    let mut value = 2u32.to_le_bytes().to_vec();
    for entry in text.split(',').filter(|entry| !entry.is_empty()) {
        let (who, rights) = entry.rsplit_once(':')?;
        let (tag, id) = tag(who.trim_end_matches(':'))?;
        let bit = |letter, bit| if rights.contains(letter) { bit } else { 0u16 };
        let bits = bit('r', 4) | bit('w', 2) | bit('x', 1);
        value.extend(tag.to_le_bytes());
        value.extend(bits.to_le_bytes());
        value.extend(id.to_le_bytes());
    }
    Some(value)
}

/// The tag and the id of `u`, `u1001`, `g`, `g2000`, `m` or `o`.
fn tag(who: &str) -> Option<(u16, u32)> {
    const NOBODY: u32 = u32::MAX;
    Some(match who {
        "u" => (0x01, NOBODY),
        "g" => (0x04, NOBODY),
        "m" => (0x10, NOBODY),
        "o" => (0x20, NOBODY),
        _ => {
            let (kind, id) = who.split_at_checked(1)?;
            let tag = match kind {
                "u" => 0x02,
                "g" => 0x08,
                _ => return None,
            };
            (tag, id.parse().ok()?)
        }
    })
}

/// A value as text again; `None` when it is none, which is then shown as bytes.
pub(super) fn decode(value: &[u8]) -> Option<String> {
    let (version, entries) = value.split_first_chunk::<4>()?;
    let (entries, rest) = entries.as_chunks::<8>();
    if *version != 2u32.to_le_bytes() || !rest.is_empty() {
        return None;
    }
    let shown: Option<Vec<String>> = entries.iter().map(show).collect();
    Some(shown?.join(","))
}

fn show(entry: &[u8; 8]) -> Option<String> {
    let [tag_low, tag_high, low, high, id @ ..] = *entry;
    let (tag, bits, id) = (
        u16::from_le_bytes([tag_low, tag_high]),
        u16::from_le_bytes([low, high]),
        u32::from_le_bytes(id),
    );
    let who = match tag {
        0x01 => "u:".to_owned(),
        0x02 => format!("u{id}"),
        0x04 => "g:".to_owned(),
        0x08 => format!("g{id}"),
        0x10 => "m:".to_owned(),
        0x20 => "o:".to_owned(),
        _ => return None,
    };
    let right = |bit, letter| if bits & bit != 0 { letter } else { '-' };
    Some(format!("{who}:{}{}{}", right(4, 'r'), right(2, 'w'), right(1, 'x')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_reads_back_as_it_was() {
        let text = "u::rwx,u1001:r--,g::r-x,g2000:-w-,m::r-x,o::---";
        let value = encode(&Name::of(text)).expect("a list");
        assert_eq!(value.len(), 4 + 6 * 8);
        assert_eq!(decode(&value).as_deref(), Some(text));
        assert_eq!(encode(&Name::of("x::rwx")), None);
        assert_eq!(decode(b"abc"), None);
    }
}
