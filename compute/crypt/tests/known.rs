//! Blocks of encrypted datasets that OpenZFS 2.3.2 wrote, one dataset for each suite: whoever reads them wrongly loses what users encrypted.
//!
//! `*.txt` is a key object and, for each block, its pointer, place and length in `*.bin` (zeros at its end are left out) and the SHA-256 of what it
//! decrypts to. Blocks of pointers are there as decompressed.

use crypt::{CryptError, DataKey, ObjsetMacs, Protection, Suite, WrappedKey, WrappingKey, indirect_is_right, protection};
use ondisk::{BlockPtr, ObjectType};
use sha2::{Digest, Sha256};

macro_rules! dataset {
    ($name:literal) => {
        (include_str!(concat!("data/", $name, ".txt")), include_bytes!(concat!("data/", $name, ".bin")).as_slice())
    };
}

const DATASETS: [(&str, &[u8]); 6] = [
    dataset!("aes-128-ccm"),
    dataset!("aes-192-ccm"),
    dataset!("aes-256-ccm"),
    dataset!("aes-128-gcm"),
    dataset!("aes-192-gcm"),
    dataset!("aes-256-gcm"),
];

fn raw_key() -> [u8; 32] {
    std::array::from_fn(|index| 0x40 + index as u8)
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits = hex.as_bytes().chunks_exact(2).map(|pair| std::str::from_utf8(pair).expect("digits"));
    digits.map(|pair| u8::from_str_radix(pair, 16).expect("hexadecimal")).collect()
}

fn array<const N: usize>(hex: &str) -> [u8; N] {
    bytes(hex).try_into().expect("the length of its field")
}

fn value<'a>(text: &'a str, key: &str) -> &'a str {
    text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')).expect(key)
}

fn wrapped(text: &str) -> WrappedKey {
    let number = |key| value(text, key).parse::<u64>().expect("a number");
    WrappedKey {
        suite: Suite::from_number(number("suite")).expect("a suite"),
        guid: number("guid"),
        version: number("version"),
        iv: array(value(text, "iv")),
        mac: array(value(text, "mac")),
        master: array(value(text, "master")),
        hmac: array(value(text, "hmac")),
    }
}

fn key(text: &str) -> DataKey {
    wrapped(text).open(&WrappingKey::raw(&raw_key()).expect("32 bytes")).expect("the right key")
}

struct Block {
    bp: BlockPtr,
    stored: Vec<u8>,
    sha256: Vec<u8>,
}

fn blocks(text: &str, all: &[u8]) -> Vec<Block> {
    let lines = text.lines().filter_map(|line| line.strip_prefix("block "));
    lines
        .map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            let [bp, at, length, sha256] = words[..] else { panic!("{line}") };
            let bp = BlockPtr::decode(&array(bp), true);
            let (at, length): (usize, usize) = (at.parse().expect("a place"), length.parse().expect("a length"));
            let mut stored = all[at..at + length].to_vec();
            stored.resize(if bp.level() > 0 { bp.lsize() } else { bp.psize() }, 0);
            Block { bp, stored, sha256: bytes(sha256) }
        })
        .collect()
}

/// Bytes that a block decrypts to, or why it does not.
fn plain(key: &DataKey, block: &Block) -> Result<Vec<u8>, CryptError> {
    let (bp, mut plain) = (&block.bp, block.stored.clone());
    match protection(bp) {
        Protection::Encrypted => key.open(bp, &block.stored, &mut plain)?,
        Protection::Authenticated => key.authenticate(bp, &block.stored)?,
        Protection::Objset => key.authenticate_objset(&block.stored, true)?,
        Protection::Pointers if indirect_is_right(bp, &block.stored) => {}
        Protection::Pointers => return Err(CryptError::Authentication),
        Protection::None | Protection::Log => panic!("{bp:?}"),
    }
    Ok(plain)
}

#[test]
fn blocks_of_every_suite_and_kind_decrypt() {
    for (text, all) in DATASETS {
        let (key, mut kinds) = (key(text), Vec::new());
        for block in blocks(text, all) {
            let plain = plain(&key, &block).unwrap_or_else(|error| panic!("{:?} {:?}: {error}", key, block.bp));
            assert_eq!(Sha256::digest(&plain).as_slice(), block.sha256, "{key:?} {:?}", block.bp);
            kinds.push((block.bp.object_type() == ObjectType::DNODE, protection(&block.bp)));
        }
        use Protection::{Authenticated, Encrypted, Objset, Pointers};
        for kind in [(true, Encrypted), (false, Encrypted), (false, Authenticated), (false, Objset)] {
            assert!(kinds.contains(&kind), "{key:?} has no block of {kind:?}");
        }
        assert!(kinds.iter().any(|(_, kind)| *kind == Pointers), "{key:?} has no block of pointers");
    }
}

/// What OpenZFS wrote is also what would be written here: or it could not read it.
#[test]
fn blocks_encrypt_to_what_openzfs_wrote() {
    for (text, all) in DATASETS {
        let key = key(text);
        for block in blocks(text, all).iter().filter(|block| protection(&block.bp) == Protection::Encrypted) {
            let mut data = plain(&key, block).expect("it decrypts");
            let mac = key.seal(block.bp.object_type(), &block.bp.salt(), &block.bp.iv(), &mut data).expect("it encrypts");
            assert!(data == block.stored, "{key:?} {:?}", block.bp);
            assert_eq!(mac, block.bp.mac());
        }
        let again = WrappedKey::seal(&key, &WrappingKey::raw(&raw_key()).expect("32 bytes"), wrapped(text).iv);
        // Behind a shorter key OpenZFS wrote whatever was in its memory.
        let mut theirs = wrapped(text);
        theirs.master[theirs.suite.key_bytes()..].fill(0);
        assert_eq!(again, Ok(theirs));
    }
}

/// If this fails, somebody who can write to the devices can change what is read.
#[test]
fn a_bit_changed_anywhere_is_noticed() {
    for (text, all) in DATASETS {
        let key = key(text);
        for mut block in blocks(text, all) {
            // Of a root block, MACs cover neither the intent log nor what is no dnode; of others everything.
            let places: Vec<usize> = match protection(&block.bp) {
                Protection::Objset => vec![0, 2, 64 + 48, 704, 712, 720, 751, 752, 783, 1024, 1536, 2048],
                _ => (0..block.stored.len()).step_by(block.stored.len().div_ceil(61)).collect(),
            };
            for at in places {
                let is_pointer = protection(&block.bp) == Protection::Pointers;
                // Where a pointer leads may change; what it leads to not: its MAC, here.
                let at = if is_pointer { at / BlockPtr::BYTES * BlockPtr::BYTES + 112 } else { at };
                let is_free = block.bp.object_type() == ObjectType::DNODE && !is_pointer && is_exempt(at % 512);
                block.stored[at] ^= 0x10;
                assert!(is_free || plain(&key, &block).is_err(), "{key:?} {:?} at {at}", block.bp);
                block.stored[at] ^= 0x10;
            }
        }
    }
}

/// Places of a dnode that no MAC covers: flags, space, and what a pointer has of where it leads.
fn is_exempt(at: usize) -> bool {
    at == 7 || (24..32).contains(&at) || (64..64 + 3 * BlockPtr::BYTES).contains(&at)
}

#[test]
fn a_wrong_key_opens_nothing() {
    let mut other = raw_key();
    other[31] ^= 1;
    let other = WrappingKey::raw(&other).expect("32 bytes");
    for (text, _) in DATASETS {
        assert_eq!(wrapped(text).open(&other).map(|_| ()), Err(CryptError::Authentication));
        let renamed = WrappedKey { guid: 1, ..wrapped(text) };
        assert_eq!(renamed.open(&WrappingKey::raw(&raw_key()).expect("32 bytes")).map(|_| ()), Err(CryptError::Authentication));
    }
}

/// Accounting that is not complete has no MAC, and what is stored instead of it is not looked at: such datasets come from raw streams.
#[test]
fn a_local_mac_counts_only_with_complete_accounting() {
    let (text, all) = DATASETS[5];
    let key = key(text);
    let block = blocks(text, all).into_iter().find(|block| protection(&block.bp) == Protection::Objset).expect("a root block");
    let mut root = block.stored;
    assert_eq!(key.objset_macs(&root, true), ObjsetMacs::stored(&root));
    root[712] &= !1;
    assert_eq!(key.objset_macs(&root, true).map(|macs| macs.local), Ok([0; 32]));
    assert_eq!(key.authenticate_objset(&root, true), Ok(()));
    root[0] ^= 1;
    assert_eq!(key.authenticate_objset(&root, true), Err(CryptError::Authentication));
    assert_eq!(key.authenticate_objset(&root[..700], true), Err(CryptError::Form));
}

#[test]
fn passphrases_and_digits_become_keys() {
    let dataset = wrapped(DATASETS[5].0);
    let key = dataset.open(&WrappingKey::raw(&raw_key()).expect("32 bytes")).expect("the right key");
    let digits: String = raw_key().iter().map(|byte| format!("{byte:02X}")).collect();
    assert!(dataset.open(&WrappingKey::hex(digits.as_bytes()).expect("64 digits")).is_ok());
    // PBKDF2 as OpenZFS's tools do it, from `python3 -c 'hashlib.pbkdf2_hmac("sha1", b"correct horse", struct.pack("<Q", salt), 100000, 32)'`.
    let derived = WrappingKey::passphrase(b"correct horse", 0x1122_3344_5566_7788, 100_000).expect("a passphrase");
    let known = WrappingKey::hex(b"f2efaee4286e914c0a2f3dab61b0af797b6b7acd8fb6aa1d0d709b0e4320bc83").expect("64 digits");
    let sealed = WrappedKey::seal(&key, &derived, [7; 12]).expect("it wraps");
    assert!(sealed.open(&known).is_ok());
    for bad in [b"".as_slice(), b"short12", &[b'x'; 513]] {
        assert!(WrappingKey::passphrase(bad, 0, 100_000).is_err());
    }
    assert!(WrappingKey::passphrase(b"long enough", 0, 0).is_err());
    assert!(WrappingKey::raw(&[0; 31]).is_err() && WrappingKey::hex(&[b'0'; 63]).is_err() && WrappingKey::hex(&[b'g'; 64]).is_err());
}
