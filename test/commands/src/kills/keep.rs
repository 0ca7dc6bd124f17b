//! `zirconia-commands kills --keep [N] [--seed S]`: the daemon is killed N times at random moments while its mounts are kept
//! (`zirconia_keep_mounts`); no program sees an error, and each finds what it wrote, synced or not.
//!
//! SQLite and PostgreSQL commit (`pgbench` too), messages are delivered, git commits, archives are unpacked and compared, `fio` verifies, `fsx` does
//! what it does (where they are installed), and threads append, store through mappings, make, rename and remove, while two probes measure how long
//! a call waits. In the end `zdb` finds no leak.

use super::{Chance, KILLS, by_pools, load, others, told};
use crate::programs::{append, store, trees};
use crate::waiting::until;
use crate::world::{Failure, Running, World};
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Number of kills of one pool.
const KILLS_OF_A_POOL: u64 = 20;
/// Milliseconds that a daemon lives, from its beginning: at least, and less than.
const LIFE_MS: (u64, u64) = (100, 2000);
/// Time in which a daemon has gone on with everything, and answered what waited.
pub const REST: Duration = Duration::from_millis(5000);
/// Longest time that the programs of one pool may take.
const PATIENCE: Duration = Duration::from_secs(900);
/// Variable that has mounts kept.
pub const KEEP: (&str, &str) = ("ZIRCONIA_KEEP_MOUNTS", "1");

/// Script that commits, checks and starts again with git.
const GIT: &str =
    "cd {mnt}/tank/git && export HOME={dir} GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
git init -q r && cd r && n=0
while [ ! -e {dir}/stop ]; do
    n=$((n + 1)); echo $n >> all; mkdir -p d$((n % 9)); head -c $((n * 997 % 60000)) /dev/urandom > d$((n % 9))/f$((n % 31))
    git add -A && git commit -q -m $n
    [ $((n % 20)) -ne 0 ] || { git gc -q && git fsck --full; }
done
git fsck --full && [ $(wc -l < all) -eq $n ] && [ $(git rev-list --count HEAD) -eq $n ]";

/// Script that unpacks, compares and removes.
const TAR: &str = "cd {dir} && mkdir tree && n=0
while [ $n -lt 300 ]; do n=$((n + 1)); mkdir -p tree/d$((n % 17)); head -c $((n * 7919 % 200000)) /dev/urandom > tree/d$((n % 17))/f$n; done
tar cf tree.tar tree && find tree -type f -exec sha256sum {} + > sums && cd {mnt}/tank/tar
while [ ! -e {dir}/stop ]; do tar xf {dir}/tree.tar && sha256sum --quiet -c {dir}/sums && cp -a tree copy && diff -r tree copy && rm -r tree copy; done";

/// Script that runs fsx, with all of its operations, again and again.
const FSX: &str = "cd {mnt}/tank/fsx && n=0
while [ ! -e {dir}/stop ]; do n=$((n + 1)); fsx -N 3000 -S $n file; rm -f file*; done";

/// Script that writes, and compares what it reads with what it wrote.
const FIO: &str = "cd {mnt}/tank/fio && n=0
while [ ! -e {dir}/stop ]; do
    n=$((n + 1)); fio --name=v --filename=file --randseed=$n --rw=randwrite --bsrange=1k-64k --size=16m --fallocate=none --verify=crc32c --verify_fatal=1
    rm file
done";

/// Script that has `pgbench` do its transactions, of which the sums agree in the end.
const PGBENCH: &str = "export PGHOST={dir}/pg PGUSER=postgres PGDATABASE=postgres && pgbench -q -i
while [ ! -e {dir}/stop ]; do pgbench -n -c 2 -T 3 --exit-on-abort; done
psql -qAtX -c 'SELECT (SELECT sum(abalance) FROM pgbench_accounts), (SELECT sum(bbalance) FROM pgbench_branches),
    (SELECT sum(tbalance) FROM pgbench_tellers), (SELECT coalesce(sum(delta), 0) FROM pgbench_history)' > {dir}/sums.pgbench
awk -F'|' '$1 != $2 || $2 != $3 || $3 != $4 { exit 1 }' {dir}/sums.pgbench";

fn script(world: &World, name: &str, text: &str) -> Result<Running, Failure> {
    world.ok(&format!("zfs create tank/{name}"))?;
    std::fs::write(world.path(&format!("{name}.sh")), text.replace("{mnt}", &world.at("mnt")).replace("{dir}", &world.at(".")))?;
    world.start(&format!("sh -e {{dir}}/{name}.sh"), PATIENCE)
}

/// Appends and looks, and measures how long that takes at most.
fn probe(path: &Path, stop: &AtomicBool) -> Result<Duration, String> {
    let why = |error: std::io::Error| format!("      a probe: {error}");
    let mut file = OpenOptions::new().create_new(true).append(true).open(path).map_err(why)?;
    let (mut longest, mut bytes) = (Duration::ZERO, 0);
    while !stop.load(Ordering::Acquire) {
        let begun = Instant::now();
        file.write_all(b"x").map_err(why)?;
        bytes += 1;
        let length = file.metadata().map_err(why)?.len();
        longest = longest.max(begun.elapsed());
        if length != bytes {
            return Err(format!("      a probe wrote {bytes} bytes and sees {length}"));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(longest)
}

/// True when no mount waits for a daemon to go on with it.
fn nothing_waits(world: &World) -> Result<bool, Failure> {
    let log = std::fs::read_to_string(world.path("state/zirconiad.log"))?;
    Ok(log.rfind("goes on with all that the one before left") > log.rfind("its mounts wait for the next one"))
}

/// Kills the daemon so many times; the next one goes on each time.
pub fn kill(world: &World, kills: u64, chance: &mut Chance, is_wrong: &dyn Fn() -> bool) -> Result<(), Failure> {
    for _ in 0..kills {
        if is_wrong() {
            return Ok(());
        }
        let daemon = world.daemon()?;
        // Many die on the way to go on with what the one before left.
        std::thread::sleep(Duration::from_millis(LIFE_MS.0 + chance.below(LIFE_MS.1 - LIFE_MS.0)));
        world.ok(&format!("kill -9 {daemon}"))?;
        until("the daemon is started again", || Ok(world.daemon().is_ok_and(|next| next != daemon)))?;
    }
    until("a daemon goes on with the mounts", || Ok(is_wrong() || nothing_waits(world)?))
}

/// Figures of one pool.
#[derive(Default)]
struct Figures {
    longest: Duration,
    errors: usize,
    acknowledged: BTreeMap<&'static str, usize>,
}

fn pool(world: &World, kills: u64, seed: u64) -> Result<Figures, Failure> {
    let mut chance = Chance(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    for name in ["a", "b"] {
        world.vdevs(&[name])?;
        std::fs::File::options().write(true).open(world.path(&format!("vdevs/{name}")))?.set_len(2 << 30)?;
    }
    world.ok_with((KEEP.0, Path::new(KEEP.1)), "zpool create -m {mnt}/tank tank mirror {vdevs}/a {vdevs}/b")?;
    for name in ["append", "trees", "store", "probe"] {
        world.ok(&format!("zfs create tank/{name}"))?;
    }
    let mut loads = others(world, (true, true), seed)?;
    let mut scripts = vec![script(world, "tar", TAR)?];
    for (program, text) in [("git", GIT), ("fsx", FSX), ("fio", FIO)] {
        match need::on_path(program) {
            Some(_) => scripts.push(script(world, program, text)?),
            None => println!("      there is no {program}: it is left out"),
        }
    }
    if need::on_path("pgbench").is_some() && world.path("pg").exists() {
        scripts.push(script(world, "pgbench", PGBENCH)?);
    }
    let stop = AtomicBool::new(false);
    let at = |name: &str| world.path(&format!("mnt/tank/{name}"));
    let mut figures = Figures::default();
    let outcome = std::thread::scope(|scope| {
        let probes = ["probe/p", "p"].map(|name| {
            let (path, stop) = (at(name), &stop);
            scope.spawn(move || probe(&path, stop))
        });
        let programs = [
            scope.spawn(|| append(&at("append/log"), &stop)),
            scope.spawn(|| trees(&at("trees"), &stop)),
            scope.spawn(|| store(&at("store/mapped"), &stop)),
        ];
        let is_wrong = || programs.iter().any(|program| program.is_finished()) || probes.iter().any(|probe| probe.is_finished());
        let killed = kill(world, kills, &mut chance, &is_wrong);
        // What the last one was asked is answered.
        std::thread::sleep(REST);
        stop.store(true, Ordering::Release);
        std::fs::write(world.path("stop"), "")?;
        for program in programs {
            if let Err(why) = program.join().map_err(|_| "      a program failed")? {
                println!("{why}");
                figures.errors += 1;
            }
        }
        for probe in probes {
            match probe.join().map_err(|_| "      a probe failed")? {
                Ok(longest) => figures.longest = figures.longest.max(longest),
                Err(why) => {
                    println!("{why}");
                    figures.errors += 1;
                }
            }
        }
        killed
    });
    outcome?;
    for script in scripts {
        let (ran, _) = script.finish()?;
        if ran.code != 0 {
            println!("{}", ran.fault("a program should see no error"));
            figures.errors += 1;
        }
    }
    judge(world, &mut loads, &mut figures)?;
    Ok(figures)
}

/// Checks what programs of others were told, and the pool.
fn judge(world: &World, loads: &mut [Box<dyn load::Load>], figures: &mut Figures) -> Result<(), Failure> {
    loads.iter_mut().try_for_each(|load| load.finish())?;
    for load in loads.iter_mut() {
        load.check("through the mounts that were kept")?;
        let failures = load.failures();
        if failures > 0 {
            println!("      {}: {failures} were refused", load.name());
        }
        figures.errors += failures;
        figures.acknowledged.insert(load.name(), load.acknowledged().iter().sum());
    }
    world.ok("zpool export tank")?;
    world.clean(&crate::world::judge("kills: OpenZFS's judgement")?, "-e -p {vdevs} -bcch tank").map(drop)
}

/// Runs the campaign; false when a program saw an error.
pub fn main(kills: Option<u64>, seed: u64) -> bool {
    let kills = kills.unwrap_or(KILLS);
    let mut total = Figures::default();
    let run = |world: &World, now: u64, seed: u64| {
        let outcome = pool(world, now, seed);
        if outcome.as_ref().map_or(true, |figures| figures.errors > 0) {
            for log in ["state/zirconiad.log", "pg/log"] {
                println!("--- {log}\n{}", std::fs::read_to_string(world.path(log)).unwrap_or_default());
            }
        }
        outcome
    };
    let (done, failed) = by_pools((kills, KILLS_OF_A_POOL), seed, "--keep ", run, |figures, so_far| {
        let (word, longest) = (if figures.errors == 0 { "ok   " } else { "FAIL " }, figures.longest.as_secs_f64());
        println!("{word} {so_far}: {} errors, longest wait {longest:.2} s; acknowledged: {}", figures.errors, told(&figures.acknowledged));
        total.errors += figures.errors;
        total.longest = total.longest.max(figures.longest);
        figures.acknowledged.into_iter().for_each(|(name, count)| *total.acknowledged.entry(name).or_default() += count);
    });
    println!(
        "{done} kills, {failed} pools failed, {} errors of programs, longest wait {:.2} s; acknowledged were {}",
        total.errors,
        total.longest.as_secs_f64(),
        told(&total.acknowledged)
    );
    failed == 0 && total.errors == 0 && done > 0
}
