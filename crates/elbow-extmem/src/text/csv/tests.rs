//! Tables that are, and texts that are none.

use super::*;

/// Gives so many bytes at once.
struct Slowly<'a>(&'a [u8], usize);

impl Read for Slowly<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.1.min(buffer.len());
        self.0.read(&mut buffer[..length])
    }
}

fn rows(text: &[u8], step: usize) -> io::Result<(Header, Vec<u8>)> {
    let (header, mut rows) = CsvRows::open(Slowly(text, step), b',')?;
    let mut all = Vec::new();
    rows.read_to_end(&mut all)?;
    Ok((header, all))
}

fn error(text: &[u8]) -> CsvError {
    let of = |step| {
        let error = rows(text, step).expect_err("no table");
        let inner = error.into_inner().expect("a reason");
        *inner.downcast::<CsvError>().expect("a reason of a table")
    };
    let error = of(1);
    assert_eq!(of(4096), error);
    error
}

#[test]
fn rows_are_kept_and_their_ends_marked() {
    for (text, expected) in [
        (&b"a,b\n1,2\n3,4\n"[..], &b"1,2\x003,4\0"[..]),
        (
            b"a,b\r\n1,\"x\r\ny\"\r\n\"\"\"\",\r\n",
            b"1,\"x\r\ny\"\r\0\"\"\"\",\r\0",
        ),
        (b"a\n\"\n\n\"\n\nb", b"\"\n\n\"\0\0b\0"),
        (b"a,b\r\n1,2", b"1,2\r\0"),
        (b"a,b\r\n1,\"2\"", b"1,\"2\"\r\0"),
        (b"a,b\r\n1,2\r", b"1,2\r\0"),
        (b"a,b\n", b""),
        (b"a,b", b""),
        (b"\xef\xbb\xbf\"a\",b\n\"1\",2\n", b"\"1\",2\0"),
    ] {
        for step in [1, 2, 3, 7, 10_000] {
            let (header, found) = rows(text, step).expect("a table");
            assert_eq!(found, expected, "{:?} by {step}", String::from_utf8_lossy(text));
            assert_eq!(header.names()[0], "a");
        }
    }
}

#[test]
fn what_is_no_table_is_told_with_its_line() {
    assert_eq!(error(b""), CsvError::NoHeader);
    assert_eq!(error(b"a,b\n1,2\n\"x\n\n,3\n"), CsvError::Unclosed { line: 3 });
    assert_eq!(error(b"a,\"b\n\n"), CsvError::Unclosed { line: 1 });
    assert_eq!(
        error(b"a,b\n1,\"2\"x\n"),
        CsvError::BehindQuote {
            line: 2,
            field: 2,
            found: 'x'
        }
    );
    assert_eq!(
        error(b"a,b\n\n1,2\n"),
        CsvError::Fields {
            line: 2,
            found: 1,
            expected: 2
        }
    );
    assert_eq!(
        error(b"a,b\n\"1\n2\",2\n3\n"),
        CsvError::Fields {
            line: 4,
            found: 1,
            expected: 2
        }
    );
    assert_eq!(
        error(b"a,b\n1,2\n1,2,3"),
        CsvError::Fields {
            line: 3,
            found: 3,
            expected: 2
        }
    );
    assert_eq!(error(b"a,b\n1,5\" disk\n"), CsvError::QuoteInside { line: 2, field: 2 });
    assert_eq!(error(b"a,b\n1,2\nxyz\0,2\n"), CsvError::Nul { line: 3 });
    assert_eq!(error(&[b'a'; HEADER_BYTES_MAX + HEADER_STEP]), CsvError::LongHeader);
}

/// Names with anything in them, and the fields of rows, as a reader that knows the format finds them.
#[test]
fn fields_are_those_that_others_find() {
    let mut state = 7_u64;
    let mut draw = |below: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    for _ in 0..500 {
        let columns = 1 + draw(4);
        let mut content = || -> String {
            (0..draw(5))
                .map(|_| ['a', ',', '"', '\n', ' ', 'é'][draw(6) as usize])
                .collect()
        };
        let table: Vec<Vec<String>> = (0..5).map(|_| (0..columns).map(|_| content()).collect()).collect();
        let mut writer = csv::WriterBuilder::new()
            .quote_style(csv::QuoteStyle::Always)
            .from_writer(Vec::new());
        table.iter().for_each(|row| writer.write_record(row).expect("memory"));
        let text = writer.into_inner().expect("memory");
        let (header, found) = rows(&text, 5).expect("a table");
        assert_eq!(header.names(), table[0]);
        let found: Vec<&[u8]> = found.split(|byte| *byte == ROW_END).collect();
        for (row, expected) in found.iter().zip(&table[1..]) {
            for (number, expected) in expected.iter().enumerate() {
                let content = String::from_utf8_lossy(&row[field(row, b',', number)]).replace("\"\"", "\"");
                assert_eq!(content, *expected, "{table:?}");
            }
        }
        assert_eq!(found.len(), 5);
    }
}

#[test]
fn a_field_behind_the_last_is_empty() {
    assert_eq!(field(b"a,b", b',', 2), 3..3);
    assert_eq!(field(b"", b',', 0), 0..0);
    assert_eq!(field(b"a,\"b\"\r", b',', 1), 3..4);
    assert_eq!(field(b"a,b\r", b',', 1), 2..3);
}
