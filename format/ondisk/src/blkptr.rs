//! The block pointer (OpenZFS: `blkptr_t`, `spa.h`): 16 words of 64 bits, kept in native word order, with accessors.

use crate::{Checksum, Compression, ObjectType, Txg, VdevId};

/// Bytes of data that an embedded block pointer can carry.
pub const EMBEDDED_PAYLOAD_BYTES: usize = 112;

/// Kind of what an embedded block pointer holds (OpenZFS: `bp_embedded_type_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EmbeddedKind(pub u8);
impl EmbeddedKind {
    /// Kind of file data.
    pub const DATA: EmbeddedKind = EmbeddedKind(0);
    /// Kind that is reserved.
    pub const RESERVED: EmbeddedKind = EmbeddedKind(1);
    /// Kind of a redaction.
    pub const REDACTED: EmbeddedKind = EmbeddedKind(2);
}

/// A data virtual address: where one copy of a block lies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Dva {
    /// Top-level vdev.
    pub vdev: VdevId,
    /// Offset in the vdev's allocatable space, in bytes (the labels' 4 MiB are not counted).
    pub offset: u64,
    /// Allocated bytes, parity and padding included.
    pub asize: u64,
    /// True when the block at this address is a gang header.
    pub gang: bool,
}

impl Dva {
    /// True when this slot of the block pointer is not used.
    pub fn is_empty(&self) -> bool {
        self.asize == 0
    }
    /// Makes an address from the two on-disk words.
    pub fn from_words(w: [u64; 2]) -> Dva {
        Dva {
            vdev: VdevId((w[0] >> 32) as u32 & 0x00FF_FFFF),
            asize: (w[0] & 0x00FF_FFFF) << 9,
            offset: (w[1] & !(1 << 63)) << 9,
            gang: w[1] >> 63 != 0,
        }
    }
    /// Returns the two on-disk words.
    pub fn to_words(self) -> [u64; 2] {
        [u64::from(self.vdev.0) << 32 | self.asize >> 9, self.offset >> 9 | u64::from(self.gang) << 63]
    }
}

/// A block pointer: up to three addresses with checksum, sizes, types and birth; or a hole; or embedded data.
///
/// Words: 0–5 the DVAs, 6 properties, 7–8 padding, 9 physical birth, 10 birth, 11 fill, 12–15 checksum.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct BlockPtr(pub [u64; 16]);

const PROP: usize = 6;
const FILL: usize = 11;
/// The lower half of a word.
const LOW: u64 = 0xFFFF_FFFF;

impl BlockPtr {
    /// Size on disk, in bytes.
    pub const BYTES: usize = 128;
    /// A hole that was never written.
    pub const HOLE: BlockPtr = BlockPtr([0; 16]);

    fn bits(&self, low: u32, count: u32) -> u64 {
        self.0[PROP] >> low & ((1 << count) - 1)
    }
    fn set_bits(&mut self, low: u32, count: u32, value: u64) {
        let mask = ((1u64 << count) - 1) << low;
        self.0[PROP] = self.0[PROP] & !mask | value << low & mask;
    }

    /// Decodes from 128 bytes; `little` is the byte order of the block that holds the pointer.
    pub fn decode(bytes: &[u8; 128], little: bool) -> BlockPtr {
        let mut words = [0; 16];
        for (word, raw) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            let raw: [u8; 8] = raw.try_into().expect("chunks of eight");
            *word = if little { u64::from_le_bytes(raw) } else { u64::from_be_bytes(raw) };
        }
        BlockPtr(words)
    }
    /// Encodes the pointer in little-endian.
    pub fn encode(&self) -> [u8; 128] {
        let mut out = [0; 128];
        for (raw, word) in out.chunks_exact_mut(8).zip(self.0) {
            raw.copy_from_slice(&word.to_le_bytes());
        }
        out
    }

    /// Address of copy `n` (0–2).
    pub fn dva(&self, n: usize) -> Dva {
        if self.is_embedded() { Dva::default() } else { Dva::from_words([self.0[2 * n], self.0[2 * n + 1]]) }
    }
    /// Sets copy `n` (0–2).
    pub fn set_dva(&mut self, n: usize, dva: Dva) {
        let words = dva.to_words();
        self.0[2 * n] = words[0];
        self.0[2 * n + 1] = words[1];
    }
    /// The addresses by copy, empty ones where there is no copy: the third of an encrypted block is none, whatever its words say.
    pub fn addresses(&self) -> [Dva; 3] {
        let third = if self.is_encrypted() { Dva::default() } else { self.dva(2) };
        [self.dva(0), self.dva(1), third]
    }
    /// The copies in use.
    pub fn dvas(&self) -> impl Iterator<Item = Dva> + '_ {
        self.addresses().into_iter().filter(|dva| !dva.is_empty())
    }
    /// True for no data (with or without a birth).
    pub fn is_hole(&self) -> bool {
        !self.is_embedded() && self.0[0] == 0 && self.0[1] == 0
    }
    /// True when the data lies in the pointer itself.
    pub fn is_embedded(&self) -> bool {
        self.bits(39, 1) != 0
    }
    /// True when the first address is a gang header.
    pub fn is_gang(&self) -> bool {
        !self.is_embedded() && self.dva(0).gang
    }
    /// True for an encrypted level-0 block (two DVAs, the third carries salt and IV) or authenticated metadata.
    pub fn uses_crypt(&self) -> bool {
        self.bits(61, 1) != 0
    }
    /// True when the third DVA carries salt and IV.
    pub fn is_encrypted(&self) -> bool {
        self.uses_crypt() && self.level() == 0 && self.object_type().is_encrypted()
    }
    /// Sets or clears the mark of blocks of encrypted datasets.
    pub fn set_uses_crypt(&mut self, uses: bool) {
        self.set_bits(61, 1, u64::from(uses));
    }

    /// A word that holds a string of bytes: it lies in the order of the block's contents (OpenZFS: `BP_SHOULD_BYTESWAP`).
    fn string(&self, word: usize) -> [u8; 8] {
        if self.is_little_endian() { self.0[word].to_le_bytes() } else { self.0[word].to_be_bytes() }
    }
    fn set_string(&mut self, word: usize, bytes: [u8; 8]) {
        self.0[word] = if self.is_little_endian() { u64::from_le_bytes(bytes) } else { u64::from_be_bytes(bytes) };
    }
    /// Salt of an encrypted block's key (OpenZFS: `zio_crypt_decode_params_bp`).
    pub fn salt(&self) -> [u8; 8] {
        self.string(4)
    }
    /// Initialization vector of an encrypted block: eight bytes in the third address, four above the fill count.
    pub fn iv(&self) -> [u8; 12] {
        let end = (self.0[FILL] >> 32) as u32;
        let end = if self.is_little_endian() { end.to_le_bytes() } else { end.to_be_bytes() };
        let mut iv = [0; 12];
        iv[..8].copy_from_slice(&self.string(5));
        iv[8..].copy_from_slice(&end);
        iv
    }
    /// Sets salt and initialization vector; the byte order and the fill count come first (OpenZFS: `zio_crypt_encode_params_bp`).
    pub fn set_salt_and_iv(&mut self, salt: [u8; 8], iv: [u8; 12]) {
        let (mut start, mut end) = ([0; 8], [0; 4]);
        start.copy_from_slice(&iv[..8]);
        end.copy_from_slice(&iv[8..]);
        self.set_string(4, salt);
        self.set_string(5, start);
        let end = if self.is_little_endian() { u32::from_le_bytes(end) } else { u32::from_be_bytes(end) };
        self.0[FILL] = u64::from(end) << 32 | self.0[FILL] & LOW;
    }
    /// MAC of a block of an encrypted dataset: the second half of its checksum (OpenZFS: `zio_crypt_decode_mac_bp`).
    pub fn mac(&self) -> [u8; 16] {
        let mut mac = [0; 16];
        mac[..8].copy_from_slice(&self.string(14));
        mac[8..].copy_from_slice(&self.string(15));
        mac
    }
    /// Sets the MAC; the byte order comes first.
    pub fn set_mac(&mut self, mac: [u8; 16]) {
        for (word, bytes) in [14, 15].into_iter().zip(mac.as_chunks::<8>().0) {
            self.set_string(word, *bytes);
        }
    }
    /// The words of the checksum that a pointer with a MAC keeps.
    pub fn set_checksum_half(&mut self, words: [u64; 2]) {
        self.0[12..14].copy_from_slice(&words);
    }
    /// Logical size in bytes.
    pub fn lsize(&self) -> usize {
        if self.is_embedded() { self.bits(0, 25) as usize + 1 } else { (self.bits(0, 16) as usize + 1) << 9 }
    }
    /// Sets the logical size in bytes.
    pub fn set_lsize(&mut self, bytes: usize) {
        if self.is_embedded() { self.set_bits(0, 25, bytes as u64 - 1) } else { self.set_bits(0, 16, (bytes as u64 >> 9) - 1) }
    }
    /// Physical (compressed) size in bytes.
    pub fn psize(&self) -> usize {
        if self.is_embedded() { self.bits(25, 7) as usize + 1 } else { (self.bits(16, 16) as usize + 1) << 9 }
    }
    /// Sets the physical size in bytes.
    pub fn set_psize(&mut self, bytes: usize) {
        if self.is_embedded() { self.set_bits(25, 7, bytes as u64 - 1) } else { self.set_bits(16, 16, (bytes as u64 >> 9) - 1) }
    }
    /// Sum of the copies' allocated bytes.
    pub fn asize(&self) -> u64 {
        self.dvas().map(|dva| dva.asize).sum()
    }
    /// Compression of the payload.
    pub fn compression(&self) -> Compression {
        Compression(self.bits(32, 7) as u8)
    }
    /// Sets the compression.
    pub fn set_compression(&mut self, compression: Compression) {
        self.set_bits(32, 7, u64::from(compression.0));
    }
    /// Checksum algorithm; meaningless when embedded.
    pub fn checksum_kind(&self) -> Checksum {
        Checksum(self.bits(40, 8) as u8)
    }
    /// Sets the checksum algorithm.
    pub fn set_checksum_kind(&mut self, checksum: Checksum) {
        self.set_bits(40, 8, u64::from(checksum.0));
    }
    /// Kind of what an embedded pointer holds.
    pub fn embedded_kind(&self) -> EmbeddedKind {
        EmbeddedKind(self.bits(40, 8) as u8)
    }
    /// Type of the object that the block belongs to.
    pub fn object_type(&self) -> ObjectType {
        ObjectType(self.bits(48, 8) as u8)
    }
    /// Sets the type.
    pub fn set_object_type(&mut self, kind: ObjectType) {
        self.set_bits(48, 8, u64::from(kind.0));
    }
    /// Level: 0 is data, above are indirect blocks.
    pub fn level(&self) -> u8 {
        self.bits(56, 5) as u8
    }
    /// Sets the level.
    pub fn set_level(&mut self, level: u8) {
        self.set_bits(56, 5, u64::from(level));
    }
    /// True when the block takes part in dedup.
    pub fn is_dedup(&self) -> bool {
        self.bits(62, 1) != 0
    }
    /// Says whether the block takes part in dedup.
    pub fn set_dedup(&mut self, takes_part: bool) {
        self.set_bits(62, 1, u64::from(takes_part));
    }
    /// True when the block's contents are little-endian.
    pub fn is_little_endian(&self) -> bool {
        self.bits(63, 1) != 0
    }
    /// Sets the byte order of the block's contents.
    pub fn set_little_endian(&mut self, little: bool) {
        self.set_bits(63, 1, u64::from(little));
    }
    /// Txg of the logical birth.
    pub fn birth(&self) -> Txg {
        Txg(self.0[10])
    }
    /// Sets logical and physical birth (the physical word is 0 when they are equal).
    pub fn set_birth(&mut self, logical: Txg, physical: Txg) {
        self.0[10] = logical.0;
        if !self.is_embedded() {
            self.0[9] = if logical == physical { 0 } else { physical.0 };
        }
    }
    /// Txg when the data was written to the device.
    pub fn physical_birth(&self) -> Txg {
        if self.is_embedded() || self.0[9] == 0 { self.birth() } else { Txg(self.0[9]) }
    }
    /// Number of non-hole blocks below, or of allocated dnodes for a block of dnodes.
    pub fn fill(&self) -> u64 {
        if self.is_embedded() {
            1
        } else if self.is_encrypted() {
            self.0[FILL] & LOW
        } else {
            self.0[FILL]
        }
    }
    /// Sets the fill count; an encrypted block's is one of 32 bits, beside the end of its IV.
    pub fn set_fill(&mut self, fill: u64) {
        if self.is_encrypted() {
            self.0[FILL] = self.0[FILL] & !LOW | fill & LOW;
        } else if !self.is_embedded() {
            self.0[FILL] = fill;
        }
    }
    /// The checksum's four words.
    pub fn checksum(&self) -> [u64; 4] {
        [self.0[12], self.0[13], self.0[14], self.0[15]]
    }
    /// Sets the checksum's four words.
    pub fn set_checksum(&mut self, words: [u64; 4]) {
        self.0[12..].copy_from_slice(&words);
    }

    const PAYLOAD_WORDS: [usize; 14] = [0, 1, 2, 3, 4, 5, 7, 8, 9, 11, 12, 13, 14, 15];

    /// An embedded pointer with `payload` (≤ 112 bytes, compressed with `compression`) for `lsize` logical bytes.
    pub fn embedded(payload: &[u8], lsize: usize, compression: Compression, kind: ObjectType, level: u8, birth: Txg) -> BlockPtr {
        let mut bp = BlockPtr::HOLE;
        bp.set_bits(39, 1, 1);
        bp.set_bits(40, 8, 0);
        bp.set_lsize(lsize);
        bp.set_psize(payload.len());
        bp.set_compression(compression);
        bp.set_object_type(kind);
        bp.set_level(level);
        bp.set_little_endian(true);
        bp.0[10] = birth.0;
        for (index, chunk) in payload.chunks(8).enumerate() {
            let mut raw = [0; 8];
            raw[..chunk.len()].copy_from_slice(chunk);
            bp.0[Self::PAYLOAD_WORDS[index]] = u64::from_le_bytes(raw);
        }
        bp
    }
    /// The payload of an embedded pointer.
    pub fn embedded_payload(&self) -> Vec<u8> {
        let mut out: Vec<u8> = Self::PAYLOAD_WORDS.iter().flat_map(|&word| self.0[word].to_le_bytes()).collect();
        out.truncate(self.psize());
        out
    }
}

impl std::fmt::Debug for BlockPtr {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.is_hole() {
            return write!(f, "HOLE [L{} {}] birth={}", self.level(), self.object_type(), self.birth());
        }
        if self.is_embedded() {
            write!(f, "EMBEDDED ")?;
        }
        for dva in self.dvas() {
            write!(f, "{}DVA<{}:{:x}:{:x}> ", if dva.gang { "GANG " } else { "" }, dva.vdev, dva.offset, dva.asize)?;
        }
        write!(f, "[L{} {}] {} {} ", self.level(), self.object_type(), self.checksum_kind(), self.compression())?;
        write!(f, "size={:x}L/{:x}P birth={}L/{}P fill={}", self.lsize(), self.psize(), self.birth(), self.physical_birth(), self.fill())
    }
}
