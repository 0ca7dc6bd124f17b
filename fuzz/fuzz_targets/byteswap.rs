//! Byte swap of blocks of every type: in place, never outside, whatever the bytes say.
#![no_main]

use ondisk::{ObjectType, byteswap_block};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let [kind, level, rest @ ..] = bytes else { return };
    let mut block = rest.to_vec();
    byteswap_block(ObjectType(*kind), level & 1, &mut block);
    assert_eq!(block.len(), rest.len());
});
