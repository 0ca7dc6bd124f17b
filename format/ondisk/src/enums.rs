//! Numbered kinds of the format as open wrappers: unknown numbers stay representable.

macro_rules! kind {
    ($(#[$doc:meta])* $name:ident($inner:ty) { $($(#[$vdoc:meta])* $variant:ident = $value:literal, $text:literal;)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
        pub struct $name(pub $inner);
        #[allow(missing_docs, reason = "the standard's names")]
        impl $name {
            $($(#[$vdoc])* pub const $variant: $name = $name($value);)*
            /// Every known value.
            pub const ALL: &'static [$name] = &[$($name::$variant),*];
            /// The standard's name, or None for an unknown number.
            pub fn name(self) -> Option<&'static str> {
                match self.0 { $($value => Some($text),)* _ => None }
            }
            /// The value with this name.
            pub fn from_name(name: &str) -> Option<$name> {
                match name { $($text => Some($name::$variant),)* _ => None }
            }
        }
        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self.name() { Some(name) => f.write_str(name), None => write!(f, concat!(stringify!($name), "({})"), self.0) }
            }
        }
        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result { std::fmt::Debug::fmt(self, f) }
        }
    };
}

kind!(
    /// Checksum algorithm (OpenZFS: `enum zio_checksum`).
    Checksum(u8) {
        INHERIT = 0, "inherit"; ON = 1, "on"; OFF = 2, "off"; LABEL = 3, "label"; GANG_HEADER = 4, "gang_header";
        ZILOG = 5, "zilog"; FLETCHER_2 = 6, "fletcher2"; FLETCHER_4 = 7, "fletcher4"; SHA256 = 8, "sha256";
        ZILOG2 = 9, "zilog2"; NOPARITY = 10, "noparity"; SHA512 = 11, "sha512"; SKEIN = 12, "skein";
        EDONR = 13, "edonr"; BLAKE3 = 14, "blake3";
    }
);

kind!(
    /// Compression algorithm (OpenZFS: `enum zio_compress`).
    Compression(u8) {
        INHERIT = 0, "inherit"; ON = 1, "on"; OFF = 2, "off"; LZJB = 3, "lzjb"; EMPTY = 4, "empty";
        GZIP_1 = 5, "gzip-1"; GZIP_2 = 6, "gzip-2"; GZIP_3 = 7, "gzip-3"; GZIP_4 = 8, "gzip-4"; GZIP_5 = 9, "gzip-5";
        GZIP_6 = 10, "gzip-6"; GZIP_7 = 11, "gzip-7"; GZIP_8 = 12, "gzip-8"; GZIP_9 = 13, "gzip-9";
        ZLE = 14, "zle"; LZ4 = 15, "lz4"; ZSTD = 16, "zstd";
    }
);

kind!(
    /// Type of an object or block (OpenZFS: `dmu_object_type_t`); names as `zdb` prints them.
    ObjectType(u8) {
        NONE = 0, "unallocated"; OBJECT_DIRECTORY = 1, "object directory"; OBJECT_ARRAY = 2, "object array";
        PACKED_NVLIST = 3, "packed nvlist"; PACKED_NVLIST_SIZE = 4, "packed nvlist size"; BPOBJ = 5, "bpobj";
        BPOBJ_HDR = 6, "bpobj header"; SPACE_MAP_HEADER = 7, "SPA space map header"; SPACE_MAP = 8, "SPA space map";
        INTENT_LOG = 9, "ZIL intent log"; DNODE = 10, "DMU dnode"; OBJSET = 11, "DMU objset"; DSL_DIR = 12, "DSL directory";
        DSL_DIR_CHILD_MAP = 13, "DSL directory child map"; DSL_DS_SNAP_MAP = 14, "DSL dataset snap map";
        DSL_PROPS = 15, "DSL props"; DSL_DATASET = 16, "DSL dataset"; ZNODE = 17, "ZFS znode"; OLDACL = 18, "ZFS V0 ACL";
        PLAIN_FILE_CONTENTS = 19, "ZFS plain file"; DIRECTORY_CONTENTS = 20, "ZFS directory"; MASTER_NODE = 21, "ZFS master node";
        UNLINKED_SET = 22, "ZFS delete queue"; ZVOL = 23, "zvol object"; ZVOL_PROP = 24, "zvol prop";
        PLAIN_OTHER = 25, "other uint8[]"; UINT64_OTHER = 26, "other uint64[]"; ZAP_OTHER = 27, "other ZAP";
        ERROR_LOG = 28, "persistent error log"; SPA_HISTORY = 29, "SPA history"; SPA_HISTORY_OFFSETS = 30, "SPA history offsets";
        POOL_PROPS = 31, "Pool properties"; DSL_PERMS = 32, "DSL permissions"; ACL = 33, "ZFS ACL"; SYSACL = 34, "ZFS SYSACL";
        FUID = 35, "FUID table"; FUID_SIZE = 36, "FUID table size"; NEXT_CLONES = 37, "DSL dataset next clones";
        SCAN_QUEUE = 38, "scan work queue"; USERGROUP_USED = 39, "ZFS user/group/project used";
        USERGROUP_QUOTA = 40, "ZFS user/group/project quota"; USERREFS = 41, "snapshot refcount tags"; DDT_ZAP = 42, "DDT ZAP algorithm";
        DDT_STATS = 43, "DDT statistics"; SA = 44, "System attributes"; SA_MASTER_NODE = 45, "SA master node";
        SA_ATTR_REGISTRATION = 46, "SA attr registration"; SA_ATTR_LAYOUTS = 47, "SA attr layouts"; SCAN_XLATE = 48, "scan translations";
        DEDUP = 49, "deduplicated block"; DEADLIST = 50, "DSL deadlist map"; DEADLIST_HDR = 51, "DSL deadlist map hdr";
        DSL_CLONES = 52, "DSL dir clones"; BPOBJ_SUBOBJ = 53, "bpobj subobj";
        // New-style types carry their byteswap class: DMU_OT_NEWTYPE 0x80 | metadata 0x40 | encrypted 0x20 | class.
        OTN_UINT8_DATA = 128, "uint8 data"; OTN_UINT16_DATA = 129, "uint16 data"; OTN_UINT32_DATA = 130, "uint32 data";
        OTN_UINT64_DATA = 131, "uint64 data"; OTN_ZAP_DATA = 132, "zap data";
        OTN_UINT8_METADATA = 192, "uint8 metadata"; OTN_UINT16_METADATA = 193, "uint16 metadata";
        OTN_UINT32_METADATA = 194, "uint32 metadata"; OTN_UINT64_METADATA = 195, "uint64 metadata"; OTN_ZAP_METADATA = 196, "zap metadata";
    }
);

kind!(
    /// Type of an object set (OpenZFS: `dmu_objset_type_t`).
    ObjsetType(u64) { NONE = 0, "none"; META = 1, "mos"; ZFS = 2, "filesystem"; ZVOL = 3, "volume"; OTHER = 4, "other"; }
);

/// Way in which the contents of an object are swapped (OpenZFS: `dmu_object_byteswap_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the standard's names")]
pub enum Byteswap {
    Uint8,
    Uint16,
    Uint32,
    Uint64,
    Zap,
    Dnode,
    Objset,
    Znode,
    OldAcl,
    Acl,
}
impl Byteswap {
    const ALL: [Byteswap; 10] = {
        use Byteswap::{Acl, Dnode, Objset, OldAcl, Uint8, Uint16, Uint32, Uint64, Zap, Znode};
        [Uint8, Uint16, Uint32, Uint64, Zap, Dnode, Objset, Znode, OldAcl, Acl]
    };
}

/// Bit of a type that carries its class: the other bits are metadata, encrypted and the byteswap class.
const NEWTYPE: u8 = 0x80;
const NEWTYPE_METADATA: u8 = 0x40;
const NEWTYPE_ENCRYPTED: u8 = 0x20;
const NEWTYPE_BYTESWAP: u8 = 0x1F;

/// Per old-style type: byteswap class, metadata, cached as pool metadata, encrypted (OpenZFS: `dmu_ot`).
const OLD_TYPES: [(Byteswap, bool, bool, bool); 54] = {
    use Byteswap::{Acl, Dnode, Objset, OldAcl, Uint8, Uint64, Zap, Znode};
    const T: bool = true;
    const F: bool = false;
    [
        (Uint8, T, F, F),
        (Zap, T, T, F),
        (Uint64, T, T, F),
        (Uint8, T, F, F),
        (Uint64, T, F, F),
        (Uint64, T, F, F),
        (Uint64, T, F, F),
        (Uint64, T, F, F),
        (Uint64, T, F, F),
        (Uint64, T, F, T),
        (Dnode, T, F, T),
        (Objset, T, T, F),
        (Uint64, T, T, F),
        (Zap, T, T, F),
        (Zap, T, T, F),
        (Zap, T, T, F),
        (Uint64, T, T, F),
        (Znode, T, F, F),
        (OldAcl, T, F, T),
        (Uint8, F, F, T),
        (Zap, T, F, T),
        (Zap, T, F, F),
        (Zap, T, F, T),
        (Uint8, F, F, T),
        (Zap, T, F, F),
        (Uint8, F, F, T),
        (Uint64, F, F, T),
        (Zap, T, F, F),
        (Zap, T, F, F),
        (Uint8, T, F, F),
        (Uint64, T, F, F),
        (Zap, T, T, F),
        (Zap, T, T, F),
        (Acl, T, F, T),
        (Uint8, T, F, T),
        (Uint8, T, F, T),
        (Uint64, T, F, F),
        (Zap, T, T, F),
        (Zap, T, F, F),
        (Zap, T, F, T),
        (Zap, T, F, T),
        (Zap, T, T, F),
        (Zap, T, F, F),
        (Zap, T, F, F),
        (Uint8, T, F, T),
        (Zap, T, F, T),
        (Zap, T, F, T),
        (Zap, T, F, T),
        (Zap, T, F, F),
        (Uint8, F, F, T),
        (Zap, T, T, F),
        (Uint64, T, T, F),
        (Zap, T, T, F),
        (Uint64, T, F, F),
    ]
};

impl ObjectType {
    fn old(self) -> Option<&'static (Byteswap, bool, bool, bool)> {
        OLD_TYPES.get(usize::from(self.0))
    }
    /// True for a type of the standard: an old-style number below 54, or a new-style one with a known byteswap class.
    pub fn is_valid(self) -> bool {
        if self.0 & NEWTYPE != 0 { usize::from(self.0 & NEWTYPE_BYTESWAP) < Byteswap::ALL.len() } else { self.old().is_some() }
    }
    /// Way in which the contents are swapped; unknown types are bytes.
    pub fn byteswap(self) -> Byteswap {
        if self.0 & NEWTYPE != 0 {
            Byteswap::ALL.get(usize::from(self.0 & NEWTYPE_BYTESWAP)).copied().unwrap_or(Byteswap::Uint8)
        } else {
            self.old().map_or(Byteswap::Uint8, |row| row.0)
        }
    }
    /// True for blocks that count as metadata (three copies for the pool, ARC balance, `redundant_metadata`).
    pub fn is_metadata(self) -> bool {
        if self.0 & NEWTYPE != 0 { self.0 & NEWTYPE_METADATA != 0 } else { self.old().is_some_and(|row| row.1) }
    }
    /// True for pool metadata worth keeping in memory (OpenZFS: `DMU_OT_IS_METADATA_CACHED`).
    pub fn is_metadata_cached(self) -> bool {
        self.0 & NEWTYPE != 0 || self.old().is_some_and(|row| row.2)
    }
    /// True for types whose blocks are encrypted in an encrypted dataset; the others are only authenticated.
    pub fn is_encrypted(self) -> bool {
        if self.0 & NEWTYPE != 0 { self.0 & NEWTYPE_ENCRYPTED != 0 } else { self.old().is_some_and(|row| row.3) }
    }
    /// True for metadata that `redundant_metadata=some` keeps redundant (OpenZFS: `DMU_OT_IS_CRITICAL`).
    pub fn is_critical(self) -> bool {
        self.is_metadata() && !matches!(self, ObjectType::DNODE | ObjectType::DIRECTORY_CONTENTS | ObjectType::SA)
    }
    /// True when `fill` of a level-0 pointer is not 1, so that it can't be embedded (OpenZFS: `DMU_OT_HAS_FILL`).
    pub fn has_fill(self) -> bool {
        matches!(self, ObjectType::DNODE | ObjectType::OBJSET)
    }
    /// True for contents of files and the ztest stand-in for them (OpenZFS: `DMU_OT_IS_FILE`).
    pub fn is_file(self) -> bool {
        matches!(self, ObjectType::PLAIN_FILE_CONTENTS | ObjectType::UINT64_OTHER)
    }
}
