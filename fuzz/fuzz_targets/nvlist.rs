//! Packed lists: what decodes must survive a round trip in both encodings.
#![no_main]

use nvlist::{Encoding, NvList};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(list) = NvList::decode(bytes) else { return };
    assert!(list.dump(0).len() < 64 + 64 * bytes.len());
    for encoding in [Encoding::Xdr, Encoding::NativeLittle] {
        let packed = list.encode(encoding);
        let (again, used) = NvList::decode_prefix(&packed).expect("own packing");
        assert_eq!(used, packed.len());
        assert_eq!(again.encode(encoding), packed);
    }
});
