//! Pools under stress: several threads at once while txgs are synced all the time, and pools filled to the brim again and again.

use crate::churn::Churn;
use crate::shadow::{Expected, Kind, content};
use crate::touch::{DIRECTORY, new_file};
use crate::{Failure, driver};
use pool::Pool;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use zpl::{NewNode, Zfs, ZplError};

const THREADS: usize = 4;
const STEPS: usize = 250;
const FILE_BYTES: usize = 1 << 20;
const FILLS: u64 = 3;

fn worker(zfs: &Arc<Zfs>, index: usize, steps: usize) -> Result<Churn, Failure> {
    let name = format!("thread-{index}");
    let root = zfs.node(zfs.root())?;
    let directory = zfs.create_node(&root, name.as_bytes(), &NewNode { mode: DIRECTORY, ..NewNode::default() })?;
    let mut churn = Churn::new(index as u64 + 1, &format!("/{name}"));
    for step in 0..steps {
        churn.step(zfs, &directory).map_err(|error| format!("thread {index}, step {step}: {error}"))?;
    }
    Ok(churn)
}

/// Has threads change directories of one file system while the main thread syncs and takes snapshots.
pub fn storm(pool: &Pool, steps: usize) -> Result<Expected, Failure> {
    let name = format!("{}/storm", pool.name());
    pool.dsl().create_dataset(&name, driver::filesystem(&[("compression", "lz4"), ("recordsize", "32K")]))?;
    let zfs = driver::open(pool, &name)?;
    let (running, steps) = (AtomicUsize::new(THREADS), steps.max(STEPS));
    let results: Vec<Result<Churn, Failure>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|index| {
                let (zfs, running) = (&zfs, &running);
                scope.spawn(move || {
                    let result = worker(zfs, index, steps);
                    running.fetch_sub(1, Ordering::Release);
                    result
                })
            })
            .collect();
        let stirred = stir(pool, &name, &running);
        let mut results: Vec<_> =
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err("a thread panicked".into()))).collect();
        if let Err(error) = stirred {
            results.push(Err(error));
        }
        results
    });
    let mut expected = Expected::default();
    for churn in results {
        expected.add(&name, &churn?.shadow);
    }
    zfs.sync()?;
    Ok(expected)
}

fn stir(pool: &Pool, name: &str, running: &AtomicUsize) -> Result<(), Failure> {
    let mut snapshots = Vec::new();
    for round in 0u64.. {
        if running.load(Ordering::Acquire) == 0 {
            break;
        }
        pool.sync()?;
        if round.is_multiple_of(4) {
            let snapshot = format!("{name}@{round}");
            pool.dsl().snapshot(std::slice::from_ref(&snapshot), Vec::new())?;
            snapshots.push(snapshot);
        }
        if snapshots.len() > 3 {
            let snapshot = snapshots.remove(round as usize % snapshots.len());
            pool.dsl().destroy_snapshots(&[snapshot], false)?;
        }
    }
    Ok(())
}

/// Writes files until nothing fits any more; the one that did not is removed. Returns how many fit.
fn fill(zfs: &Arc<Zfs>, name: &str, fill: u64, expected: &mut Expected) -> Result<u64, Failure> {
    let root = zfs.node(zfs.root())?;
    for index in 0u64.. {
        let file = format!("fill-{fill}-{index:05}");
        let bytes = content(FILE_BYTES, fill << 32 | index, Kind::Random);
        match new_file(zfs, &root, file.as_bytes(), &bytes) {
            Ok(_) => expected.add_digest(format!("{name}/{file}"), bytes.len() as u64, crate::manifest::digest(&bytes)),
            Err(error) if error.downcast_ref::<ZplError>() == Some(&ZplError::NoSpace) => match zfs.unlink(&root, file.as_bytes()) {
                Ok(()) | Err(ZplError::NotFound) => return Ok(index),
                Err(error) => return Err(format!("a full pool does not let go of a file: {error}").into()),
            },
            Err(error) => return Err(error),
        }
    }
    Ok(0)
}

/// Fills the pool, removes every other file, fills the gaps with larger blocks, several times.
pub fn full(pool: &Pool) -> Result<Expected, Failure> {
    let mut expected = Expected::default();
    let mut first = 0;
    for round in 0..FILLS {
        let (dataset, record) = (format!("{}/fill{round}", pool.name()), if round == 0 { "16K" } else { "1M" });
        pool.dsl().create_dataset(&dataset, driver::filesystem(&[("compression", "off"), ("recordsize", record)]))?;
        let zfs = driver::open(pool, &dataset)?;
        let fit = fill(&zfs, &dataset, round, &mut expected)?;
        if round == 0 {
            first = fit;
        }
        if fit < first / 4 {
            return Err(format!("fill {round}: only {fit} files fit, {first} at first: space was lost").into());
        }
        let root = zfs.node(zfs.root())?;
        for index in (0..fit).filter(|index| index % 2 == 0) {
            let file = format!("fill-{round}-{index:05}");
            zfs.unlink(&root, file.as_bytes()).map_err(|error| format!("removing from a full pool: {error}"))?;
            expected.forget_file(&format!("{dataset}/{file}"));
        }
        drop(root);
        drop(zfs);
        if round == 1 {
            let gone = format!("{}/fill0", pool.name());
            pool.dsl().destroy_dataset(&gone)?;
            expected.forget(&gone);
        }
        for _ in 0..4 {
            pool.sync()?;
        }
    }
    Ok(expected)
}
