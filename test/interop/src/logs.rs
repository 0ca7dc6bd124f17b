//! Pools that the real OpenZFS left with live intent logs: imported for writing by us, with every byte there that was made durable, and
//! clean afterwards for the real engine.

use crate::damage::copy_pool;
use crate::kernel;
use crate::manifest;
use crate::oracle::Oracle;
use crate::report::Table;
use crate::{Failure, driver, taken};
use exec::Exec;
use ondisk::ObjectId;
use pool::Pool;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Seeds of the real engine's generator are multiplied with this …
const SEED_FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;
/// … and this is added.
const SEED_ADDEND: u64 = 0x0123_4567;
const VOLUME_DATA: ObjectId = ObjectId(1);
/// Pool of the kernel module.
const KERNEL_POOL: &str = "kzil";
/// Number of columns of a line before the time of modification.
const COLUMNS_BEFORE_TIME: usize = 6;

/// Write that the log of a fixture holds.
struct Logged {
    offset: u64,
    length: usize,
    seed: u64,
}

/// Bytes that the real engine wrote for a seed.
fn generated(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(SEED_FACTOR).wrapping_add(SEED_ADDEND);
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// The writes that the comments of a manifest name.
fn logged(text: &str) -> Vec<Logged> {
    let number = |line: &str, name: &str| line.split_whitespace().find_map(|word| word.strip_prefix(name)?.parse().ok());
    let of = |line: &str| {
        let line = line.strip_prefix("# ZIL write ")?;
        Some(Logged { offset: number(line, "off=")?, length: number(line, "len=")? as usize, seed: number(line, "seed=")? })
    };
    text.lines().filter_map(of).collect()
}

/// Fails unless the import replayed logs, all of them whole.
fn check_replayed(pool: &Pool) -> Result<(), Failure> {
    if pool.replayed().is_empty() {
        return Err("the import replayed nothing".into());
    }
    match pool.replayed().iter().find_map(|log| log.failure.as_ref()) {
        Some(why) => Err(why.clone().into()),
        None => Ok(()),
    }
}

/// Writes of a volume's log by the real engine in userspace: replayed, also when we "crash" right after the import. `text` is the manifest.
pub fn volume(exec: &Exec, oracle: &Oracle, (name, text): (&str, &str), made: &Path, work: &Path) -> Result<(), Failure> {
    let (writes, pool_name) = (logged(text), format!("fx_{name}"));
    if writes.is_empty() {
        return Err("the manifest names no writes".into());
    }
    // A first commit of the real engine may end with the txg of its records instead of in a log.
    if oracle.logged_writes(made, &format!("{pool_name}/vol"))? == Some(0) {
        copy_pool(made, work)?;
        let pool = driver::import(exec, work, &pool_name, false)?;
        let replayed = pool.replayed().len();
        pool.export()?;
        return if replayed == 0 { judged(exec, oracle, work, &pool_name) } else { Err("an empty log was replayed".into()) };
    }
    for is_exported in [true, false] {
        copy_pool(made, work)?;
        let pool = driver::import(exec, work, &pool_name, false)?;
        check_replayed(&pool)?;
        check_volume(&pool, &pool_name, &writes)?;
        if is_exported {
            pool.export()?;
        } else {
            drop(pool);
            let pool = driver::import(exec, work, &pool_name, false)?;
            check_volume(&pool, &pool_name, &writes)?;
            pool.export()?;
        }
        judged(exec, oracle, work, &pool_name)?;
    }
    Ok(())
}

fn check_volume(pool: &Pool, pool_name: &str, writes: &[Logged]) -> Result<(), Failure> {
    let data = pool.dsl().hold(&format!("{pool_name}/vol"))?.objset()?.hold(VOLUME_DATA)?;
    for write in writes {
        let mut found = vec![0; write.length];
        data.read(write.offset, &mut found)?;
        if found != generated(write.length, write.seed) {
            return Err(format!("{} bytes at {} are not what was made durable", write.length, write.offset).into());
        }
    }
    Ok(())
}

/// The real engine finds the exported pool clean, and lists it as we do.
fn judged(exec: &Exec, oracle: &Oracle, folder: &Path, pool_name: &str) -> Result<(), Failure> {
    let pool = driver::import(exec, folder, pool_name, true)?;
    let ours = manifest::of_pool(&pool)?;
    pool.export()?;
    oracle.zdb_clean(folder, pool_name)?;
    match oracle.check(folder, pool_name)? {
        Some(theirs) => manifest::compare("the real engine's", &ours, &theirs),
        None => Ok(()),
    }
}

/// Stops an import between claim and replay: the real engine finds what was claimed in its place, and takes the pool over.
fn interrupt(exec: &Exec, folder: &Path, oracle: &Oracle) -> Result<(), Failure> {
    if driver::import_under(exec, folder, (KERNEL_POOL, false), Arc::new(taken::Stops)).is_ok() {
        return Err("an import that was stopped ended well".into());
    }
    oracle.zdb_clean(folder, KERNEL_POOL)?;
    oracle.check(folder, KERNEL_POOL)?;
    oracle.zdb_clean(folder, KERNEL_POOL)
}

/// Log of the kernel module: files made, linked, renamed, removed and written, as a mount showed them after the kernel's own replay.
pub fn kernel(base: &Path, root: &Path, oracle: &Oracle, table: &Table) {
    let what = format!("read {KERNEL_POOL} (kernel), its log replayed");
    let Some(archive) = kernel::archive(KERNEL_POOL, root, &what, table) else { return };
    let folder = base.join(KERNEL_POOL);
    table.check(&what, || {
        kernel::unpack(&archive, &folder)?;
        let file: PathBuf = folder.join(format!("{KERNEL_POOL}.MANIFEST"));
        let expected = manifest::parse(&String::from_utf8_lossy(&std::fs::read(file)?));
        let exec = driver::executor();
        interrupt(&exec, &folder, oracle)?;
        let pool = driver::import(&exec, &folder, KERNEL_POOL, false)?;
        check_replayed(&pool)?;
        let found = kernel::listed(&pool, KERNEL_POOL)?;
        manifest::compare("ours", &timeless(&expected), &timeless(&found))?;
        // A crash before the next txg takes nothing of it back.
        drop(pool);
        let pool = driver::import(&exec, &folder, KERNEL_POOL, false)?;
        let found = kernel::listed(&pool, KERNEL_POOL)?;
        pool.export()?;
        manifest::compare("ours, after a crash", &timeless(&expected), &timeless(&found))?;
        judged(&exec, oracle, &folder, KERNEL_POOL)
    });
    let _ = std::fs::remove_dir_all(&folder);
}

/// Lines without the times of files that a replay wrote: those are its own.
fn timeless(lines: &manifest::Lines) -> manifest::Lines {
    let strip = |line: &String| {
        let mut columns: Vec<&str> = line.split('\t').collect();
        if line.starts_with("zil/") && columns.get(1) == Some(&"F") && columns.len() > COLUMNS_BEFORE_TIME {
            columns.remove(COLUMNS_BEFORE_TIME);
        }
        columns.join("\t")
    };
    lines.iter().map(strip).collect()
}
