//! The keys of a block: each is asked for once, and those that nobody asked for are notes.

use std::cell::RefCell;
use std::collections::BTreeSet;

use super::language::{Block, Located, Value};
use crate::drive::DriveError;

/// A block whose keys are being taken over.
pub(super) struct Keys<'b> {
    block: &'b Located<&'b Block>,
    asked: RefCell<BTreeSet<&'b str>>,
}

impl<'b> Keys<'b> {
    pub(super) fn new(block: &'b Located<&'b Block>) -> Keys<'b> {
        Keys {
            block,
            asked: RefCell::default(),
        }
    }

    /// The value of a key, if it is there.
    pub(super) fn get(&self, key: &str) -> Option<&'b Located<Value>> {
        let (name, value) = self.block.value.entries.iter().find(|(name, _)| name == key)?;
        self.asked.borrow_mut().insert(name);
        Some(value)
    }

    /// A number, if it is there.
    pub(super) fn maybe_number(&self, key: &str) -> Result<Option<f64>, DriveError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        match value.value {
            Value::Number(number) if number.is_finite() => Ok(Some(number)),
            _ => Err(value.error(Some(key), "expected a number".to_owned())),
        }
    }

    pub(super) fn number(&self, key: &str, default: f64) -> Result<f64, DriveError> {
        Ok(self.maybe_number(key)?.unwrap_or(default))
    }

    /// A whole number from 0 on, if it is there.
    pub(super) fn maybe_whole(&self, key: &str) -> Result<Option<u64>, DriveError> {
        let Some(number) = self.maybe_number(key)? else {
            return Ok(None);
        };
        if number < 0.0 || number.fract() != 0.0 || number > (1_u64 << 50) as f64 {
            return Err(self.wrong(key, format!("{number} is no whole number from 0 on")));
        }
        Ok(Some(number as u64))
    }

    pub(super) fn whole(&self, key: &str, default: u64) -> Result<u64, DriveError> {
        Ok(self.maybe_whole(key)?.unwrap_or(default))
    }

    pub(super) fn needed(&self, key: &str) -> Result<u64, DriveError> {
        self.maybe_whole(key)?.ok_or_else(|| self.missing(key))
    }

    pub(super) fn is(&self, key: &str, default: bool) -> Result<bool, DriveError> {
        Ok(self.whole(key, u64::from(default))? != 0)
    }

    pub(super) fn word(&self, key: &str) -> Result<Option<&'b str>, DriveError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        match &value.value {
            Value::Word(word) => Ok(Some(word)),
            _ => Err(value.error(Some(key), "expected a word".to_owned())),
        }
    }

    /// A list of numbers; empty where there is none.
    pub(super) fn numbers(&self, key: &str) -> Result<Vec<f64>, DriveError> {
        let Some(value) = self.get(key) else {
            return Ok(Vec::new());
        };
        let Value::List(values) = &value.value else {
            return Err(value.error(Some(key), "expected a list of numbers".to_owned()));
        };
        let number = |value: &Located<Value>| match value.value {
            Value::Number(number) if number.is_finite() => Ok(number),
            _ => Err(value.error(Some(key), "expected a number".to_owned())),
        };
        values.iter().map(number).collect()
    }

    /// A list of whole numbers; empty where there is none.
    pub(super) fn wholes(&self, key: &str) -> Result<Vec<u64>, DriveError> {
        let numbers = self.numbers(key)?;
        match numbers
            .iter()
            .find(|number| **number < 0.0 || number.fract() != 0.0 || **number > (1_u64 << 50) as f64)
        {
            Some(number) => Err(self.wrong(key, format!("{number} is no whole number from 0 on"))),
            None => Ok(numbers.into_iter().map(|number| number as u64).collect()),
        }
    }

    /// What is wrong with a key.
    pub(super) fn wrong(&self, key: &str, reason: String) -> DriveError {
        match self.get(key) {
            Some(value) => value.error(Some(key), reason),
            None => self.block.error(Some(key), reason),
        }
    }

    pub(super) fn missing(&self, key: &str) -> DriveError {
        let reason = format!("`{}` has no such key, and needs it", self.block.value.kind);
        self.block.error(Some(key), reason)
    }

    /// Says of a key that it is not taken over, unless it has the value with which the model does what the drive does.
    pub(super) fn note(&self, notes: &mut Vec<String>, key: &str, neutral: f64, why: &str) -> Result<(), DriveError> {
        if let Some(number) = self.maybe_number(key)?.filter(|&number| number != neutral) {
            notes.push(format!("`{key}` = {number}: {why}"));
        }
        Ok(())
    }

    /// Keys of a block that mean nothing to a drive alone.
    pub(super) fn skip(&self, keys: &[&str]) {
        for key in keys {
            let _ = self.get(key);
        }
    }

    /// Notes what nobody asked for.
    pub(super) fn finish(self, notes: &mut Vec<String>) {
        let asked = self.asked.borrow();
        for (key, value) in &self.block.value.entries {
            if !asked.contains(key.as_str()) {
                notes.push(format!("`{key}` ({}:{}) is not known here", value.file, value.line));
            }
        }
    }
}
