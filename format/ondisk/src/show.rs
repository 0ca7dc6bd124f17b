//! Block pointers and object types as text in the shape of `zdb` (OpenZFS: `snprintf_blkptr`, `SNPRINTF_BLKPTR` in `spa.h`).

use crate::{BlockPtr, Compression, ObjectType};
use std::borrow::Cow;
use std::fmt;

/// Classes of the contents of new-style types (OpenZFS: `dmu_ot_byteswap`).
const CLASSES: [&str; 10] = ["uint8", "uint16", "uint32", "uint64", "zap", "dnode", "objset", "znode", "oldacl", "acl"];

impl ObjectType {
    /// The type as OpenZFS prints it: new-style types by their class.
    pub fn standard_name(self) -> Cow<'static, str> {
        if self.0 & 0x80 != 0 {
            let data = if self.is_metadata() { "metadata" } else { "data" };
            return Cow::Owned(format!("bswap {data} {}", CLASSES[self.byteswap() as usize]));
        }
        self.name().map_or_else(|| Cow::Owned(format!("unknown type {}", self.0)), Cow::Borrowed)
    }
    /// The type as `zdb` lists objects: new-style types by their class alone (OpenZFS: `zdb_ot_name`).
    pub fn listing_name(self) -> &'static str {
        const CLASS: u8 = 0x1F;
        let name = if self.0 & 0x80 != 0 { CLASSES.get(usize::from(self.0 & CLASS)).copied() } else { self.name() };
        name.unwrap_or("UNKNOWN")
    }
}

fn compression_name(kind: Compression) -> Cow<'static, str> {
    match kind {
        Compression::OFF => Cow::Borrowed("uncompressed"),
        known => known.name().map_or_else(|| Cow::Owned(known.to_string()), Cow::Borrowed),
    }
}

impl BlockPtr {
    fn crypt_name(&self) -> &'static str {
        match (self.uses_crypt(), self.level(), self.object_type().is_encrypted()) {
            (false, _, _) => "unencrypted",
            (true, 0, true) => "encrypted",
            (true, 0, false) => "authenticated",
            (true, _, _) => "indirect-MAC",
        }
    }
}

impl fmt::Display for BlockPtr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (level, kind) = (self.level(), self.object_type().standard_name());
        if self.is_hole() {
            return write!(f, "HOLE [L{level} {kind}] size={:x}L birth={}L", self.lsize(), self.birth());
        }
        let compression = compression_name(self.compression());
        if self.is_embedded() {
            let (lsize, psize) = (self.lsize(), self.psize());
            write!(f, "EMBEDDED [L{level} {kind}] et={} {compression} ", self.embedded_kind().0)?;
            return write!(f, "size={lsize:x}L/{psize:x}P birth={}L", self.birth());
        }
        let mut copies = 0;
        for dva in self.dvas() {
            write!(f, "DVA[{copies}]=<{}:{:x}:{:x}> ", dva.vdev, dva.offset, dva.asize)?;
            copies += 1;
        }
        if self.is_encrypted() {
            write!(f, "salt={:x} iv={:x}:{:x} ", self.0[4], self.0[5], self.0[11] >> 32)?;
        }
        let order = if self.is_little_endian() { "LE" } else { "BE" };
        let gang = if self.is_gang() { "gang" } else { "contiguous" };
        let dedup = if self.is_dedup() { "dedup" } else { "unique" };
        let copies = ["zero", "single", "double", "triple"][copies];
        write!(f, "[L{level} {kind}] {} {compression} {} {order} {gang} {dedup} {copies} ", self.checksum_kind(), self.crypt_name())?;
        write!(f, "size={:x}L/{:x}P birth={}L/{}P ", self.lsize(), self.psize(), self.birth(), self.physical_birth())?;
        let [a, b, c, d] = self.checksum();
        write!(f, "fill={} cksum={a:016x}:{b:016x}:{c:016x}:{d:016x}", self.fill())
    }
}
