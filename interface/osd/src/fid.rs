//! Names of objects: FIDs, and the place of the object of each in the file system.
//!
//! Lustre's `osd-zfs` has objects of storage targets at `O/SEQUENCE/dNN/ID`: the sequence in hexadecimal (reserved ones in decimal, all that are
//! identifiers of old targets, IDIF, under 0), NN the number modulo 32, the number in decimal. Every object has its FID in an extended attribute, too.

use std::ops::RangeInclusive;

/// Folders of a sequence.
pub(crate) const FOLDERS: u64 = 32;
/// Name of the extended attribute that holds the FID (Lustre: `XATTR_NAME_LMA`).
pub(crate) const LMA: &[u8] = b"trusted.lma";
/// Sequences that stand for identifiers of old targets (Lustre: `FID_SEQ_IDIF`, `FID_SEQ_IDIF_MAX`).
const IDIF: RangeInclusive<u64> = 0x1_0000_0000..=0x1_ffff_ffff;
/// Last of the sequences that are reserved (Lustre: `FID_SEQ_RSVD`).
const RESERVED_MAX: u64 = 11;
/// Flag of the attribute: the object is one of a storage target (Lustre: `LMAC_FID_ON_OST`).
const FID_ON_OST: u32 = 8;
/// Bytes of the attribute: two words of flags, and the FID.
const LMA_BYTES: usize = 24;

/// Identifier of an object (Lustre: `lu_fid`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fid {
    /// Sequence that the object is of; never 0.
    pub sequence: u64,
    /// Number in the sequence; never 0.
    pub object: u32,
    /// Version of the object; there are none but 0.
    pub version: u32,
}

impl Fid {
    /// Identifier of an object's only version.
    pub const fn new(sequence: u64, object: u32) -> Fid {
        Fid { sequence, object, version: 0 }
    }

    /// True when an object can have it.
    pub fn is_valid(self) -> bool {
        self.sequence != 0 && self.object != 0 && self.version == 0
    }

    /// Name of the folder of its sequence.
    pub(crate) fn sequence_name(self) -> String {
        match self.sequence {
            sequence if IDIF.contains(&sequence) => "0".to_string(),
            sequence if sequence <= RESERVED_MAX => sequence.to_string(),
            sequence => format!("{sequence:x}"),
        }
    }

    /// Number by which its folder has it: of an IDIF, 16 bits of the sequence are above it.
    fn number(self) -> u64 {
        let above = if IDIF.contains(&self.sequence) { (self.sequence & 0xffff) << 32 } else { 0 };
        above | u64::from(self.object)
    }

    /// Index of its folder among those of its sequence.
    pub(crate) fn folder(self) -> usize {
        (self.number() % FOLDERS) as usize
    }

    /// Name in that folder.
    pub(crate) fn name(self) -> String {
        self.number().to_string()
    }

    /// Bytes of the extended attribute (Lustre: `lustre_mdt_attrs`).
    pub(crate) fn to_lma(self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(LMA_BYTES);
        bytes.extend_from_slice(&FID_ON_OST.to_le_bytes());
        bytes.extend_from_slice(&0u32.to_le_bytes());
        bytes.extend_from_slice(&self.sequence.to_le_bytes());
        bytes.extend_from_slice(&self.object.to_le_bytes());
        bytes.extend_from_slice(&self.version.to_le_bytes());
        bytes
    }

    /// True when the bytes of the attribute, which may have more behind, name it.
    pub(crate) fn is_in(self, lma: &[u8]) -> bool {
        lma.get(8..LMA_BYTES) == self.to_lma().get(8..)
    }
}

#[cfg(test)]
mod tests {
    use super::Fid;

    /// If this fails, Lustre's servers do not find the objects in the pools that we wrote, nor we those in theirs.
    #[test]
    fn objects_lie_where_lustre_has_them() {
        let place = |fid: Fid| format!("O/{}/d{}/{}", fid.sequence_name(), fid.folder(), fid.name());
        assert_eq!(place(Fid::new(0x2_0000_0401, 77)), "O/200000401/d13/77");
        assert_eq!(place(Fid::new(10, 32)), "O/10/d0/32");
        assert_eq!(place(Fid::new(0x1_0001_0002, 3)), "O/0/d3/8589934595");
        let fid = Fid::new(0x2_0000_0401, 77);
        assert!(fid.is_in(&[fid.to_lma(), vec![9; 40]].concat()) && !Fid::new(0x2_0000_0401, 78).is_in(&fid.to_lma()));
        assert!(!fid.is_in(&fid.to_lma()[..20]), "a part names nobody");
        assert!(!Fid::new(0, 1).is_valid() && !Fid::new(1, 0).is_valid() && !Fid { version: 1, ..fid }.is_valid());
    }
}
