//! What others put on a device: signatures of file systems, swap, volume managers and partition tables, at the places where
//! `libblkid` looks for them, and of disks of virtual machines, databases and archives, which are files, so that nobody's data is taken for
//! free space.
//!
//! Only what is read decides: no device is written here, and labels of pools are none of this module's business. Magics of two
//! bytes count only where the fields around them make sense, since a refusal that is wrong is worked around with `-f` for good.

use std::collections::BTreeMap;

/// Bytes at the beginning that are looked at as one piece: nearly all magics are here.
const HEAD_BYTES: u64 = 128 << 10;
/// Bytes at the end that are looked at as one piece.
const TAIL_BYTES: u64 = 128 << 10;
/// Bytes of a piece in which everything is read, a multiple of every device's sectors.
const PIECE_BYTES: u64 = 4096;
/// Most entries of a partition table that are looked at.
const ENTRIES_MAX: u64 = 256;

/// Something of others on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signature {
    /// Name as `libblkid` has it: `ext4`, `swap`, `gpt`.
    pub kind: &'static str,
    /// True for a partition table; otherwise it is what fills the device.
    pub is_table: bool,
    /// First byte of the magic.
    pub offset: u64,
    /// Bytes of the magic.
    pub length: usize,
}

/// An entry of a partition table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partition {
    /// First byte on the device.
    pub offset: u64,
    /// Length in bytes.
    pub length: u64,
    /// True when its type says that it belongs to a pool, or is kept free beside one (Solaris `usr` and `reserved`).
    pub is_of_pool: bool,
}

/// Reads bytes of a device; None when they can't be read.
pub type ReadBytes<'a> = dyn FnMut(u64, usize) -> Option<Vec<u8>> + 'a;

/// Pieces of a device, each read once.
struct Bytes<'a, 'b> {
    size: u64,
    read: &'a mut ReadBytes<'b>,
    pieces: BTreeMap<u64, Vec<u8>>,
}

impl Bytes<'_, '_> {
    fn at(&mut self, offset: u64, length: usize) -> Option<&[u8]> {
        let end = offset.checked_add(length as u64).filter(|end| *end <= self.size)?;
        let tail = self.size.saturating_sub(TAIL_BYTES) / PIECE_BYTES * PIECE_BYTES;
        let (start, stop) = match () {
            () if end <= HEAD_BYTES => (0, HEAD_BYTES),
            () if offset >= tail => (tail, self.size),
            () => (offset / PIECE_BYTES * PIECE_BYTES, end.next_multiple_of(PIECE_BYTES)),
        };
        let stop = stop.min(self.size / 512 * 512);
        if !self.pieces.contains_key(&start) || self.pieces.get(&start).is_some_and(|piece| start + (piece.len() as u64) < end) {
            let piece = (self.read)(start, usize::try_from(stop.checked_sub(start)?).ok()?)?;
            self.pieces.insert(start, piece);
        }
        let from = usize::try_from(offset - start).ok()?;
        self.pieces.get(&start)?.get(from..from + length)
    }

    fn has(&mut self, offset: u64, magic: &[u8]) -> bool {
        self.at(offset, magic.len()) == Some(magic)
    }

    fn le16(&mut self, offset: u64) -> Option<u16> {
        Some(u16::from_le_bytes(self.at(offset, 2)?.try_into().ok()?))
    }

    fn le32(&mut self, offset: u64) -> Option<u32> {
        Some(u32::from_le_bytes(self.at(offset, 4)?.try_into().ok()?))
    }

    fn le64(&mut self, offset: u64) -> Option<u64> {
        Some(u64::from_le_bytes(self.at(offset, 8)?.try_into().ok()?))
    }
}

/// Magics at a fixed place that are long enough to be believed.
const MAGICS: &[(&str, u64, &[u8])] = &[
    ("xfs", 0, b"XFSB"),
    ("btrfs", 0x10040, b"_BHRfS_M"),
    ("f2fs", 0x400, &[0x10, 0x20, 0xf5, 0xf2]),
    ("ntfs", 3, b"NTFS    "),
    ("exfat", 3, b"EXFAT   "),
    ("ReFS", 0, b"\0\0\0ReFS\0"),
    ("BitLocker", 3, b"-FVE-FS-"),
    ("apfs", 32, b"NXSB"),
    ("iso9660", 0x8001, b"CD001"),
    ("udf", 0x8001, b"BEA01"),
    ("jfs", 0x8000, b"JFS1"),
    ("reiserfs", 0x10034, b"ReIsErFs"),
    ("reiserfs", 0x10034, b"ReIsEr2Fs"),
    ("reiserfs", 0x10034, b"ReIsEr3Fs"),
    ("reiserfs", 0x2034, b"ReIsErFs"),
    ("reiser4", 0x10000, b"ReIsEr4"),
    ("squashfs", 0, b"hsqs"),
    ("squashfs", 0, b"sqsh"),
    ("erofs", 0x400, &[0xe2, 0xe1, 0xf5, 0xe0]),
    ("cramfs", 0, &[0x45, 0x3d, 0xcd, 0x28]),
    ("cramfs", 0, &[0x28, 0xcd, 0x3d, 0x45]),
    ("romfs", 0, b"-rom1fs-"),
    ("bfs", 0, &[0xce, 0xfa, 0xad, 0x1b]),
    ("hpfs", 0x2000, &[0x49, 0xe8, 0x95, 0xf9, 0xc5, 0xe9, 0x53, 0xfa]),
    ("exfs", 0, b"EXFS"),
    ("ocfs", 8, b"OracleCFS"),
    ("nss", 0x1000, b"SPB5"),
    ("LVM1_member", 0, b"HM\x01\0"),
    ("LVM1_member", 0, b"HM\x02\0"),
    ("drbdmanage_control_volume", 0, b"$DRBDMGR=q"),
    ("hpt37x_raid_member", 0x1220, &[0xf0, 0x16, 0x78, 0x5a]),
    ("hpt37x_raid_member", 0x1220, &[0xfd, 0x16, 0x78, 0x5a]),
    ("ocfs2", 0x400, b"OCFSV2"),
    ("ocfs2", 0x800, b"OCFSV2"),
    ("ocfs2", 0x1000, b"OCFSV2"),
    ("ocfs2", 0x2000, b"OCFSV2"),
    ("gfs2", 0x10000, &[0x01, 0x16, 0x19, 0x70]),
    ("befs", 0x220, b"1SFB"),
    ("vxfs", 0x400, &[0xf5, 0xfc, 0x01, 0xa5]),
    ("ufs", 0x2000 + 1372, &[0x54, 0x19, 0x01, 0x00]),
    ("ufs", 0x2000 + 1372, &[0x00, 0x01, 0x19, 0x54]),
    ("ufs", 0x10000 + 1372, &[0x19, 0x01, 0x54, 0x19]),
    ("ufs", 0x40000 + 1372, &[0x19, 0x01, 0x54, 0x19]),
    ("zonefs", 0, b"SFOZ"),
    ("oracleasm", 32, b"ORCLDISK"),
    ("ubi", 0, b"UBI#"),
    ("ubifs", 0, &[0x31, 0x18, 0x10, 0x06]),
    ("DM_snapshot_cow", 0, b"SnAp"),
    ("crypto_LUKS", 0, b"LUKS\xba\xbe"),
    ("crypto_LUKS", 0x4000, b"SKUL\xba\xbe"),
    ("crypto_LUKS", 0x8000, b"SKUL\xba\xbe"),
    ("crypto_LUKS", 0x10000, b"SKUL\xba\xbe"),
    ("DM_integrity", 0, b"integrit"),
    ("DM_verity_hash", 0, b"verity\0\0"),
    ("vdo", 0, b"dmvdo001"),
    ("stratis", 516, b"!Stra0tis\x86\xff\x02^\x41rh"),
    ("stratis", 9 * 512 + 4, b"!Stra0tis\x86\xff\x02^\x41rh"),
    ("ceph_bluestore", 0, b"bluestore block device"),
    ("bcache", 4096 + 24, &[0xc6, 0x85, 0x73, 0xf6, 0x4e, 0x1a, 0x45, 0xca, 0x82, 0x65, 0xf5, 0x7f, 0x48, 0xba, 0x6d, 0x81]),
    ("bcachefs", 4096 + 24, &[0xc6, 0x85, 0x73, 0xf6, 0x66, 0xce, 0x90, 0xa9, 0xd9, 0x6a, 0x60, 0xcf, 0x80, 0x3d, 0xf7, 0xef]),
    ("linux_raid_member", 0, &[0xfc, 0x4e, 0x2b, 0xa9]),
    ("linux_raid_member", 4096, &[0xfc, 0x4e, 0x2b, 0xa9]),
    ("VMFS_volume_member", 1 << 20, &[0x0d, 0xd0, 0x01, 0xc0]),
    ("VMFS", 2 << 20, &[0x5e, 0xf1, 0xab, 0x2f]),
    // Disks of virtual machines, as files.
    ("qcow2", 0, b"QFI\xfb\0\0\0\x02"),
    ("qcow2", 0, b"QFI\xfb\0\0\0\x03"),
    ("qcow", 0, b"QFI\xfb\0\0\0\x01"),
    ("qed", 0, b"QED\0"),
    ("vmdk", 0, b"KDMV"),
    ("vmdk", 0, b"COWD"),
    ("vmdk", 0, b"# Disk DescriptorFile"),
    ("vhdx", 0, b"vhdxfile"),
    ("vhd", 0, b"conectix"),
    ("vdi", 64, &[0x7f, 0x10, 0xda, 0xbe]),
    ("parallels", 0, b"WithoutFreeSpace"),
    ("parallels", 0, b"WithouFreSpacExt"),
    // Databases and archives.
    ("sqlite", 0, b"SQLite format 3\0"),
    ("tar", 257, b"ustar\x0000"),
    ("tar", 257, b"ustar  \0"),
    ("xz", 0, b"\xfd7zXZ\0"),
    ("7z", 0, b"7z\xbc\xaf\x27\x1c"),
    ("pdf", 0, b"%PDF-"),
    ("lz4", 0, b"\x02\x21\x4c\x18"),
    ("lzip", 0, b"LZIP\x01"),
    ("lzop", 0, b"\x89LZO\0\r\n\x1a\n"),
    ("rar", 0, b"Rar!\x1a\x07"),
    ("ar", 0, b"!<arch>\n"),
    ("xar", 0, b"xar!\0\x1c\0\x01"),
    ("cab", 0, b"MSCF\0\0\0\0"),
    ("wim", 0, b"MSWIM\0\0\0"),
    ("rpm", 0, b"\xed\xab\xee\xdb"),
    ("ole", 0, b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"),
    // An archive without members.
    ("zip", 0, b"PK\x05\x06\0\0\0\0"),
    // A backup of our own kind: the magic of a stream's first record, in both byte orders (OpenZFS: `DMU_BACKUP_MAGIC`).
    ("zfs_stream", 8, &[0xac, 0xcb, 0xba, 0xf5, 2, 0, 0, 0]),
    ("zfs_stream", 8, &[0, 0, 0, 2, 0xf5, 0xba, 0xcb, 0xac]),
];

/// Magics so many bytes before the end, and on what its place is rounded down.
const END_MAGICS: &[(&str, u64, u64, &[u8])] = &[
    ("linux_raid_member", 64 << 10, 64 << 10, &[0xfc, 0x4e, 0x2b, 0xa9]),
    ("linux_raid_member", 8 << 10, 4 << 10, &[0xfc, 0x4e, 0x2b, 0xa9]),
    ("isw_raid_member", 1024, 512, b"Intel Raid ISM Cfg Sig. "),
    ("ddf_raid_member", 512, 512, &[0xde, 0x11, 0xde, 0x11]),
    ("ddf_raid_member", 257 * 512, 512, &[0xde, 0x11, 0xde, 0x11]),
    ("drbd", 4096 - 60, 512, &[0x83, 0x74, 0x02, 0x6b]),
    ("drbd", 4096 - 60, 512, &[0x83, 0x74, 0x02, 0x6c]),
    ("drbd", 4096 - 60, 512, &[0x83, 0x74, 0x02, 0x6d]),
    ("promise_fasttrack_raid_member", 63 * 512, 512, b"Promise Technology, Inc."),
    ("promise_fasttrack_raid_member", 255 * 512, 512, b"Promise Technology, Inc."),
    ("promise_fasttrack_raid_member", 256 * 512, 512, b"Promise Technology, Inc."),
    ("promise_fasttrack_raid_member", 16 * 512, 512, b"Promise Technology, Inc."),
    ("promise_fasttrack_raid_member", 399 * 512, 512, b"Promise Technology, Inc."),
    ("nvidia_raid_member", 1024, 512, b"NVIDIA"),
    ("lsi_mega_raid_member", 512, 512, b"$XIDE$"),
    ("hpt45x_raid_member", 11 * 512, 512, &[0xf3, 0x16, 0x78, 0x5a]),
    // A disk of a virtual machine of fixed size, which is all its bytes and this.
    ("vhd", 512, 512, b"conectix"),
    ("dmg", 512, 512, b"koly\0\0\0\x04"),
];

/// Magics that swap begins with, ten bytes before the end of its first page.
const SWAP_MAGICS: [(&str, &[u8]); 6] = [
    ("swap", b"SWAPSPACE2"),
    ("swap", b"SWAP-SPACE"),
    ("swsuspend", b"S1SUSPEND"),
    ("swsuspend", b"S2SUSPEND"),
    ("swsuspend", b"ULSUSPEND"),
    ("swsuspend", b"LINHIB0001"),
];

/// Everything of others on a device of `size` bytes, what fills it first.
pub fn signatures(size: u64, read: &mut ReadBytes<'_>) -> Vec<Signature> {
    let mut bytes = Bytes { size, read, pieces: BTreeMap::new() };
    let mut found = Vec::new();
    let mut add = |kind, offset, length| found.push(Signature { kind, is_table: false, offset, length });
    if let Some((kind, offset)) = extended(&mut bytes) {
        add(kind, offset, 2);
    }
    for (kind, offset, magic) in MAGICS {
        if bytes.has(*offset, magic) {
            add(kind, *offset, magic.len());
        }
    }
    for (kind, before, step, magic) in END_MAGICS {
        let Some(offset) = (size / step * step).checked_sub(*before) else { continue };
        if bytes.has(offset, magic) {
            add(kind, offset, magic.len());
        }
    }
    for page_shift in 12..=16 {
        let offset = (1 << page_shift) - 10;
        for (kind, magic) in SWAP_MAGICS {
            if bytes.has(offset, magic) {
                add(kind, offset, magic.len());
            }
        }
    }
    for sector in 0..4 {
        if bytes.has(sector * 512, b"LABELONE") && bytes.has(sector * 512 + 24, b"LVM2 001") {
            add("LVM2_member", sector * 512, 8);
        }
    }
    if let Some((kind, length)) = compressed(&mut bytes).or_else(|| archive(&mut bytes)) {
        add(kind, 0, length);
    }
    let is_fat = fat(&mut bytes);
    if is_fat {
        add("vfat", 510, 2);
    }
    for (kind, offset, length) in old_macintosh(&mut bytes).into_iter().chain(nilfs(&mut bytes)).chain(minix(&mut bytes)) {
        add(kind, offset, length);
    }
    tables(&mut bytes, is_fat, &mut found);
    found
}

/// Compressed files, whose magics are short: the fields behind them must make sense, too (RFC 1952, RFC 8878, PKWARE's APPNOTE 4.3.7, the frame format
/// of LZ4, bzip2's first block or the end of an empty file).
fn compressed(bytes: &mut Bytes<'_, '_>) -> Option<(&'static str, usize)> {
    /// Methods of a member of a zip archive: stored, deflated, and what came later.
    const ZIP_METHODS: [u16; 7] = [0, 8, 9, 12, 14, 93, 95];
    let head = bytes.at(0, 16)?;
    let number = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]);
    match head {
        [0x1f, 0x8b, 8, flags, _, _, _, _, 0 | 2 | 4, 0..=13 | 255, ..] if flags & 0xe0 == 0 => Some(("gzip", 2)),
        // No bit that is reserved.
        [0x28, 0xb5, 0x2f, 0xfd, descriptor, ..] if descriptor & 8 == 0 => Some(("zstd", 4)),
        [0x04, 0x22, 0x4d, 0x18, flags, sizes, ..] if flags & 0xc2 == 0x40 && sizes & 0x8f == 0 && sizes >> 4 >= 4 => Some(("lz4", 4)),
        [b'B', b'Z', b'h', b'1'..=b'9', 0x31, 0x41, 0x59, 0x26, 0x53, 0x59, ..]
        | [b'B', b'Z', b'h', b'1'..=b'9', 0x17, 0x72, 0x45, 0x38, 0x50, 0x90, ..] => Some(("bzip2", 3)),
        [b'P', b'K', 3, 4, ..] if number(4) & 0xff <= 63 && ZIP_METHODS.contains(&number(8)) => Some(("zip", 4)),
        _ => None,
    }
}

/// Archives and programs whose magics are short, or none: cpio in its three forms, tar from before POSIX by its checksum, ELF.
fn archive(bytes: &mut Bytes<'_, '_>) -> Option<(&'static str, usize)> {
    let head = bytes.at(0, 16)?;
    let is_octal = |part: &[u8]| part.iter().all(|byte| matches!(byte, b'0'..=b'7'));
    match head {
        // Class, byte order and version.
        [0x7f, b'E', b'L', b'F', 1 | 2, 1 | 2, 1, ..] => return Some(("elf", 4)),
        [b'0', b'7', b'0', b'7', b'0', b'1' | b'2', digits @ ..] if digits[..8].iter().all(u8::is_ascii_hexdigit) => {
            return Some(("cpio", 6));
        }
        [b'0', b'7', b'0', b'7', b'0', b'7', digits @ ..] if is_octal(digits) => return Some(("cpio", 6)),
        [0xc7, 0x71, ..] => return binary_cpio(bytes, u16::from_le_bytes),
        [0x71, 0xc7, ..] => return binary_cpio(bytes, u16::from_be_bytes),
        _ => {}
    }
    old_tar(bytes).then_some(("tar", 512))
}

/// A first member of a binary cpio archive, whose magic has two bytes: its mode and name must make sense.
fn binary_cpio(bytes: &mut Bytes<'_, '_>, number: fn([u8; 2]) -> u16) -> Option<(&'static str, usize)> {
    const HEADER_BYTES: u64 = 26;
    /// Types in modes: FIFO, devices, directory, file, link, socket.
    const TYPES: [u16; 7] = [0o1, 0o2, 0o4, 0o6, 0o10, 0o12, 0o14];
    let header = bytes.at(0, 26)?;
    let (mode, length) = (number([header[6], header[7]]), number([header[20], header[21]]));
    let is_named = (2..=1024).contains(&length) && bytes.has(HEADER_BYTES + u64::from(length) - 1, &[0]);
    (is_named && TYPES.contains(&(mode >> 12))).then_some(("cpio", 2))
}

/// True for a first member of a tar archive, by the checksum of its header, which every form has.
fn old_tar(bytes: &mut Bytes<'_, '_>) -> bool {
    let Some(header) = bytes.at(0, 512) else { return false };
    let is_new = &header[257..262] == b"ustar";
    let digits = header[148..156].iter().copied().skip_while(|byte| *byte == b' ').take_while(u8::is_ascii_digit);
    let told = digits.fold(0_u32, |sum, digit| sum << 3 | u32::from(digit & 7));
    let sum = |range: &[u8]| range.iter().map(|byte| u32::from(*byte)).sum::<u32>();
    // The field itself counts as blanks.
    header[0] != 0 && !is_new && told == sum(&header[..148]) + 8 * u32::from(b' ') + sum(&header[156..])
}

/// ext2, ext3, ext4 and a journal of its own.
fn extended(bytes: &mut Bytes<'_, '_>) -> Option<(&'static str, u64)> {
    const BASE: u64 = 1024;
    /// `COMPAT_HAS_JOURNAL`, `INCOMPAT_JOURNAL_DEV`, and what ext3 may have of the other two sets.
    const HAS_JOURNAL: u32 = 4;
    const JOURNAL_DEVICE: u32 = 8;
    const INCOMPATIBLE_OF_EXT3: u32 = 0x2 | 0x4 | 0x10;
    const READ_ONLY_OF_EXT3: u32 = 0x1 | 0x2 | 0x4;
    if bytes.le16(BASE + 56)? != 0xEF53 || bytes.le32(BASE + 24)? > 6 || bytes.le32(BASE + 4)? == 0 {
        return None;
    }
    let (compatible, incompatible, read_only) = (bytes.le32(BASE + 92)?, bytes.le32(BASE + 96)?, bytes.le32(BASE + 100)?);
    let kind = match () {
        () if incompatible & JOURNAL_DEVICE != 0 => "jbd",
        () if incompatible & !INCOMPATIBLE_OF_EXT3 != 0 || read_only & !READ_ONLY_OF_EXT3 != 0 => "ext4",
        () if compatible & HAS_JOURNAL != 0 => "ext3",
        () => "ext2",
    };
    Some((kind, BASE + 56))
}

/// Kind of a Minix file system: its magics are short, so that its numbers of inodes and maps must make sense too.
fn minix(bytes: &mut Bytes<'_, '_>) -> Option<(&'static str, u64, usize)> {
    const BASE: u64 = 1024;
    if bytes.le16(BASE + 24)? == 0x4D5A && bytes.le32(BASE)? != 0 && bytes.le16(BASE + 6)? != 0 && bytes.le16(BASE + 28)?.is_power_of_two()
    {
        return Some(("minix", BASE + 24, 2));
    }
    let is_first = matches!(bytes.le16(BASE + 16)?, 0x137F | 0x138F | 0x2468 | 0x2478);
    let is_sound = bytes.le16(BASE)? != 0 && bytes.le16(BASE + 4)? != 0 && bytes.le16(BASE + 6)? != 0 && bytes.le16(BASE + 10)? < 16;
    (is_first && is_sound).then_some(("minix", BASE + 16, 2))
}

/// True for a FAT file system, which has no magic of its own: its first sector must make sense.
fn fat(bytes: &mut Bytes<'_, '_>) -> bool {
    let Some(boot) = bytes.at(0, 512) else { return false };
    let sector = u16::from_le_bytes([boot[11], boot[12]]);
    let reserved = u16::from_le_bytes([boot[14], boot[15]]);
    boot[510..] == [0x55, 0xAA]
        && matches!(boot[0], 0xEB | 0xE9)
        && sector.is_power_of_two()
        && (512..=4096).contains(&sector)
        && boot[13].is_power_of_two()
        && reserved != 0
        && matches!(boot[16], 1 | 2)
        && (boot[21] == 0xF0 || boot[21] >= 0xF8)
}

/// Kind of an HFS or HFS+ file system.
fn old_macintosh(bytes: &mut Bytes<'_, '_>) -> Option<(&'static str, u64, usize)> {
    const BASE: u64 = 1024;
    let header = bytes.at(BASE, 24)?;
    let number = |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    let version = u16::from_be_bytes([header[2], header[3]]);
    let block = number(20);
    match &header[..2] {
        b"H+" | b"HX" if matches!(version, 4 | 5) => Some(("hfsplus", BASE, 2)),
        b"BD" if block != 0 && block % 512 == 0 => Some(("hfs", BASE, 2)),
        _ => None,
    }
}

/// NILFS2, and its second superblock near the end.
fn nilfs(bytes: &mut Bytes<'_, '_>) -> Option<(&'static str, u64, usize)> {
    let places = [1024, (bytes.size / 4096).saturating_sub(1) * 4096];
    let is_there = |offset: &u64| bytes.le16(offset + 6) == Some(0x3434) && bytes.le32(*offset) == Some(2);
    places.into_iter().find(is_there).map(|offset| ("nilfs2", offset + 6, 2))
}

/// Partition tables that have entries.
fn tables(bytes: &mut Bytes<'_, '_>, is_fat: bool, found: &mut Vec<Signature>) {
    let mut add = |kind, offset, length| found.push(Signature { kind, is_table: true, offset, length });
    for place in gpt_places(bytes.size) {
        if bytes.has(place, b"EFI PART") && !gpt_entries(bytes, place).is_empty() {
            add("gpt", place, 8);
        }
    }
    // Boot sectors of file systems end with the same two bytes.
    let is_boot_sector = is_fat || bytes.has(3, b"NTFS    ") || bytes.has(3, b"EXFAT   ");
    if !is_boot_sector && !dos_entries(bytes).is_empty() {
        add("dos", 510, 2);
    }
    if bytes.has(512, b"PM\0\0") {
        add("mac", 512, 2);
    }
    if bytes.has(508, &[0xDA, 0xBE]) {
        add("sun", 508, 2);
    }
}

/// Offsets in bytes at which a GPT's header may be: in the second sector and the last one, of 512 or 4096 bytes.
fn gpt_places(size: u64) -> impl Iterator<Item = u64> {
    let end = |sector: u64| (size / sector).saturating_sub(1) * sector;
    [512, 4096, end(512), end(4096)].into_iter()
}

fn gpt_entries(bytes: &mut Bytes<'_, '_>, header: u64) -> Vec<Partition> {
    /// `6a898cc3-1dd2-11b2-99a6-080020736631` and `6a945a3b-…`, as they lie on disk.
    const SOLARIS: [[u8; 4]; 2] = [[0xC3, 0x8C, 0x89, 0x6A], [0x3B, 0x5A, 0x94, 0x6A]];
    const SOLARIS_REST: [u8; 12] = [0xD2, 0x1D, 0xB2, 0x11, 0x99, 0xA6, 0x08, 0x00, 0x20, 0x73, 0x66, 0x31];
    let mut found = Vec::new();
    let mut fields = || -> Option<(u64, u64, u64, u64)> {
        // A header knows where it is; that tells its sectors.
        let own = bytes.le64(header + 24)?;
        let sector = [512, 4096].into_iter().find(|sector| own.checked_mul(*sector) == Some(header))?;
        let (first, count, length) = (bytes.le64(header + 72)?, bytes.le32(header + 80)?, bytes.le32(header + 84)?);
        Some((sector, first.checked_mul(sector)?, u64::from(count).min(ENTRIES_MAX), u64::from(length).max(128)))
    };
    let Some((sector, first, count, length)) = fields() else { return found };
    for index in 0..count {
        let Some(entry) = index.checked_mul(length).and_then(|from| bytes.at(first.checked_add(from)?, 48)) else { break };
        if entry[..16].iter().all(|byte| *byte == 0) {
            continue;
        }
        let number = |at: usize| entry[at..at + 8].iter().rev().fold(0u64, |number, byte| number << 8 | u64::from(*byte));
        let (start, last) = (number(32), number(40));
        let Some(blocks) = last.checked_sub(start).map(|blocks| blocks.saturating_add(1)) else { continue };
        let is_of_pool = SOLARIS.iter().any(|begin| entry[..4] == *begin) && entry[4..16] == SOLARIS_REST;
        found.push(Partition { offset: start.saturating_mul(sector), length: blocks.saturating_mul(sector), is_of_pool });
    }
    found
}

fn dos_entries(bytes: &mut Bytes<'_, '_>) -> Vec<Partition> {
    /// Type of the entry that stands before a GPT: no table of its own.
    const PROTECTIVE: u8 = 0xEE;
    let Some(boot) = bytes.at(0, 512) else { return Vec::new() };
    if boot[510..] != [0x55, 0xAA] {
        return Vec::new();
    }
    let entries: Vec<&[u8]> = boot[446..510].chunks_exact(16).collect();
    if entries.iter().any(|entry| !matches!(entry[0], 0 | 0x80)) {
        return Vec::new();
    }
    let number = |entry: &[u8], at: usize| u64::from(u32::from_le_bytes([entry[at], entry[at + 1], entry[at + 2], entry[at + 3]]));
    let used = entries.into_iter().filter(|entry| entry[4] != 0 && entry[4] != PROTECTIVE && number(entry, 12) != 0);
    used.map(|entry| Partition { offset: number(entry, 8) * 512, length: number(entry, 12) * 512, is_of_pool: false }).collect()
}

/// The entries of the partition table of a device: of a GPT, else of its copy at the end, else of an MBR.
pub fn partitions(size: u64, read: &mut ReadBytes<'_>) -> Vec<Partition> {
    let mut bytes = Bytes { size, read, pieces: BTreeMap::new() };
    let gpt = gpt_places(size).find_map(|place| {
        let found = if bytes.has(place, b"EFI PART") { gpt_entries(&mut bytes, place) } else { Vec::new() };
        (!found.is_empty()).then_some(found)
    });
    gpt.unwrap_or_else(|| dos_entries(&mut bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: u64 = 64 << 20;

    /// A device as pieces at places; the rest is zero.
    fn look(pieces: &[(u64, &[u8])]) -> Vec<Signature> {
        let owned: Vec<(u64, Vec<u8>)> = pieces.iter().map(|(at, bytes)| (*at, bytes.to_vec())).collect();
        signatures(SIZE, &mut |offset, length| Some(piece(&owned, offset, length)))
    }

    fn piece(pieces: &[(u64, Vec<u8>)], offset: u64, length: usize) -> Vec<u8> {
        let mut out = vec![0; length];
        for (at, bytes) in pieces {
            for (index, byte) in bytes.iter().enumerate() {
                if let Some(slot) = (at + index as u64).checked_sub(offset).and_then(|from| out.get_mut(from as usize)) {
                    *slot = *byte;
                }
            }
        }
        out
    }

    fn kinds(found: &[Signature]) -> Vec<&'static str> {
        found.iter().map(|one| one.kind).collect()
    }

    /// What mkfs.minix writes, in its first and third version.
    #[test]
    fn minix_is_found() {
        let first = [0x50, 0x01, 0x00, 0x04, 1, 0, 1, 0, 0x0f, 0, 0, 0, 0, 0x1c, 8, 0x10, 0x8f, 0x13];
        let third = [0x60, 1, 0, 0, 0, 0, 1, 0, 1, 0, 0x0f, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0x7f, 0, 4, 0, 0, 0x5a, 0x4d, 0, 0, 0, 4];
        for superblock in [first.to_vec(), third.to_vec()] {
            let pieces = [(1024, superblock)];
            let found = signatures(1 << 20, &mut |offset, length| Some(piece(&pieces, offset, length)));
            assert_eq!(kinds(&found), ["minix"]);
        }
        let alone = [(1040, vec![0x8f, 0x13])];
        assert!(signatures(1 << 20, &mut |offset, length| Some(piece(&alone, offset, length))).is_empty(), "two bytes are not enough");
    }

    /// If this fails, a device with somebody's data is taken for an empty one.
    #[test]
    fn every_magic_is_found_at_its_place() {
        for (kind, offset, magic) in MAGICS {
            assert_eq!(kinds(&look(&[(*offset, magic)])), [*kind], "at {offset}");
        }
        for (kind, before, step, magic) in END_MAGICS {
            let found = look(&[(SIZE / step * step - before, magic)]);
            assert!(kinds(&found).contains(kind), "{before} before the end: {found:?}");
        }
        for (kind, magic) in SWAP_MAGICS {
            assert_eq!(kinds(&look(&[(4086, magic)])), [kind]);
            assert_eq!(kinds(&look(&[(65526, magic)])), [kind], "of another machine");
        }
        assert_eq!(kinds(&look(&[(512, b"LABELONE"), (536, b"LVM2 001")])), ["LVM2_member"]);
        // What these programs write first.
        let packed: [(&str, &[u8]); 11] = [
            ("gzip", &[0x1f, 0x8b, 8, 8, 0x50, 0x39, 0x1e, 0x66, 0, 3, b'a', 0]),
            ("zstd", &[0x28, 0xb5, 0x2f, 0xfd, 0x04, 0x58, 0x29, 0]),
            ("zip", &[b'P', b'K', 3, 4, 20, 0, 0, 0, 8, 0, 0x12, 0x5a]),
            ("bzip2", b"BZh91AY&SY\x01\x02"),
            ("bzip2", b"BZh9\x17rE8P\x90"),
            ("lz4", &[0x04, 0x22, 0x4d, 0x18, 0x64, 0x40, 0xa7]),
            ("cpio", b"070701000A1B2C000081A4"),
            ("cpio", b"0707070100020123451006440017500017500000010000001234567"),
            ("cpio", b"\xc7\x71\x01\x02\x03\x04\xa4\x81\0\0\0\0\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0a\0"),
            ("cpio", b"\x71\xc7\x01\x02\x03\x04\x81\xa4\0\0\0\0\0\x01\0\0\0\0\0\0\0\x02\0\0\0\0a\0"),
            ("elf", b"\x7fELF\x02\x01\x01\0"),
        ];
        for (kind, magic) in packed {
            assert_eq!(kinds(&look(&[(0, magic)])), [kind]);
        }
        // A member of a tar archive as in 1979.
        let mut member = vec![0; 512];
        member[..1].copy_from_slice(b"a");
        member[100..107].copy_from_slice(b"0100644");
        let sum = member.iter().map(|byte| u32::from(*byte)).sum::<u32>() + 256;
        member[148..156].copy_from_slice(format!("{sum:6o}\0 ").as_bytes());
        assert_eq!(kinds(&look(&[(0, &member[..])])), ["tar"]);
        member[0] = b'b';
        assert!(look(&[(0, &member[..])]).is_empty(), "another name has another checksum");
        assert!(look(&[]).is_empty());
    }

    /// If this fails, whoever makes a pool on a used disk needs `-f` each time, and uses it also when he should not.
    #[test]
    fn bytes_without_meaning_are_no_signatures() {
        assert!(look(&[(1080, &[0x53, 0xEF]), (1024 + 24, &[0xff; 4])]).is_empty(), "ext with blocks of 2^255");
        assert!(look(&[(510, &[0x55, 0xAA])]).is_empty(), "a boot sector without partitions");
        assert!(look(&[(0, &[0x5A; 512]), (510, &[0x55, 0xAA])]).is_empty(), "no table has such flags");
        assert!(look(&[(1024, b"BD")]).is_empty());
        assert!(look(&[(0, &[0x1f, 0x8b, 8, 0xff])]).is_empty(), "flags that gzip does not have");
        assert!(look(&[(0, &[0x28, 0xb5, 0x2f, 0xfd, 8])]).is_empty(), "a reserved bit");
        for text in [&b"BZh9 is a word"[..], b"070707 is a number", b"\xc7\x71 and more of no meaning at all", b"\x7fELF\x09\x09\x09"] {
            assert!(look(&[(0, text)]).is_empty(), "{text:?}");
        }
        assert!(look(&[(0, &[0x04, 0x22, 0x4d, 0x18, 0xff, 0xff])]).is_empty(), "no version of a frame of LZ4");
        assert!(look(&[(0, b"PK\x03\x04\xff\xff\xff\xff\xff\xff")]).is_empty(), "no method of zip");
        assert!(signatures(100, &mut |_, _| None).is_empty(), "nothing can be read");
        assert!(signatures(SIZE, &mut |_, _| None).is_empty());
    }

    fn gpt(header: u64, kind: [u8; 16]) -> Vec<(u64, Vec<u8>)> {
        let entries = header + 512;
        let mut fields = b"EFI PART".to_vec();
        fields.resize(92, 0);
        fields[24..32].copy_from_slice(&(header / 512).to_le_bytes());
        fields[72..80].copy_from_slice(&(entries / 512).to_le_bytes());
        fields[80..84].copy_from_slice(&128u32.to_le_bytes());
        fields[84..88].copy_from_slice(&128u32.to_le_bytes());
        let mut entry = kind.to_vec();
        entry.resize(32, 7);
        entry.extend(2048u64.to_le_bytes());
        entry.extend(4095u64.to_le_bytes());
        vec![(header, fields), (entries, entry)]
    }

    /// If this fails, partitions vanish below a pool that was made on the whole disk.
    #[test]
    fn partition_tables_with_entries_count() {
        let found = |pieces: &[(u64, Vec<u8>)]| signatures(SIZE, &mut |at, length| Some(piece(pieces, at, length)));
        let parts = |pieces: &[(u64, Vec<u8>)]| partitions(SIZE, &mut |at, length| Some(piece(pieces, at, length)));
        let linux = gpt(512, [9; 16]);
        assert_eq!(found(&linux), [Signature { kind: "gpt", is_table: true, offset: 512, length: 8 }]);
        assert_eq!(parts(&linux), [Partition { offset: 1 << 20, length: 1 << 20, is_of_pool: false }]);
        assert!(found(&linux[..1]).is_empty(), "an empty table");
        let mut solaris = vec![0xC3, 0x8C, 0x89, 0x6A];
        solaris.extend([0xD2, 0x1D, 0xB2, 0x11, 0x99, 0xA6, 0x08, 0x00, 0x20, 0x73, 0x66, 0x31]);
        assert!(parts(&gpt(512, solaris.try_into().expect("16 bytes")))[0].is_of_pool);
        let mut dos = vec![0; 66];
        (dos[4], dos[8], dos[13], dos[64], dos[65]) = (0x83, 8, 1, 0x55, 0xAA);
        assert_eq!(kinds(&found(&[(446, dos.clone())])), ["dos"]);
        assert_eq!(parts(&[(446, dos.clone())]), [Partition { offset: 4096, length: 256 * 512, is_of_pool: false }]);
        dos[4] = 0xEE;
        assert!(found(&[(446, dos)]).is_empty(), "what protects a GPT is none itself");
    }
}
