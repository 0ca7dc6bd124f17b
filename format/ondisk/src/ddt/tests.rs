//! Keys, variants and sums of tables of deduplication.

use super::*;
use crate::VdevId;

fn block(copies: usize) -> BlockPtr {
    let mut bp = BlockPtr::HOLE;
    bp.set_lsize(128 << 10);
    bp.set_psize(36 << 10);
    bp.set_compression(Compression::LZ4);
    bp.set_checksum_kind(Checksum::SHA256);
    bp.set_checksum([1, 2, 3, 4]);
    bp.set_birth(Txg(20), Txg(10));
    for copy in 0..copies {
        bp.set_dva(copy, Dva { vdev: VdevId(copy as u32), offset: 1 << 20, asize: 36 << 10, gang: false });
    }
    bp.set_dedup(true);
    bp
}

/// If this fails, blocks are not found in the tables that OpenZFS wrote, or others are.
#[test]
fn a_key_has_what_tells_blocks_apart() {
    let bp = block(1);
    let key = DdtKey::of(&bp);
    assert_eq!(key, DdtKey::new([1, 2, 3, 4], (128 << 10, 36 << 10), Compression::LZ4));
    assert_eq!((key.lsize(), key.psize(), key.compression(), key.is_encrypted()), (128 << 10, 36 << 10, Compression::LZ4, false));
    assert_eq!(key.ddk_prop, 255 | 71 << 16 | u64::from(Compression::LZ4.0) << 32);
    assert_eq!((DdtKey::of_words(&key.words()), DdtKey::of_words(&[1, 2])), (Some(key), None));
    let mut sealed = bp;
    sealed.set_uses_crypt(true);
    assert!(DdtKey::of(&sealed).is_encrypted());
}

/// If this fails, the wrong copies of a block are freed, or those that files have.
#[test]
fn a_pointer_finds_its_variant_and_comes_back_from_it() {
    let mut entry = DdtTradEntry::default();
    for copies in 1..=3 {
        entry.ddp_trad[copies] = DdtPhysTrad::of(&block(copies));
        assert_eq!((entry.ddp_trad[copies].copies(false), entry.references()), (copies, copies as u64));
    }
    let mut moved = block(2);
    moved.set_dva(0, Dva { vdev: VdevId(0), offset: 2 << 20, asize: 36 << 10, gang: false });
    entry.ddp_trad[2] = DdtPhysTrad::of(&moved);
    assert_eq!(entry.variant_of(&moved), Some(2));
    assert_eq!(entry.ddp_trad[3].copies(true), 2, "the third address of an encrypted block is none");
    let mut other = block(1);
    other.set_birth(Txg(20), Txg(11));
    assert_eq!(entry.variant_of(&other), None, "another generation");
    let key = DdtKey::of(&moved);
    let freed = key.pointer(Checksum::SHA256, &entry.ddp_trad[2]);
    assert!(!freed.is_dedup() && freed.checksum() == moved.checksum() && freed.physical_birth() == Txg(10));
    assert_eq!((freed.addresses(), DdtKey::of(&freed)), (moved.addresses(), key));
}

/// If this fails, a damaged histogram stops a pool, or sums are mixed up.
#[test]
fn sums_add_up_and_stay_above_nothing() {
    let words = [1, 2, 3, 4, 5, 6, 7, 8];
    let mut sum = DdtStat::of_words(&words);
    sum.add(&DdtStat::of_words(&words));
    assert_eq!(sum.words(), words.map(|word| 2 * word));
    sum.sub(&DdtStat::of_words(&[u64::MAX; 8]));
    assert_eq!(sum, DdtStat::default());
    assert_eq!(ddt_object_name(Checksum::SKEIN, ddt_class::UNIQUE).as_deref(), Some("DDT-skein-zap-unique"));
    assert_eq!(ddt_object_name(Checksum::FLETCHER_4, ddt_class::UNIQUE), None);
}
