//! Making and destroying ZAP objects (OpenZFS: `zap_create_impl`, `zap_destroy`).

use crate::error::ZapError;
use crate::fat;
use crate::header::{Header, ZapFlags};
use crate::micro;
use crate::name::NormFlags;
use dmu::{Dnode, NewObject, Objset, Tx};
use ondisk::{ObjectId, ObjectType, SECTOR_BYTES};
use std::sync::Arc;

/// Properties of a ZAP object to be created.
#[derive(Clone, Copy, Debug)]
pub struct CreateOptions {
    /// Type of the object.
    pub object_type: ObjectType,
    /// Normalization of names.
    pub norm: NormFlags,
    /// Flags; any but none makes a fat ZAP at once.
    pub flags: ZapFlags,
    /// log2 of the block size of a ZAP with flags.
    pub block_shift: u32,
    /// Type of the bonus buffer.
    pub bonus_type: ObjectType,
    /// Bytes of the bonus buffer.
    pub bonus_len: usize,
    /// Dnode slots of 512 bytes; 0 takes the object set's default.
    pub slots: u8,
    /// The object number to take, when it must be a given one.
    pub claim: Option<ObjectId>,
}

impl CreateOptions {
    /// A plain micro ZAP.
    pub fn new(object_type: ObjectType) -> CreateOptions {
        CreateOptions {
            object_type,
            norm: NormFlags::NONE,
            flags: ZapFlags::NONE,
            block_shift: crate::header::FAT_BLOCK_SHIFT,
            bonus_type: ObjectType::NONE,
            bonus_len: 0,
            slots: 0,
            claim: None,
        }
    }
}

/// Makes an empty ZAP of type `object_type` (OpenZFS: `zap_create`).
pub fn create(objset: &Arc<Objset>, object_type: ObjectType, tx: &Tx) -> Result<ObjectId, ZapError> {
    create_with(objset, CreateOptions::new(object_type), tx)
}

/// Makes an empty ZAP (OpenZFS: `zap_create_impl`).
pub fn create_with(objset: &Arc<Objset>, options: CreateOptions, tx: &Tx) -> Result<ObjectId, ZapError> {
    let fat = options.flags != ZapFlags::NONE;
    if !(9..=24).contains(&options.block_shift) {
        return Err(ZapError::NotSupported);
    }
    let block_size = if fat { 1 << options.block_shift } else { SECTOR_BYTES };
    let new = NewObject {
        block_size,
        bonus_type: options.bonus_type,
        bonus_len: options.bonus_len,
        slots: options.slots,
        ..NewObject::new(options.object_type)
    };
    let dnode = match options.claim {
        Some(object) => objset.claim_object(object, new, tx)?,
        None => objset.allocate_object(new, tx)?,
    };
    // Odd, so never 0: a salt of 0 would hash nothing.
    let salt = objset.io().exec().random_u64() | 1;
    let made = if fat {
        let header = Header::new(salt, options.norm, options.flags, options.block_shift);
        fat::init(&dnode, &header, tx)
    } else {
        fat::modify(&dnode, 0, tx, |bytes| micro::init(bytes, salt, options.norm))
    };
    if let Err(error) = made {
        // Nothing names the object: it must not stay.
        objset.free_object(dnode.object(), tx)?;
        return Err(error);
    }
    Ok(dnode.object())
}

/// Makes the empty object `dnode` a micro ZAP without changing its type (OpenZFS: `mzap_create_impl`).
pub fn format(dnode: &Dnode, salt: u64, tx: &Tx) -> Result<(), ZapError> {
    fat::modify(dnode, 0, tx, |bytes| micro::init(bytes, salt | 1, NormFlags::NONE))
}

/// Frees a ZAP object (OpenZFS: `zap_destroy`).
pub fn destroy(objset: &Arc<Objset>, object: ObjectId, tx: &Tx) -> Result<(), ZapError> {
    Ok(objset.free_object(object, tx)?)
}
