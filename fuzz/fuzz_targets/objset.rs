//! Object set blocks of any size.
#![no_main]

use ondisk::ObjsetPhys;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(objset) = ObjsetPhys::decode(bytes) else { return };
    let block = objset.encode().expect("what was decoded fits");
    assert_eq!(ObjsetPhys::decode(&block), Ok(objset));
});
