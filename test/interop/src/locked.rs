//! Encrypted datasets without their keys: listed, scrubbed, snapshotted, renamed and destroyed, and the real engine, which has the keys, finds what
//! is left as it was.

use crate::manifest::{self, Lines};
use crate::oracle::Oracle;
use crate::{Failure, driver};
use dsl::{DslError, PropValue};
use exec::Exec;
use pool::Pool;
use std::path::Path;

const POOL: &str = "fx_encrypt";
/// File system that is destroyed, with its snapshot.
const DOOMED: &str = "fx_encrypt/enc-aes-128-ccm";
/// Child that is renamed below its encryption root and back.
const CHILD: [&str; 2] = ["fx_encrypt/enc-aes-256-gcm/child", "fx_encrypt/enc-aes-256-gcm/moved"];

/// Changes the pool in `folder` without a key of it.
pub fn change(exec: &Exec, oracle: &Oracle, folder: &Path, expected: &Lines) -> Result<(), Failure> {
    let pool = driver::import(exec, folder, POOL, false)?;
    let encrypted: Vec<String> = driver::datasets(&pool)?.into_iter().filter(|name| name.contains("/enc-")).collect();
    encrypted.iter().try_for_each(|name| is_locked(&pool, name))?;
    if encrypted.len() < 9 {
        return Err(format!("encrypted are only {encrypted:?}").into());
    }
    let heads = encrypted.iter().filter(|name| !name.contains('@'));
    pool.dsl().snapshot(&heads.map(|name| format!("{name}@ours")).collect::<Vec<_>>(), Vec::new())?;
    pool.dsl().create_dataset(&format!("{POOL}/ours"), driver::filesystem(&[]))?;
    pool.dsl().destroy_snapshots(&[format!("{DOOMED}@s"), format!("{DOOMED}@ours")], false)?;
    pool.dsl().destroy_dataset(DOOMED)?;
    pool.dsl().rename(CHILD[0], CHILD[1])?;
    pool.dsl().rename(CHILD[1], CHILD[0])?;
    pool.scrub_start()?;
    pool.scrub_wait()?;
    let status = pool.scan_status().ok_or("no scrub")?;
    pool.export()?;
    if status.errors != 0 || status.repaired != 0 {
        return Err(format!("our scrub: {} errors, {} bytes repaired", status.errors, status.repaired).into());
    }
    oracle.zdb_clean(folder, POOL)?;
    let of_heads = |lines: &Lines| lines.iter().filter(|line| !line.contains('@') && !line.starts_with(DOOMED)).cloned().collect::<Lines>();
    match oracle.check(folder, POOL)? {
        Some(theirs) => manifest::compare("the real engine's", &of_heads(expected), &of_heads(&theirs)),
        None => Ok(()),
    }
}

fn is_locked(pool: &Pool, name: &str) -> Result<(), Failure> {
    let handle = pool.dsl().hold(name)?;
    let status = handle.prop("keystatus")?.value;
    if status != PropValue::Text("unavailable".to_string()) {
        return Err(format!("{name} has the keystatus {status:?}").into());
    }
    match handle.objset() {
        Err(DslError::NoKey) => Ok(()),
        Err(error) => Err(format!("{name}: {error}").into()),
        Ok(_) => Err(format!("{name} was opened without its key").into()),
    }
}
