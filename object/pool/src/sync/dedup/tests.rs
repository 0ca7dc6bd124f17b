//! Values of tables, and sums of histograms.

use super::*;
use ondisk::ddt::DdtPhysTrad;

/// Entry of a block with two copies that three refer to.
fn entry() -> DdtTradEntry {
    let mut entry = DdtTradEntry::default();
    entry.ddp_trad[2] = DdtPhysTrad { ddp_dva: [8, 1 << 20, 8, 2 << 20, 0, 0], ddp_refcnt: 3, ddp_phys_birth: 77 };
    entry
}

/// If this fails, tables that OpenZFS wrote cannot be read, or those that are written here by nobody.
#[test]
fn entries_come_back_from_values_of_either_byte_order() {
    let value = packed(&entry());
    let Value::U8(bytes) = &value else { panic!("bytes") };
    assert!(bytes[0] == DDT_VALUE_LITTLE_ENDIAN | Compression::ZLE.0 && bytes.len() < DdtTradEntry::SIZE, "zeros are not stored");
    assert_eq!(unpacked(&value), Some(entry()));
    let plain: Vec<u8> = entry().encode().chunks_exact(8).flat_map(|word| word.iter().rev().copied().collect::<Vec<u8>>()).collect();
    let big = [vec![Compression::OFF.0], plain].concat();
    assert_eq!(unpacked(&Value::U8(big)), Some(entry()));
    for damaged in [Value::U8(Vec::new()), Value::U8(vec![0x80 | 99, 1, 2]), Value::U8(vec![Compression::OFF.0, 1]), Value::U64(vec![1])] {
        assert_eq!(unpacked(&damaged), None, "{damaged:?}");
    }
}

/// If this fails, `zpool list` and `zpool status -D` show another ratio than OpenZFS, and `zdb` complains of the histograms.
#[test]
fn an_entry_counts_by_its_references_in_the_bucket_of_their_highest_bit() {
    let key = DdtKey::new([1, 2, 3, 4], (8192, 4096), Compression::LZ4);
    let (bucket, sum) = stat_of(&VdevTree::default(), &key, &entry()).expect("it is referred to");
    assert_eq!((bucket, sum.words()), (1, [1, 8192, 4096, 0, 3, 3 * 8192, 3 * 4096, 0]));
    assert_eq!(stat_of(&VdevTree::default(), &key, &DdtTradEntry::default()), None);
}

/// If this fails, a pool with tables of a kind that is not written is written all the same, or one with ordinary tables is not.
#[test]
fn names_of_ordinary_tables_are_known() {
    let known = [&b"DDT-sha256-zap-unique"[..], b"DDT-edonr-zap-duplicate", b"DDT-blake3-zap-unique"];
    let others = [&b"DDT-sha256"[..], b"DDT-sha256-zap-ditto", b"DDT-fletcher4-zap-unique", b"DDT-log-sha256-0"];
    assert!(known.iter().all(|name| is_written(name)) && !others.iter().any(|name| is_written(name)));
}
