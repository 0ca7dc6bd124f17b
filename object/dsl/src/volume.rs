//! Volumes: an object set with one object of data and one of properties (OpenZFS: `zvol.c`).
//!
//! Object 1 is the data, in blocks of `volblocksize`, which stands nowhere else; object 2 is a ZAP with the one entry `size`.

use crate::DslError;
use dmu::{Dnode, NewObject, Objset, Tx};
use ondisk::{ObjectId, ObjectType, ObjsetType};
use std::sync::Arc;
use zap::{CreateOptions, Zap};

/// The object with the data (OpenZFS: `ZVOL_OBJ`).
const DATA: ObjectId = ObjectId(1);
/// The object with the properties (OpenZFS: `ZVOL_ZAP_OBJ`).
const PROPERTIES: ObjectId = ObjectId(2);
const SIZE: &str = "size";
/// Block size in bytes of a volume that is made without one, where the vdevs have no reason for a larger one (OpenZFS:
/// `ZVOL_DEFAULT_BLOCKSIZE`).
pub const DEFAULT_BLOCK_BYTES: u64 = 16 << 10;

/// Fills the new object set of a volume (OpenZFS: `zvol_create_cb`); both sizes in bytes.
///
/// # Errors
/// Those of the object layer; [`DslError::BadValue`] when the size is not a multiple of the block size, or nothing.
pub fn create(objset: &Arc<Objset>, size: u64, block_size: u64, tx: &Tx) -> Result<(), DslError> {
    check_size(size, block_size)?;
    let block_size = usize::try_from(block_size).map_err(|_| DslError::BadValue)?;
    objset.claim_object(DATA, NewObject { block_size, ..NewObject::new(ObjectType::ZVOL) }, tx)?;
    zap::create_with(objset, CreateOptions { claim: Some(PROPERTIES), ..CreateOptions::new(ObjectType::ZVOL_PROP) }, tx)?;
    Ok(Zap::hold(objset, PROPERTIES)?.update_u64(SIZE, size, tx)?)
}

/// Largest size in bytes of a volume: what a file of Linux, an offset of 63 bits, reaches.
pub const SIZE_MAX: u64 = i64::MAX as u64;

/// Whole blocks, at least one, and no more than anybody can address (OpenZFS: `zvol_check_volsize`).
pub(crate) fn check_size(size: u64, block_size: u64) -> Result<(), DslError> {
    let is_whole = size != 0 && block_size != 0 && size.is_multiple_of(block_size);
    if is_whole && size <= SIZE_MAX { Ok(()) } else { Err(DslError::BadValue) }
}

/// The objects with the properties and the data.
pub(crate) fn objects(objset: &Arc<Objset>) -> Result<(Zap, Arc<Dnode>), DslError> {
    Ok((Zap::hold(objset, PROPERTIES)?, objset.hold(DATA)?))
}

/// Writes another size, in bytes, that [`check_size`] found possible.
pub(crate) fn set_size(properties: &Zap, bytes: u64, tx: &Tx) -> Result<(), DslError> {
    Ok(properties.update_u64(SIZE, bytes, tx)?)
}

/// Object with the data of a volume.
///
/// # Errors
/// As of [`size`].
pub fn data(objset: &Arc<Objset>) -> Result<Arc<Dnode>, DslError> {
    if objset.kind() != ObjsetType::ZVOL {
        return Err(DslError::BadProperty);
    }
    Ok(objset.hold(DATA)?)
}

/// Bytes of a volume.
///
/// # Errors
/// Those of reading it; [`DslError::BadProperty`] for what is no volume.
pub fn size(objset: &Arc<Objset>) -> Result<u64, DslError> {
    if objset.kind() != ObjsetType::ZVOL {
        return Err(DslError::BadProperty);
    }
    Ok(Zap::hold(objset, PROPERTIES)?.lookup_u64(SIZE)?)
}

/// Bytes of a volume's blocks.
///
/// # Errors
/// As of [`size`].
pub fn block_size(objset: &Arc<Objset>) -> Result<u64, DslError> {
    Ok(data(objset)?.info()?.block_size as u64)
}
