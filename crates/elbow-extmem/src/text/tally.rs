//! How often each line is there: of equal lines the first, behind their number.
//!
//! Lines come in order, so that equal ones stand one behind the other. Only the last merge counts; until then all of them stay.

use super::TextOrder;
use super::options::CountForm;

/// Takes lines in order, and hands on one of each with its count.
pub(super) struct Tally<'a, F> {
    order: &'a TextOrder,
    form: CountForm,
    first: Vec<u8>,
    count: u64,
    take: F,
    /// What is handed on.
    counted: Vec<u8>,
}

impl<'a, F: FnMut(&[u8]) -> bool> Tally<'a, F> {
    pub(super) fn new(order: &'a TextOrder, form: CountForm, take: F) -> Self {
        Self {
            order,
            form,
            first: Vec::new(),
            count: 0,
            take,
            counted: Vec::new(),
        }
    }

    /// The next line; `false` when no more are wanted.
    pub(super) fn push(&mut self, line: &[u8]) -> bool {
        if self.count > 0 && self.order.compare(&self.first, line).is_eq() {
            self.count += 1;
            return true;
        }
        let is_wanted = self.hand_on();
        self.first.clear();
        self.first.extend_from_slice(line);
        self.count = 1;
        is_wanted
    }

    /// The last one.
    pub(super) fn finish(mut self) {
        self.hand_on();
    }

    fn hand_on(&mut self) -> bool {
        if self.count == 0 {
            return true;
        }
        let number = self.form.shown(self.count);
        self.counted.clear();
        self.counted.extend_from_slice(number.as_bytes());
        self.counted.extend_from_slice(&self.first);
        (self.take)(&self.counted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::{KeySpec, OrderOptions};

    #[test]
    fn equal_lines_are_counted_and_the_first_stays() {
        let order = OrderOptions {
            keys: vec![KeySpec::parse("1.1,1.1").expect("a key")],
            unique: true,
            count: true,
            ..OrderOptions::default()
        };
        let order = TextOrder::new(&order).expect("an order");
        let of = |lines: &[&str], form| {
            let mut all = String::new();
            let mut tally = Tally::new(&order, form, |line: &[u8]| {
                all += &String::from_utf8_lossy(line);
                all += "|";
                true
            });
            assert!(lines.iter().all(|line| tally.push(line.as_bytes())));
            tally.finish();
            all
        };
        let lines = ["a1", "a2", "b1", "c1", "c2", "c3"];
        assert_eq!(of(&lines, CountForm::Padded), "      2 a1|      1 b1|      3 c1|");
        assert_eq!(of(&lines, CountForm::Field(b';')), "2;a1|1;b1|3;c1|");
        assert_eq!(of(&[], CountForm::Padded), "");
    }
}
