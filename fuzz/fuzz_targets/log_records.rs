//! Intent log blocks: iteration ends and every record lies inside the block.
#![no_main]

use ondisk::ByteOrder;
use ondisk::zil::LogRecords;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let mut total = 0;
    for (common, record) in LogRecords::new(bytes, ByteOrder::Little) {
        assert_eq!(common.lrc_reclen as usize, record.len());
        total += record.len();
    }
    assert!(total <= bytes.len());
});
