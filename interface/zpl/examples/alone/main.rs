//! File systems without the daemon: `alone arena | memory MOUNTPOINT [RECORDSIZE] | mount FOLDER POOL DATASET MOUNTPOINT [rw | new RECORDSIZE]`.
//!
//! One program: each by itself would be linked with all that is below.

mod arena;
mod memory;
mod mount;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.split_first() {
        Some((word, [])) if word == "arena" => arena::run(),
        Some((word, rest)) if word == "memory" => memory::run(rest)?,
        Some((word, rest)) if word == "mount" => mount::run(rest)?,
        _ => return Err("usage: alone arena | memory … | mount …".into()),
    }
    Ok(())
}
