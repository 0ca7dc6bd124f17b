//! `crashed [POOLS]`: pools that OpenZFS's own stress test (`ztest`) had open when it was stopped, with live intent logs.
//!
//! Its datasets are no file systems, and their records are its own: nobody but it can replay them, so that such pools are imported read-only by us. What
//! can be compared is compared: what is there as of the last txg, object by object; which records each log holds; that a claim takes exactly the blocks
//! of the logs, and an import that stops between claim and replay leaves a pool that the real engine finds clean and goes on with; that nothing leaks
//! when logs are read to their end and given up. The test is halted (SIGSTOP) while its files are copied: what is copied then is what a kill leaves.

use crate::damage::copy_pool;
use crate::oracle::Oracle;
use crate::report::Table;
use crate::taken::{self, Taken};
use crate::{Failure, driver, manifest};
use need::Need;
use pool::PoolError;
use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

const POOL: &str = "zt";
/// Number of pools unless the command line says otherwise.
const POOLS: u64 = 100;
/// Number of pools that one run of the test gives.
const POOLS_OF_A_RUN: u64 = 10;
/// Time until the test has made its datasets, at most.
const BEGINNING: Duration = Duration::from_secs(150);
/// Time between two looks whether it has, and between two pools, at least.
const STEP: Duration = Duration::from_millis(1500);

/// The stress test, running; it ends with this value.
struct Stress {
    child: Child,
    folder: PathBuf,
}

impl Stress {
    /// Starts the test with a layout that follows from its number. Without redundancy it damages nothing.
    fn start(program: &Path, folder: &Path, number: u64) -> Result<Stress, Failure> {
        let _ = std::fs::remove_dir_all(folder);
        std::fs::create_dir_all(folder)?;
        let layout = [["-v", "1"], ["-v", "3"]][number as usize % 2];
        let child = Command::new(program)
            .args(layout)
            .args([
                "-m",
                "1",
                "-r",
                "1",
                "-K",
                "raidz",
                "-t",
                "5",
                "-d",
                "1",
                "-s",
                "256M",
                "-T",
                "3000",
                "-P",
                "3000",
                "-k",
                "0",
                "-C",
                "special=off",
            ])
            .arg("-f")
            .arg(folder)
            .args(["-p", POOL])
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Stress { child, folder: folder.to_path_buf() })
    }

    fn signal(&self, name: &str) -> Result<(), Failure> {
        let status = Command::new("kill").args([name, "--", &format!("-{}", self.child.id())]).stderr(Stdio::null()).status()?;
        if status.success() { Ok(()) } else { Err(format!("kill {name} failed").into()) }
    }

    /// Copies the pool's devices as they are at one moment.
    fn copy(&self, to: &Path) -> Result<(), Failure> {
        self.signal("-STOP")?;
        let copied = copy_pool(&self.folder, to);
        self.signal("-CONT")?;
        copied
    }
}

impl Drop for Stress {
    fn drop(&mut self) {
        let _ = self.signal("-KILL");
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Counts of a campaign.
#[derive(Default)]
struct Counts {
    taken: Taken,
    /// Pools that could not be compared, by reason.
    apart: BTreeMap<String, u64>,
}

/// Runs the test again and again until so many pools were compared.
pub fn run(oracle: &Oracle, base: &Path, pools: Option<u64>, table: &Table) {
    let Some(program) = need::on_path("ztest") else {
        return table.left_out(Need::Images, "pools that ztest left", "there is no ztest");
    };
    if !oracle.has_zdb() {
        return;
    }
    let (pools, mut counts) = (pools.unwrap_or(POOLS), Counts::default());
    for number in 0.. {
        if counts.taken.pools >= pools || number > pools {
            break;
        }
        let what = format!("crashed: run {number} of ztest");
        if table.check(&what, || stress(oracle, &program, base, (number, pools), &mut counts)).is_none() {
            break;
        }
        let Taken { pools, pending, records } = counts.taken;
        println!("      {pools} pools compared so far, {pending} with logs that held something, {records} records");
    }
    for (why, count) in &counts.apart {
        println!("      {count} pools were not compared: {why}");
    }
    let Taken { pools: compared, pending, records } = counts.taken;
    println!("      {compared} pools of ztest, {pending} with logs that held something, {records} records in them");
    table.check("crashed: pools were compared", || if compared >= pools { Ok(()) } else { Err("too few could be".into()) });
}

fn stress(oracle: &Oracle, program: &Path, base: &Path, (number, pools): (u64, u64), counts: &mut Counts) -> Result<(), Failure> {
    let (left, work) = (base.join("crashed-left"), base.join("crashed-work"));
    let mut test = Stress::start(program, &base.join("crashed-ztest"), number)?;
    let begun = Instant::now();
    loop {
        std::thread::sleep(STEP);
        if test.child.try_wait()?.is_some() {
            *counts.apart.entry("ztest ended by itself".into()).or_default() += 1;
            return Ok(());
        }
        test.copy(&left)?;
        if oracle.logs(&left, POOL).is_ok_and(|logs| logs.is_some_and(|logs| !logs.is_empty())) {
            break;
        }
        if begun.elapsed() > BEGINNING {
            *counts.apart.entry("ztest made no datasets in time".into()).or_default() += 1;
            return Ok(());
        }
    }
    let mut given = 0;
    while given < POOLS_OF_A_RUN && counts.taken.pools < pools && test.child.try_wait()?.is_none() {
        test.copy(&left)?;
        match judged(oracle, &left, &work).map_err(|error| format!("{error}; it is in {}", left.display()))? {
            Ok(taken) => counts.taken.add(taken),
            Err(why) => {
                println!("      not compared: {why}");
                let is_for_good = why.contains("encryption");
                *counts.apart.entry(why).or_default() += 1;
                if is_for_good {
                    break;
                }
            }
        }
        given += 1;
        std::thread::sleep(Duration::from_millis(200 + number * 37 % 900));
    }
    let _ = std::fs::remove_dir_all(&left);
    let _ = std::fs::remove_dir_all(&work);
    Ok(())
}

/// Judges one pool; the inner error says why it could not be compared.
fn judged(oracle: &Oracle, left: &Path, work: &Path) -> Result<Result<Taken, String>, Failure> {
    let exec = driver::executor();
    let pool = match driver::import(&exec, left, POOL, true) {
        Ok(pool) => pool,
        Err(error) => return Ok(Err(format!("we do not open it: {}", first_line(&error.to_string())))),
    };
    let is_locked = |name: &String| pool.dsl().hold(name).and_then(|handle| handle.is_locked()).unwrap_or(false);
    let locked = driver::datasets(&pool)?.iter().filter(|name| is_locked(name)).count();
    if locked > 0 {
        return Ok(Err(format!("it has datasets with encryption, {locked} of them, whose keys are ztest's")));
    }
    // It may have been stopped in the middle of something that its own engine does not get over.
    if let Err(error) = oracle.zdb_clean(left, POOL) {
        return Ok(Err(format!("zdb complains of what ztest left: {}", first_line(&error.to_string()))));
    }
    let logs = oracle.logs(left, POOL)?.ok_or("zdb is missing")?;
    let waits = taken::waiting(&logs, pool.txg().0);
    let before = manifest::of_pool(&pool)?;
    pool.export()?;
    if let Some(theirs) = oracle.looked_at(left, POOL)? {
        manifest::compare("the real engine's", &theirs, &before)?;
    }
    // Nobody replays these records: the pool is refused for writing, and nothing is written.
    if !waits.is_empty() {
        match driver::import(&exec, left, POOL, false) {
            Err(driver::ImportError::Pool(PoolError::IntentLogs(_))) => {}
            Err(driver::ImportError::Pool(error)) => return Ok(Err(format!("we do not write it: {}", first_line(&error.to_string())))),
            other => return Err(format!("logs that nobody replays: {:?}", other.map(|_| "imported")).into()),
        }
        copy_pool(left, work)?;
        if driver::import_under(&exec, work, (POOL, false), Arc::new(taken::Stops)).is_ok() {
            return Err("an import that was stopped ended well".into());
        }
        oracle.zdb_clean(work, POOL).map_err(|error| format!("between claim and replay: {error}"))?;
        let claimed = oracle.logs(work, POOL)?.ok_or("zdb is missing")?;
        let now = taken::waiting(&claimed, 0);
        if now != waits {
            return Err(format!("zdb lists {now:?} records of claimed logs, {waits:?} before").into());
        }
        if let Some(theirs) = oracle.resilver(work, POOL)? {
            manifest::compare("the real engine's, of what we claimed", &before, &theirs)?;
        }
        oracle.zdb_clean(work, POOL).map_err(|error| format!("claimed by us, opened by the real engine: {error}"))?;
    }
    let pool = match driver::import_under(&exec, left, (POOL, false), Arc::new(taken::Reader)) {
        Ok(pool) => pool,
        Err(error) => return Ok(Err(format!("we do not write it: {}", first_line(&error.to_string())))),
    };
    taken::same_records(&waits, pool.replayed())?;
    let space = pool.verify_space()?;
    if !space.is_clean() {
        return Err(format!("after its logs were read: {space:?}").into());
    }
    pool.export()?;
    oracle.zdb_clean(left, POOL).map_err(|error| format!("after its logs were read: {error}"))?;
    Ok(Ok(Taken { pools: 1, pending: u64::from(!waits.is_empty()), records: waits.values().sum() }))
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().chars().take(160).collect()
}
