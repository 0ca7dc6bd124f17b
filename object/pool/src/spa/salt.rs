//! The salt of a pool's keyed checksums (skein, edonr, blake3), as the object directory of the MOS keeps it (OpenZFS:
//! `DMU_POOL_CHECKSUM_SALT`, `zio_cksum_salt_t`). The MOS itself never has such checksums, so that it can be read first.

use super::features::{DIRECTORY, Features};
use crate::PoolError;
use dmu::{Objset, Tx};
use exec::Exec;
use kernels::checksum::{SALT_BYTES, Salt};
use std::sync::Arc;
use zap::{Value, Zap};

const ENTRY: &str = "org.illumos:checksum_salt";
/// Features whose checksums are keyed with the salt.
const SALTED: [&str; 3] = [dsl::features::SKEIN, dsl::features::EDONR, dsl::features::BLAKE3];

/// State of a pool's salt on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StoredSalt {
    /// The salt.
    Known(Arc<Salt>),
    /// No entry, as in pools that software from before these checksums wrote.
    Missing,
    /// An entry that is no salt.
    Damaged,
}

impl StoredSalt {
    /// Reads the entry of the object directory.
    pub fn read(mos: &Arc<Objset>) -> Result<StoredSalt, PoolError> {
        Ok(match Zap::hold(mos, DIRECTORY)?.try_lookup(ENTRY)? {
            None => StoredSalt::Missing,
            Some(Value::U8(bytes)) => match <[u8; SALT_BYTES]>::try_from(bytes) {
                Ok(bytes) => StoredSalt::Known(Arc::new(Salt::new(bytes))),
                Err(_) => StoredSalt::Damaged,
            },
            Some(_) => StoredSalt::Damaged,
        })
    }

    /// The salt, where there is one.
    pub fn known(&self) -> Option<&Arc<Salt>> {
        if let StoredSalt::Known(salt) = self { Some(salt) } else { None }
    }

    /// Refuses to write a pool in which blocks have checksums that nobody can compute: what is read of it could not be told from what is damaged.
    pub fn check(&self, features: &Features) -> Result<(), PoolError> {
        match self {
            StoredSalt::Damaged => Err(PoolError::Salt { is_missing: false }),
            StoredSalt::Missing if SALTED.iter().any(|guid| features.refs(guid) != 0) => Err(PoolError::Salt { is_missing: true }),
            _ => Ok(()),
        }
    }
}

/// A salt that no pool has yet.
pub(crate) fn fresh(exec: &Exec) -> Arc<Salt> {
    let words: [[u8; 8]; SALT_BYTES / 8] = std::array::from_fn(|_| exec.random_u64().to_le_bytes());
    let mut bytes = [0; SALT_BYTES];
    bytes.copy_from_slice(words.as_flattened());
    Arc::new(Salt::new(bytes))
}

/// Writes the salt of a pool that has none.
pub(crate) fn write(mos: &Arc<Objset>, salt: &Salt, tx: &Tx) -> Result<(), PoolError> {
    Ok(Zap::hold(mos, DIRECTORY)?.add(ENTRY, &Value::U8(salt.bytes().to_vec()), tx)?)
}
