//! Dnodes: what decodes must encode to something that decodes to the same.
#![no_main]

use ondisk::{DNODE_SLOT_BYTES, DnodePhys};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(Some(dnode)) = DnodePhys::decode(bytes) else { return };
    let mut slots = vec![0xEE; dnode.slots() * DNODE_SLOT_BYTES];
    dnode.encode_into(&mut slots).expect("what was decoded fits");
    assert_eq!(DnodePhys::decode(&slots), Ok(Some(dnode)));
});
