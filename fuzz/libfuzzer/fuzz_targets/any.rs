//! The target that `$FUZZ_TARGET` names, guided by coverage. `$FUZZ_SEEDS` is a folder to put its seeds in before it begins.
#![no_main]

use fuzz::{Target, by_name};
use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;

static TARGET: LazyLock<&'static Target> = LazyLock::new(|| {
    let name = std::env::var("FUZZ_TARGET").unwrap_or_default();
    let target = by_name(&name).unwrap_or_else(|| panic!("FUZZ_TARGET: no target is called '{name}'"));
    if let Some(folder) = std::env::var_os("FUZZ_SEEDS") {
        for (index, seed) in (target.seeds)().iter().enumerate() {
            std::fs::write(std::path::Path::new(&folder).join(format!("seed-{index}")), seed).expect("a seed can be written");
        }
    }
    target
});

fuzz_target!(|data: &[u8]| (TARGET.feed)(data));
