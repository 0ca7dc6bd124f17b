//! Space map entries: bounded, and runs re-encode to what they were.
#![no_main]

use ondisk::{SpaceMapEncoder, SpaceMapEntries, SpaceMapEntry};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    assert!(SpaceMapEntries::new(bytes).count() <= bytes.len() / 8 + 1);
    for entry in SpaceMapEntries::new(bytes) {
        let Ok(SpaceMapEntry::Run(run)) = entry else { continue };
        let mut encoder = SpaceMapEncoder::new(0, 4096, true);
        if encoder.run(run).is_ok() {
            let words = encoder.finish();
            let first = SpaceMapEntries::new(&words).next();
            assert_eq!(first, Some(Ok(SpaceMapEntry::Run(run))));
        }
    }
});
