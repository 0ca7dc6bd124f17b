//! Blocks of intent logs: encrypted but for what a claim must follow without a key (OpenZFS: `zio_crypt_init_uios_zil`).
//!
//! ```text
//! link of the block      next block, bytes used       plain, authenticated
//!                        magic, half of the checksum  plain
//!                        MAC                          in place of the other half
//! each record            length, txg, number, type    plain, authenticated
//!                        pointers of blocks           plain, authenticated: of a write, and of a range that shares blocks with their number
//!                        everything else              encrypted, the records of a block as one text
//! behind the used bytes  zeros
//! ```
//! The block before names a block's salt and vector, in its pointer: so a block has them before anybody knows what will be in it, and is encrypted once.

use crate::block::{gathered, put_back};
use crate::{CryptError, DataKey, Iv, Mac, Salt, random};
use ondisk::zil::{LrCommon, LrWrite, TxType};
use ondisk::{BlockPtr, ByteOrder, ZilChain, ZioEck};
use std::ops::Range;
use zeroize::Zeroizing;

/// Offset in bytes of the link's trailer, which is not authenticated: its checksum is made last.
const TRAILER_AT: usize = 144;
/// Place of the MAC in the trailer, behind the magic and two words of the checksum.
const MAC_AT: Range<usize> = TRAILER_AT + 24..ZilChain::SIZE;
/// Offset in bytes of what is plain in records with pointers: that of a write (`lr_blkptr`), the number and pointers of shared blocks (`lr_nbps`).
const POINTERS_AT: usize = 64;

/// Block of a log, taken apart.
struct LogBlock {
    /// Bytes that are authenticated.
    aad: Vec<u8>,
    /// Places that are encrypted, in order.
    encrypted: Vec<Range<usize>>,
    /// Bytes of the block that count.
    used: usize,
}

impl LogBlock {
    /// Takes a block with its link at the beginning (`zilog2`) apart, in its writer's byte order: whether its records are encrypted by now changes nothing.
    /// Error: `Form`.
    fn take_apart(block: &[u8]) -> Result<LogBlock, CryptError> {
        let orders = [ByteOrder::Little, ByteOrder::Big];
        let found = orders.into_iter().find_map(|order| {
            let link = ZilChain::decode_order(block, order).ok()?;
            (link.zc_eck.zec_magic == ZioEck::MAGIC).then_some((order, link.zc_nused))
        });
        let (order, used) = found.ok_or(CryptError::Form)?;
        let used = usize::try_from(used).ok().filter(|used| (ZilChain::SIZE..=block.len()).contains(used)).ok_or(CryptError::Form)?;
        let mut parts = LogBlock { aad: block[..TRAILER_AT].to_vec(), encrypted: Vec::new(), used };
        let mut at = ZilChain::SIZE;
        while at < used {
            at += parts.add(at, &block[at..used], order)?;
        }
        Ok(parts)
    }

    /// Adds the record that lies at `at`, the first of `records`, and gives its length. Error: `Form`.
    fn add(&mut self, at: usize, records: &[u8], order: ByteOrder) -> Result<usize, CryptError> {
        let common = LrCommon::decode_order(records, order).map_err(|_| CryptError::Form)?;
        let length = usize::try_from(common.lrc_reclen).ok().filter(|length| (LrCommon::SIZE..=records.len()).contains(length));
        let length = length.ok_or(CryptError::Form)?;
        let plain = match TxType(common.lrc_txtype) {
            TxType::WRITE => POINTERS_AT..LrWrite::SIZE,
            TxType::CLONE_RANGE => POINTERS_AT..length,
            _ => length..length,
        };
        let pointers = records[..length].get(plain.clone()).ok_or(CryptError::Form)?;
        self.aad.extend_from_slice(&records[..LrCommon::SIZE]);
        self.aad.extend_from_slice(pointers);
        let around = [LrCommon::SIZE..plain.start, plain.end..length];
        self.encrypted.extend(around.into_iter().filter(|place| !place.is_empty()).map(|place| at + place.start..at + place.end));
        Ok(length)
    }
}

/// Key of a dataset, as its log uses it.
#[derive(Clone, Copy)]
pub struct LogKey<'key>(pub &'key DataKey);

impl LogKey<'_> {
    /// Salt and vector for a block that is allocated now: its pointer gets them (OpenZFS: `zio_alloc_zil`). Error: `Random`.
    pub fn salt_and_iv(&self) -> Result<(Salt, Iv), CryptError> {
        Ok((self.0.salt_to_write()?, random::bytes()?))
    }

    /// Encrypts a block of a log where it is, with the salt and the vector of its pointer, and puts its MAC into its link; what is left is its checksum.
    /// Nothing else may ever be encrypted with that salt and vector.
    ///
    /// Errors: `Form` for what is no such block; `Size`.
    pub fn seal(&self, bp: &BlockPtr, block: &mut [u8]) -> Result<(), CryptError> {
        let parts = LogBlock::take_apart(block)?;
        let mut records = Zeroizing::new(gathered(&parts.encrypted, block));
        let mac = self.0.cipher(&bp.salt())?.seal(&bp.iv(), &parts.aad, &mut records)?;
        put_back(&parts.encrypted, &records, block);
        block[parts.used..].fill(0);
        block[MAC_AT].copy_from_slice(&mac);
        Ok(())
    }

    /// Bytes of a block of a log as they were before it was encrypted, but for its link's trailer.
    ///
    /// Errors: `Authentication`; `Form` for what is no such block.
    pub fn open(&self, bp: &BlockPtr, stored: &[u8]) -> Result<Vec<u8>, CryptError> {
        let parts = LogBlock::take_apart(stored)?;
        let sealed = gathered(&parts.encrypted, stored);
        let mut mac = Mac::default();
        mac.copy_from_slice(&stored[MAC_AT]);
        let mut records = Zeroizing::new(vec![0u8; sealed.len()]);
        self.0.cipher(&bp.salt())?.open(&bp.iv(), &parts.aad, &mac, &sealed, &mut records)?;
        let mut plain = stored.to_vec();
        put_back(&parts.encrypted, &records, &mut plain);
        plain[parts.used..].fill(0);
        Ok(plain)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{KEY_VERSION, Secret, Suite};
    use ondisk::{Field, ObjectType};
    use sha2::{Digest, Sha256};

    const BYTES: usize = 4096;
    /// Bytes that count of a block with records.
    const USED: usize = 1280;

    /// Records of the block: type and length.
    const RECORDS: [(u64, usize); 6] = [
        (TxType::REMOVE.0, 64),
        (TxType::WRITE.0, LrWrite::SIZE + 104),
        (TxType::WRITE.0, LrWrite::SIZE),
        (TxType::CLONE_RANGE.0, 72 + 2 * BlockPtr::BYTES),
        (TxType::TRUNCATE.0, 56),
        (TxType::CREATE.0 | ondisk::zil::TX_CI, 160),
    ];

    /// MACs and SHA-256 of what OpenZFS 2.3.2 (`zio_do_crypt_data`) makes of [`block`] with [`key`] and [`pointer`], for each suite and byte order.
    const KNOWN: [(Suite, ByteOrder, &str, &str); 12] = [
        (
            Suite::Aes128Ccm,
            ByteOrder::Little,
            "9128c324753c843f1b45db2e6a28bbfc",
            "084d406e0182849af89f69ce158ded4810ba936dd35fd65a7f08f373d2a6d92b",
        ),
        (
            Suite::Aes192Ccm,
            ByteOrder::Little,
            "3d741d69127ef01d06cd1d9524b7e568",
            "9c3d660bd62d12f3e288061661112aab76d30eccfbdd4db6b7750cdbdc253500",
        ),
        (
            Suite::Aes256Ccm,
            ByteOrder::Little,
            "2889a5a4ac035097c4635aae57c1956c",
            "e63a1a9b8bb2be486f72bade217d09f13fb2202d65c7f9b71dc48d3c09fc0ae1",
        ),
        (
            Suite::Aes128Gcm,
            ByteOrder::Little,
            "249027ab2cc2afd89839e69b1798e0ce",
            "527001e219b249d59fd5e1b49fa4b1431026887376cedd556cdf218a2c9d8571",
        ),
        (
            Suite::Aes192Gcm,
            ByteOrder::Little,
            "42526f76fdc9445b29f6d15ea8d22a71",
            "00c44722b91d6d802c28726e33131d73e166c60bbb5f23e941a9ec860396234e",
        ),
        (
            Suite::Aes256Gcm,
            ByteOrder::Little,
            "fa169857a205585ec1593112f460023b",
            "005a3b5483f1939e1cd608ca292a9f4bbe1d04f5ed549091ad30bf08822b0627",
        ),
        (
            Suite::Aes128Ccm,
            ByteOrder::Big,
            "f2e729abb5e830147818cea1f6a944b4",
            "33f38d69b9fa4c02d33f6ab0b2b8942a69d3957e5dc98a5cf0e176b242cb52f0",
        ),
        (
            Suite::Aes192Ccm,
            ByteOrder::Big,
            "fb02e0b0e76f8fbc0a52873f26775af1",
            "e529914e576e8200fb1528b48ae04d251489ebe6e92e055645c11ecc1327adbc",
        ),
        (
            Suite::Aes256Ccm,
            ByteOrder::Big,
            "dacc48e70deda7cfdf2691636a9928f5",
            "889c759afcb6d2af0fcd465731aa235dcc4264329e00655cc6ca0a3042b7b3f2",
        ),
        (
            Suite::Aes128Gcm,
            ByteOrder::Big,
            "41b294294239bf68f2a7944373f0223d",
            "652b380f5f61fad5167b69de5ebc10fde36da4577f54b7b716e77e80defe16a6",
        ),
        (
            Suite::Aes192Gcm,
            ByteOrder::Big,
            "a587b4c79a19e4b229c271be7dcadeb0",
            "c558658c0b05091869c2940ab24e3eaf59e72bdb3f91111869aa06cf89097a16",
        ),
        (
            Suite::Aes256Gcm,
            ByteOrder::Big,
            "7561662711cf5985b77905160c76134a",
            "9246f8511ac23a681b379e048a03512f2d4319eaa6d82db55072ecb5e53866cf",
        ),
    ];

    /// Keys of the bytes 1, 2, 3 … and 101, 102, 103 ….
    fn key(suite: Suite) -> DataKey {
        let master = suite.key_bytes();
        let keys = Secret::new(DataKey::bytes_of(suite), |bytes| {
            for (index, byte) in bytes.iter_mut().enumerate() {
                let value = if index < master { index + 1 } else { index - master + 101 };
                *byte = value as u8;
            }
        });
        DataKey::new(suite, 7, KEY_VERSION, keys).expect("as many bytes as it takes")
    }

    fn pointer() -> BlockPtr {
        let mut bp = BlockPtr::HOLE;
        bp.set_object_type(ObjectType::INTENT_LOG);
        bp.set_little_endian(true);
        bp.set_uses_crypt(true);
        bp.set_salt_and_iv(std::array::from_fn(|index| 0x30 + index as u8), std::array::from_fn(|index| 0x50 + index as u8));
        bp
    }

    /// A block with these records, of which all but the common parts are what their places give; what is behind them is no zeros.
    fn block(records: &[(u64, usize)], order: ByteOrder) -> Vec<u8> {
        let mut block = vec![0; BYTES];
        (8..136).for_each(|at| block[at] = (at * 7 + 3) as u8);
        let mut at = ZilChain::SIZE;
        for (index, (kind, bytes)) in records.iter().enumerate() {
            (at..at + bytes).for_each(|at| block[at] = (at * 31 + at / 256) as u8);
            let common = LrCommon { lrc_txtype: *kind, lrc_reclen: *bytes as u64, lrc_txg: 77, lrc_seq: index as u64 + 1 };
            common.put(&mut block[at..at + LrCommon::SIZE], order);
            at += bytes;
        }
        (at as u64).put(&mut block[136..144], order);
        ZioEck::MAGIC.put(&mut block[TRAILER_AT..TRAILER_AT + 8], order);
        block[at..].fill(0xEE);
        block
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// If this fails, OpenZFS cannot replay what was made durable here, or the other way round.
    #[test]
    fn blocks_are_encrypted_as_openzfs_does() {
        for (suite, order, mac, sum) in KNOWN {
            let (key, bp, plain) = (key(suite), pointer(), block(&RECORDS, order));
            let mut stored = plain.clone();
            LogKey(&key).seal(&bp, &mut stored).expect("it encrypts");
            assert_eq!(hex(&stored[MAC_AT]), mac, "{suite:?} {order:?}");
            // The sum is of a block without its trailer.
            let mut untrailed = stored.clone();
            untrailed[TRAILER_AT..ZilChain::SIZE].fill(0);
            assert_eq!(hex(&Sha256::digest(&untrailed)), sum, "{suite:?} {order:?}");
            let opened = LogKey(&key).open(&bp, &stored).expect("it decrypts");
            assert!(opened[..TRAILER_AT] == plain[..TRAILER_AT] && opened[ZilChain::SIZE..USED] == plain[ZilChain::SIZE..USED]);
            assert!(opened[USED..].iter().all(|byte| *byte == 0));
        }
    }

    /// If this fails, a block without records, which OpenZFS may write, ends a log before its end.
    #[test]
    fn a_block_without_records_is_authenticated_alone() {
        for (suite, mac) in [(Suite::Aes128Ccm, "9d264436046c2f2999a4e494960361c0"), (Suite::Aes256Gcm, "47aa4e1eabc36f9866f86e4b46ab28e1")]
        {
            let (key, bp, mut stored) = (key(suite), pointer(), block(&[], ByteOrder::Little));
            LogKey(&key).seal(&bp, &mut stored).expect("it encrypts");
            assert_eq!(hex(&stored[MAC_AT]), mac, "{suite:?}");
            assert!(LogKey(&key).open(&bp, &stored).is_ok());
        }
    }

    /// If this fails, somebody who can write to the devices has other operations replayed than those that were logged, or makes whoever reads crash.
    #[test]
    fn a_bit_changed_anywhere_is_noticed() {
        let (key, bp) = (key(Suite::Aes256Gcm), pointer());
        let mut stored = block(&RECORDS, ByteOrder::Little);
        LogKey(&key).seal(&bp, &mut stored).expect("it encrypts");
        // The magic tells the byte order; the checksum beside the MAC is the devices' affair.
        let places = (0..TRAILER_AT + 8).chain(MAC_AT).chain(ZilChain::SIZE..USED);
        for at in places {
            stored[at] ^= 0x10;
            assert!(LogKey(&key).open(&bp, &stored).is_err(), "byte {at}");
            stored[at] ^= 0x10;
        }
        assert!(LogKey(&key).open(&bp, &stored).is_ok());
        for bytes in [0, 8, 100, 183, 184, 1000, USED - 1] {
            assert_eq!(LogKey(&key).open(&bp, &stored[..bytes]), Err(CryptError::Form), "{bytes} bytes");
        }
        let mut short = block(&[(TxType::WRITE.0, LrWrite::SIZE - 8)], ByteOrder::Little);
        assert_eq!(LogKey(&key).seal(&bp, &mut short), Err(CryptError::Form), "a write without room for its pointer");
    }
}
