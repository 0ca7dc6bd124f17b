//! Keys and records: what objects have that are indices (Lustre: `dt_index_operations`).
//!
//! Keys have 1 to 255 bytes, none of which is zero; records 1 to 1024. They are entries of a ZAP: names, and arrays of bytes.

use crate::OsdError;
use crate::object::Object;
use dmu::Tx;
use zap::{Attribute, Value, Zap, ZapError};
use zpl::ZplError;

/// Bytes of the largest record.
const RECORD_BYTES_MAX: usize = 1024;
/// Bytes of the longest key.
const KEY_BYTES_MAX: usize = 255;

/// Keys with their records, in the order of the index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entries {
    /// Keys and records.
    pub entries: Vec<(Vec<u8>, Vec<u8>)>,
    /// Cookie of what comes next; None at the end. It stays good while keys come and go.
    pub next: Option<u64>,
}

fn check(key: &[u8]) -> Result<(), OsdError> {
    match key.len() {
        1..=KEY_BYTES_MAX if !key.contains(&0) => Ok(()),
        _ => Err(OsdError::Store(ZplError::Invalid)),
    }
}

/// Bytes of a record.
fn record(value: Value) -> Result<Vec<u8>, OsdError> {
    if let Value::U8(bytes) = value { Ok(bytes) } else { Err(OsdError::Store(ZplError::CORRUPT)) }
}

impl Object {
    fn keys(&self) -> Result<Zap, OsdError> {
        Ok(Zap::open(self.there_as(true)?.dnode().clone())?)
    }

    /// Record of a key; None when there is no such key.
    ///
    /// # Errors
    /// [`OsdError::NotFound`] without the object, [`OsdError::WrongKind`] for one with data, [`ZplError::Invalid`] for what no key can be, those of
    /// reading it.
    pub fn lookup(&self, key: &[u8]) -> Result<Option<Vec<u8>>, OsdError> {
        check(key)?;
        self.keys()?.try_lookup(key)?.map(record).transpose()
    }

    /// Lists up to `count` keys from a cookie on; 0 begins.
    ///
    /// # Errors
    /// As of [`Object::lookup`].
    pub fn entries(&self, from: u64, count: usize) -> Result<Entries, OsdError> {
        let zap = self.keys()?;
        let mut cursor = zap.cursor_at(from);
        let mut found = Entries::default();
        let mut entry = Attribute::default();
        while cursor.next_into(&mut entry)? {
            match zap.lookup(&entry.name) {
                Ok(value) => found.entries.push((entry.name.clone(), record(value)?)),
                // It went meanwhile.
                Err(ZapError::NotFound) => {}
                Err(error) => return Err(error.into()),
            }
            if found.entries.len() >= count {
                found.next = Some(cursor.serialize());
                break;
            }
        }
        Ok(found)
    }

    pub(crate) fn insert(&self, key: &[u8], value: &[u8], tx: &Tx) -> Result<(), OsdError> {
        check(key)?;
        if value.is_empty() || value.len() > RECORD_BYTES_MAX {
            return Err(OsdError::Store(ZplError::Invalid));
        }
        Ok(self.keys()?.add(key, &Value::U8(value.to_vec()), tx)?)
    }

    pub(crate) fn remove(&self, key: &[u8], tx: &Tx) -> Result<(), OsdError> {
        check(key)?;
        Ok(self.keys()?.remove(key, tx)?)
    }
}
