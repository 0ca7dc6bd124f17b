//! ZAPs used as sets and maps of integers: names are the integers in hexadecimal (OpenZFS: `zap_add_int` and friends).

use crate::{Zap, ZapError};
use dmu::Tx;

fn name(key: u64) -> String {
    format!("{key:x}")
}

/// The integer that a name of such a ZAP stands for.
pub fn parse_int_name(name: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(name).ok()?;
    u64::from_str_radix(text, 16).ok()
}

impl Zap {
    /// Adds `key` to a set: its value is itself.
    pub fn add_int(&self, key: u64, tx: &Tx) -> Result<(), ZapError> {
        self.add_u64(name(key), key, tx)
    }
    /// Removes the entry of `key`.
    pub fn remove_int(&self, key: u64, tx: &Tx) -> Result<(), ZapError> {
        self.remove(name(key), tx)
    }
    /// True when `key` is in the set.
    pub fn contains_int(&self, key: u64) -> Result<bool, ZapError> {
        self.contains(name(key))
    }
    /// Maps `key` to `value`; fails when it is mapped.
    pub fn add_int_key(&self, key: u64, value: u64, tx: &Tx) -> Result<(), ZapError> {
        self.add_u64(name(key), value, tx)
    }
    /// Maps `key` to `value`.
    pub fn update_int_key(&self, key: u64, value: u64, tx: &Tx) -> Result<(), ZapError> {
        self.update_u64(name(key), value, tx)
    }
    /// Value that `key` maps to.
    pub fn lookup_int_key(&self, key: u64) -> Result<u64, ZapError> {
        self.lookup_u64(name(key))
    }
    /// Adds `delta` to what `key` maps to; see [`Zap::increment`].
    pub fn increment_int(&self, key: u64, delta: i64, tx: &Tx) -> Result<u64, ZapError> {
        self.increment(name(key), delta, tx)
    }
}
