//! The encoding: what was written comes back, and nothing else is taken.

mod support;

use elbow_ranges::encoding::{DecodeError, ENVELOPE_BYTES, Reader, Writer, open_sealed, seal};
use elbow_ranges::{Footprint, RangeSet};
use rand::Rng;
use rand::rngs::StdRng;
use support::{base, for_each_seed, range};

const MAGIC: [u8; 8] = *b"ELBOWTST";

#[derive(Clone, Debug, PartialEq)]
enum Value {
    Byte(u8),
    Truth(bool),
    Number(u64),
    Signed(i64),
    Bytes(Vec<u8>),
    Ranges(RangeSet),
}

/// Numbers of all magnitudes, edges included.
fn number(rng: &mut StdRng) -> u64 {
    match rng.random_range(0..4) {
        0 => [0, 1, 127, 128, u64::from(u32::MAX), u64::MAX][rng.random_range(0..6)],
        _ => rng.random::<u64>() >> rng.random_range(0..64),
    }
}

fn ranges(rng: &mut StdRng) -> RangeSet {
    let base = base(rng, 1000);
    (0..rng.random_range(0..6))
        .map(|_| range(rng, 1000))
        .map(|(start, end)| base + start..base + end)
        .collect()
}

fn value(rng: &mut StdRng) -> Value {
    match rng.random_range(0..6) {
        0 => Value::Byte(rng.random()),
        1 => Value::Truth(rng.random()),
        2 => Value::Number(number(rng)),
        3 => Value::Signed(number(rng) as i64),
        4 => Value::Bytes((0..rng.random_range(0..40)).map(|_| rng.random()).collect()),
        _ => Value::Ranges(ranges(rng)),
    }
}

fn write(writer: &mut Writer, value: &Value) {
    match value {
        Value::Byte(byte) => writer.u8(*byte),
        Value::Truth(truth) => writer.bool(*truth),
        Value::Number(number) => writer.varint(*number),
        Value::Signed(number) => writer.signed(*number),
        Value::Bytes(bytes) => writer.bytes(bytes),
        Value::Ranges(set) => writer.ranges(set),
    }
}

/// Reads a value of the same type as `like`.
fn read(reader: &mut Reader<'_>, like: &Value) -> Result<Value, DecodeError> {
    Ok(match like {
        Value::Byte(_) => Value::Byte(reader.u8()?),
        Value::Truth(_) => Value::Truth(reader.bool()?),
        Value::Number(_) => Value::Number(reader.varint()?),
        Value::Signed(_) => Value::Signed(reader.signed()?),
        Value::Bytes(_) => Value::Bytes(reader.bytes()?.to_vec()),
        Value::Ranges(_) => Value::Ranges(reader.ranges()?),
    })
}

fn read_all(bytes: &[u8], like: &[Value]) -> Result<Vec<Value>, DecodeError> {
    let mut reader = Reader::new(bytes);
    let values = like
        .iter()
        .map(|value| read(&mut reader, value))
        .collect::<Result<_, _>>()?;
    reader.finish()?;
    Ok(values)
}

fn written(values: &[Value]) -> Vec<u8> {
    let mut writer = Writer::new();
    values.iter().for_each(|value| write(&mut writer, value));
    writer.finish()
}

fn values(rng: &mut StdRng) -> Vec<Value> {
    (0..rng.random_range(1..12)).map(|_| value(rng)).collect()
}

#[test]
fn what_was_written_comes_back() {
    for_each_seed(|rng| {
        let values = values(rng);
        assert_eq!(read_all(&written(&values), &values).unwrap(), values);
    });
}

#[test]
fn every_truncation_and_every_addition_is_noticed() {
    for_each_seed(|rng| {
        let values = values(rng);
        let mut bytes = written(&values);
        for length in 0..bytes.len() {
            let error = read_all(&bytes[..length], &values).unwrap_err();
            assert!(
                matches!(error, DecodeError::Truncated { at, left, .. } if at + left == length),
                "{error}"
            );
        }
        bytes.push(0);
        let at = bytes.len() - 1;
        assert_eq!(
            read_all(&bytes, &values).unwrap_err(),
            DecodeError::Trailing { at, count: 1 }
        );
    });
}

/// Random bytes are either refused or exactly what an encoder would have written for what they decode to.
#[test]
fn there_is_one_form_of_each_value() {
    for_each_seed(|rng| {
        for _ in 0..50 {
            let like = value(rng);
            let length = rng.random_range(0..24);
            let small = rng.random_range(1..=255);
            let bytes: Vec<u8> = (0..length).map(|_| rng.random_range(0..=small)).collect();
            let mut reader = Reader::new(&bytes);
            if let Ok(value) = read(&mut reader, &like) {
                assert_eq!(written(&[value]), bytes[..reader.offset()]);
            }
        }
    });
}

#[test]
fn damaged_values_never_panic() {
    for_each_seed(|rng| {
        let values = values(rng);
        let mut bytes = written(&values);
        for _ in 0..3 {
            let at = rng.random_range(0..bytes.len());
            bytes[at] = rng.random();
        }
        let _either = read_all(&bytes, &values);
    });
}

#[test]
fn numbers_are_refused_that_no_encoder_writes() {
    let refused = |bytes: &[u8], expected| match Reader::new(bytes).varint() {
        Err(DecodeError::BadValue { at: 0, what }) => assert_eq!(what, expected, "{bytes:x?}"),
        other => panic!("{bytes:x?} gave {other:?}"),
    };
    refused(&[0x80, 0x00], "a number is longer than it needs to be");
    refused(&[0xff, 0x80, 0x00], "a number is longer than it needs to be");
    refused(
        &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02],
        "a number does not fit 64 bits",
    );
    refused(&[0x80; 11], "a number does not fit 64 bits");
    let most = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
    assert_eq!(Reader::new(&most).varint().unwrap(), u64::MAX);
    assert!(matches!(
        Reader::new(&[2]).bool(),
        Err(DecodeError::BadValue { at: 0, .. })
    ));
    assert!(matches!(
        Reader::new(&most).u32(),
        Err(DecodeError::BadValue { at: 0, .. })
    ));
    assert_eq!(Reader::new(&[7]).u32().unwrap(), 7);
}

/// Distance and length of a range are written and read at once where both are short.
#[test]
fn numbers_of_a_list_have_the_form_of_single_numbers() {
    let edges = [
        1,
        127,
        128,
        16_383,
        16_384,
        1 << 21,
        (1 << 28) - 1,
        1 << 28,
        1 << 49,
        1 << 60,
    ];
    for distance in edges {
        for length in edges {
            // The second range keeps the list from being one extent.
            let list = [(distance, length), (distance + length + 3, 1)];
            let footprint = Footprint::from_list(list).expect("a list");
            let (mut of_list, mut singly) = (Writer::new(), Writer::new());
            footprint.encode(&mut of_list);
            singly.u8(0x12);
            for number in [2, distance, length, 3, 1, 0] {
                singly.varint(number);
            }
            let bytes = of_list.finish();
            assert_eq!(bytes, singly.finish(), "{distance} {length}");
            assert_eq!(Footprint::decode(&mut Reader::new(&bytes)), Ok(footprint));
        }
    }
}

/// Wherever they stand, and whatever follows.
#[test]
fn numbers_of_a_list_are_refused_that_are_longer_than_they_need_to_be() {
    for pair in [&[0x80, 0x00, 0x05][..], &[0x05, 0x85, 0x00], &[0x81, 0x80, 0x00, 0x05]] {
        for padding in [0, 8] {
            let mut bytes = vec![0x12, 2];
            bytes.extend_from_slice(pair);
            bytes.extend_from_slice(&[3, 1, 0]);
            bytes.resize(bytes.len() + padding, 0x01);
            let found = Footprint::decode(&mut Reader::new(&bytes));
            let what = "a number is longer than it needs to be";
            assert!(
                matches!(found, Err(DecodeError::BadValue { what: said, .. }) if said == what),
                "{pair:x?} {found:?}"
            );
        }
    }
}

#[test]
fn ranges_are_refused_that_no_set_has() {
    let refused = |numbers: &[u64], at_expected, expected| {
        let bytes = written(&numbers.iter().map(|number| Value::Number(*number)).collect::<Vec<_>>());
        match Reader::new(&bytes).ranges() {
            Err(DecodeError::BadValue { at, what }) => assert_eq!((at, what), (at_expected, expected), "{numbers:?}"),
            other => panic!("{numbers:?} gave {other:?}"),
        }
    };
    refused(&[1, 5, 0], 1, "a range is empty");
    refused(&[2, 5, 1, 0, 1], 3, "two ranges touch");
    refused(&[1, u64::MAX, 1], 1, "a range ends past 2^64");
    refused(&[2, 5, 1, u64::MAX, 1], 3, "a range begins past 2^64");
}

/// A length that claims more than there is must not become an allocation.
#[test]
fn claims_are_bounded_by_what_is_left() {
    let mut writer = Writer::new();
    writer.varint(u64::MAX);
    let bytes = writer.finish();
    let truncated = DecodeError::Truncated {
        at: 10,
        needed: u64::MAX,
        left: 0,
    };
    assert_eq!(Reader::new(&bytes).bytes().unwrap_err(), truncated);
    assert_eq!(Reader::new(&bytes).ranges().unwrap_err(), truncated);
    assert_eq!(Reader::new(&bytes).count(1).unwrap_err(), truncated);
    assert_eq!(Reader::new(&[3, 0, 0, 0]).count(1).unwrap(), 3);
    let error = Reader::new(&[3, 0, 0, 0]).count(2).unwrap_err();
    assert_eq!(
        error.to_string(),
        "truncated at byte 1: 6 more bytes were expected, 3 are left"
    );
}

#[test]
fn a_sealed_body_comes_back_with_its_version() {
    for body in [&b""[..], b"x", &[7; 1000]] {
        let sealed = seal(MAGIC, 3, body);
        assert_eq!(sealed.len(), ENVELOPE_BYTES + body.len());
        assert_eq!(open_sealed(MAGIC, 1..=3, &sealed).unwrap(), (3, body));
    }
}

#[test]
fn every_damage_to_a_sealed_body_is_noticed_and_named() {
    let sealed = seal(MAGIC, 1, b"some body");
    let open = |bytes: &[u8]| open_sealed(MAGIC, 1..=1, bytes).map(drop);
    for length in 0..sealed.len() {
        let error = open(&sealed[..length]).unwrap_err();
        assert!(
            matches!(error, DecodeError::Truncated { .. }),
            "{length} bytes: {error}"
        );
    }
    for bit in 0..sealed.len() * 8 {
        let mut damaged = sealed.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        let error = open(&damaged).unwrap_err();
        let named = match bit / 8 {
            0..8 => matches!(error, DecodeError::BadMagic { .. }),
            8..10 => matches!(error, DecodeError::UnknownVersion { .. }),
            10..18 => matches!(error, DecodeError::Truncated { .. } | DecodeError::Checksum { .. }),
            _ => matches!(error, DecodeError::Checksum { .. }),
        };
        assert!(named, "bit {bit}: {error}");
    }
    let longer = [&sealed[..], b"more"].concat();
    assert_eq!(
        open(&longer).unwrap_err(),
        DecodeError::Trailing {
            at: sealed.len(),
            count: 4
        }
    );
    let error = open_sealed(*b"ELBOWXYZ", 1..=1, &sealed).unwrap_err();
    assert_eq!(
        error.to_string(),
        r#"bad magic at byte 0: expected "ELBOWXYZ", found "ELBOWTST""#
    );
}
