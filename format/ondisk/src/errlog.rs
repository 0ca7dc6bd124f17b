//! The persistent error log (OpenZFS: `spa_errlog.c`): which blocks were found damaged, as names in ZAPs.
//!
//! Without `head_errlog` one ZAP has a name per block; with it, a ZAP maps each head dataset to a ZAP of names with birth times.

use crate::{BlockId, Bookmark, Level, ObjectId, ObjsetId, Txg};
use std::fmt;

/// A name that is not four hexadecimal numbers with colons between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadErrorName;
impl fmt::Display for BadErrorName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name in the error log is not four numbers")
    }
}
impl std::error::Error for BadErrorName {}

fn four(name: &str) -> Result<[u64; 4], BadErrorName> {
    let mut numbers = [0; 4];
    let mut parts = name.split(':');
    for number in &mut numbers {
        // from_str_radix would take a sign.
        let part = parts.next().filter(|part| part.bytes().all(|byte| byte.is_ascii_hexdigit())).ok_or(BadErrorName)?;
        *number = u64::from_str_radix(part, 16).map_err(|_| BadErrorName)?;
    }
    if parts.next().is_some() { Err(BadErrorName) } else { Ok(numbers) }
}

/// The name of a block in a log without `head_errlog`.
pub fn bookmark_name(bookmark: &Bookmark) -> String {
    format!("{:x}:{:x}:{:x}:{:x}", bookmark.objset.0, bookmark.object.0, bookmark.level.0, bookmark.block.0)
}
/// The block of a name in a log without `head_errlog`.
pub fn bookmark_from_name(name: &str) -> Result<Bookmark, BadErrorName> {
    let [objset, object, level, block] = four(name)?;
    let level = Level(u8::try_from(level).map_err(|_| BadErrorName)?);
    Ok(Bookmark { objset: ObjsetId(objset), object: ObjectId(object), level, block: BlockId(block) })
}

/// A damaged block of a head dataset (OpenZFS: `zbookmark_err_phys_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ErrorBlock {
    /// Number of the object.
    pub object: ObjectId,
    /// Level of the block.
    pub level: Level,
    /// Block within the level.
    pub block: BlockId,
    /// Birth of the damaged block: snapshots from then on have it too.
    pub birth: Txg,
}
impl ErrorBlock {
    /// The name in a log with `head_errlog`.
    pub fn name(&self) -> String {
        format!("{:x}:{:x}:{:x}:{:x}", self.object.0, self.level.0, self.block.0, self.birth.0)
    }
    /// Decodes the name in a log with `head_errlog`.
    pub fn from_name(name: &str) -> Result<ErrorBlock, BadErrorName> {
        let [object, level, block, birth] = four(name)?;
        let level = Level(u8::try_from(level).map_err(|_| BadErrorName)?);
        Ok(ErrorBlock { object: ObjectId(object), level, block: BlockId(block), birth: Txg(birth) })
    }
}
