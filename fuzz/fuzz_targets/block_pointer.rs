//! Block pointers: accessors, text and judgement of any 128 bytes.
#![no_main]

use ondisk::{BLOCK_BYTES_MAX, BlockPtr, VdevExtent};

libfuzzer_sys::fuzz_target!(|bytes: [u8; 128]| {
    let bp = BlockPtr::decode(&bytes, true);
    assert_eq!(bp.encode(), bytes);
    assert!(!bp.to_string().is_empty() && !format!("{bp:?}").is_empty());
    let extent = |vdev: ondisk::VdevId| match vdev.0 % 3 {
        0 => VdevExtent::Absent,
        1 => VdevExtent::Unknown,
        _ => VdevExtent::Known { asize: 1 << 40, gang_header_asize: 512 },
    };
    if bp.validate(extent).is_ok() {
        assert!(bp.lsize() <= BLOCK_BYTES_MAX);
        assert!(bp.embedded_payload().len() <= ondisk::EMBEDDED_PAYLOAD_BYTES);
    }
});
