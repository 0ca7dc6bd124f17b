//! Every fixed record: the first byte chooses it, the next the byte order.
#![no_main]

use ondisk::{ByteOrder, RECORDS};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let [which, little, rest @ ..] = bytes else { return };
    let record = &RECORDS[usize::from(*which) % RECORDS.len()];
    let Some(bytes) = rest.get(..record.bytes) else { return };
    let order = ByteOrder::from_little(little & 1 != 0);
    assert_eq!((record.convert)(bytes, order, order), bytes);
    assert!(!(record.show)(bytes, order).is_empty());
});
