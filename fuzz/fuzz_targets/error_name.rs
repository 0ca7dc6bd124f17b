//! Names in error logs: what parses is written back to an equal name.
#![no_main]

use ondisk::{ErrorBlock, bookmark_from_name, bookmark_name};

libfuzzer_sys::fuzz_target!(|name: &str| {
    if let Ok(block) = ErrorBlock::from_name(name) {
        assert_eq!(ErrorBlock::from_name(&block.name()), Ok(block));
    }
    if let Ok(bookmark) = bookmark_from_name(name) {
        assert_eq!(bookmark_from_name(&bookmark_name(&bookmark)), Ok(bookmark));
    }
});
