//! The daemon is replaced while programs use its mounts: what users lose if this fails is a program that sees an error, a write that is lost or
//! done twice, a file that is deleted while it is open.

use crate::programs::{Held, append, ended, store, trees};
use crate::world::{Failure, Running, World, judge, same, supervisor};
use need::Need;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Number of replacements under programs.
const UPGRADES: usize = 6;
const PATIENCE: Duration = Duration::from_secs(120);

fn replaced(world: &World, line: &str) -> Result<(), Failure> {
    let before = world.daemon()?;
    world.ok(line)?;
    same("the daemon is another one", world.daemon()? == before, false)
}

/// If this fails, a machine that was tuned is not any more after an upgrade, and nobody notices.
fn parameters_stay(world: &World) -> Result<(), Failure> {
    let file = |name: &str| world.path(&format!("state/sys/module/zfs/parameters/{name}"));
    let usual = std::fs::read_to_string(file("zfs_scan_checkpoint_intval"))?;
    for (name, value) in [("zfs_txg_timeout", "7"), ("zfs_vdev_raidz_impl", "scalar"), ("zfs_arc_max", "100000000")] {
        std::fs::write(file(name), value)?;
    }
    let shown = |name: &str| std::fs::read_to_string(file(name));
    let words = shown("zfs_vdev_raidz_impl")?;
    replaced(world, "zirconia upgrade")?;
    same("a parameter that was set", shown("zfs_txg_timeout")?.trim(), "7")?;
    same("a word that was chosen", shown("zfs_vdev_raidz_impl")?, words)?;
    same("the size of caches", shown("zfs_arc_max")?.trim(), "100000000")?;
    same("a parameter that nobody set", shown("zfs_scan_checkpoint_intval")?, usual)?;
    let cache = world.ok("cat {dir}/state/proc/spl/kstat/zfs/arcstats")?;
    same("what runs follows it", cache.out.lines().any(|line| line.starts_with("c_max") && line.ends_with(" 100000000")), true)?;
    Ok(())
}

/// Programs that write, store, make and remove, hold files and locks, and list, go on under one daemon after the other.
pub fn under_programs(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a"])?;
    world.ok("zpool create -m {mnt}/tank tank {vdevs}/a")?;
    for name in ["tank/append", "tank/trees", "tank/store"] {
        world.ok(&format!("zfs create {name}"))?;
    }
    // What is mounted by hand, and elsewhere, goes on too.
    world.ok("zfs create -o canmount=noauto tank/byhand")?;
    world.ok("zfs mount -o ro tank/byhand")?;
    let held = Held::take(world)?;
    let script =
        "cd {mnt}/tank && for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do cat kept | cksum && sleep 0.2 || exit 1; done";
    std::fs::write(world.path("works.sh"), script.replace("{mnt}", &world.at("mnt")))?;
    let works = world.start("sh -e {dir}/works.sh", PATIENCE)?;
    let stop = AtomicBool::new(false);
    let at = |name: &str| world.path(&format!("mnt/tank/{name}"));
    let outcome = std::thread::scope(|scope| {
        let programs = [
            scope.spawn(|| append(&at("append/log"), &stop)),
            scope.spawn(|| trees(&at("trees"), &stop)),
            scope.spawn(|| store(&at("store/mapped"), &stop)),
        ];
        let upgraded =
            (0..UPGRADES).try_for_each(|_| replaced(world, "zirconia upgrade").inspect_err(|_| stop.store(true, Ordering::Release)));
        let held = upgraded.and_then(|()| held.check(world, || replaced(world, "zirconia upgrade")));
        ended(world, &stop, programs, held)
    });
    outcome?;
    let (worked, _) = works.finish()?;
    if worked.code != 0 {
        return Err(worked.fault("a program that works in the mount should see no error"));
    }
    world.ok("zfs list -H -o mounted tank/byhand")?.prints("yes")?;
    same("it is read-only", std::fs::write(world.path("mnt/tank/byhand/f"), "").is_err(), true)?;
    world.logged(&["leaves its mounts to the next daemon", "replaces the daemon"])?;
    parameters_stay(world)?;
    world.ok("zpool export tank")?;
    // Nothing is mounted: there is nothing to leave, but this.
    replaced(world, "zirconia upgrade")?;
    let timeout = std::fs::read_to_string(world.path("state/sys/module/zfs/parameters/zfs_txg_timeout"))?;
    same("a parameter that was set, without mounts", timeout.trim(), "7")?;
    world.ok("zpool import -d {vdevs} tank")?;
    world.ok("zpool export tank")?;
    world.clean(&judge("upgrade: OpenZFS's judgement")?, "-e -p {vdevs} -bcch tank").map(drop)
}

/// Begins to replace the daemon by a program that says nothing; the daemon is gone.
fn to_what_sleeps(world: &World) -> Result<Running, Failure> {
    std::fs::write(world.path("sleeps"), "#!/bin/sh\nsleep 1000\nexit 0\n")?;
    world.ok("chmod 755 {dir}/sleeps")?;
    let daemon = world.daemon()?;
    let upgrade = world.start("zirconia upgrade {dir}/sleeps", PATIENCE)?;
    let begun = Instant::now();
    while std::path::Path::new(&format!("/proc/{daemon}/fd/0")).exists() {
        same("the daemon leaves in time", begun.elapsed() < PATIENCE, true)?;
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(upgrade)
}

/// If this fails, somebody stops the service while it is being replaced, is told that it does not run, and a moment later all is back.
pub fn stopped_meanwhile(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a"])?;
    world.ok("zpool create -m {mnt}/tank tank {vdevs}/a")?;
    std::fs::write(world.path("mnt/tank/file"), "1")?;
    let upgrade = to_what_sleeps(world)?;
    world.ok("zirconia stop")?.says("being replaced")?;
    same("the status, not running", world.run("zirconia status")?.code, 3)?;
    same("it is unmounted", world.path("mnt/tank/file").exists(), false)?;
    // It says which goes on, or, when it did not see that one, that it ended meanwhile.
    same("the exit status of the upgrade", upgrade.finish()?.0.code, 1)?;
    world.ok("zirconia stop")?.prints("not running")?;
    world.ok("zpool list -H -o name")?.prints("tank")?;
    world.ok("zfs mount -a")?;
    same("what was written", std::fs::read_to_string(world.path("mnt/tank/file"))?.as_str(), "1")
}

/// If this fails, `zirconia stop` just as an upgrade begins waits a minute and fails, or mounts are left that nobody serves.
pub fn stopped_as_it_begins(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a"])?;
    world.ok("zpool create -m {mnt}/tank tank {vdevs}/a")?;
    for name in ["tank/a", "tank/b", "tank/c"] {
        world.ok(&format!("zfs create {name}"))?;
    }
    for round in 0..12 {
        let text = round.to_string();
        std::fs::write(world.path("mnt/tank/c/file"), &text)?;
        let upgrade = world.start("zirconia upgrade", PATIENCE)?;
        std::thread::sleep(Duration::from_millis(10 * (round % 6)));
        let (stopped, took) = world.start("zirconia stop", PATIENCE)?.finish()?;
        same("the exit status of the stop, and what it says", (stopped.code, stopped.err), (0, String::new()))?;
        same("it is stopped in time", took < Duration::from_secs(20), true)?;
        // It came before the stop, was refused, or its daemon was stopped.
        upgrade.finish()?;
        same("the status, not running", world.run("zirconia status")?.code, 3)?;
        same("it is unmounted", world.path("mnt/tank/c/file").exists(), false)?;
        // What is written from here on is not beneath the mount.
        world.ok("zirconia start")?.shows("tank")?;
        same("what was written", std::fs::read_to_string(world.path("mnt/tank/c/file"))?, text)?;
    }
    Ok(())
}

/// If this fails, a daemon that dies again and again comes back after somebody stopped it.
pub fn stopped_between_deaths(world: &World) -> Result<(), Failure> {
    world.ok("zpool list")?;
    // The pauses grow: after the third death it is two seconds.
    let mut before = String::new();
    for _ in 0..3 {
        let begun = Instant::now();
        let mut daemon = world.daemon();
        while !daemon.as_ref().is_ok_and(|now| *now != before) || world.run("zirconia status")?.code != 0 {
            same("the daemon starts again", begun.elapsed() < PATIENCE, true)?;
            std::thread::sleep(Duration::from_millis(20));
            daemon = world.daemon();
        }
        before = daemon?;
        world.ok(&format!("kill -9 {before}"))?;
    }
    // Nobody has to guess whether another one comes.
    let begun = Instant::now();
    while !world.run("zirconia status")?.out.contains("died 3 times") {
        same("the status tells of the deaths", begun.elapsed() < PATIENCE, true)?;
        std::thread::sleep(Duration::from_millis(20));
    }
    world.run("zirconia status")?.shows("is started again 2s after that")?;
    world.refused("zirconia upgrade", 1, "is started again 2s after that")?;
    world.ok("zirconia stop")?.prints("not running")?;
    world.run("zirconia status")?.hides("started again")?;
    std::thread::sleep(Duration::from_secs(4));
    same("the status, not running", world.run("zirconia status")?.code, 3)
}

/// A program that starts and says nothing must not keep programs waiting for ever; a second upgrade meanwhile, and one without a daemon, say why
/// they do nothing.
pub fn stuck(world: &World) -> Result<(), Failure> {
    world.refused("zirconia upgrade", 1, "there is nothing to replace")?;
    world.vdevs(&["a"])?;
    world.ok("zpool create -m {mnt}/tank tank {vdevs}/a")?;
    let mut log = OpenOptions::new().create_new(true).append(true).open(world.path("mnt/tank/log"))?;
    log.write_all(b"1")?;
    let upgrade = to_what_sleeps(world)?;
    world.refused("zirconia upgrade", 1, "being replaced")?;
    let looks = world.start("zpool list -H -o name", PATIENCE)?;
    // It waits, and sees no error.
    log.write_all(b"2")?;
    let (upgraded, _) = upgrade.finish()?;
    same("its exit status", upgraded.code, 1)?;
    upgraded.says("did not start")?;
    let (looked, _) = looks.finish()?;
    looked.prints("tank")?.says("being replaced")?;
    world.logged(&["did not go on with the mounts in time"])?;
    same("what was written", std::fs::read_to_string(world.path("mnt/tank/log"))?.as_str(), "12")?;
    replaced(world, "zirconia upgrade")
}

/// Without the process that starts daemons again nobody can keep the mounts: an upgrade says so and what helps, and programs see no error.
pub fn without_keeper(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a"])?;
    world.ok("zpool create -m {mnt}/tank tank {vdevs}/a")?;
    std::fs::write(world.path("mnt/tank/file"), "1")?;
    let daemon = world.daemon()?;
    let keeper = supervisor(&daemon).ok_or("      no process starts the daemon again")?;
    world.ok(&format!("kill -9 {keeper}"))?;
    world.refused("zirconia upgrade", 1, "starts it again when it dies, is gone")?.says("'zirconia stop' and 'zirconia start'")?;
    same("the daemon", world.daemon()?, daemon)?;
    same("it is served", std::fs::read_to_string(world.path("mnt/tank/file"))?.as_str(), "1")?;
    world.ok("zirconia stop")?;
    world.ok("zirconia start")?.shows("tank")?;
    same("what was written", std::fs::read_to_string(world.path("mnt/tank/file"))?.as_str(), "1")?;
    replaced(world, "zirconia upgrade")
}

/// A program that is no daemon, one that is not there, mounts that cannot be left: programs see no error, and the daemon goes on.
pub fn refused(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a"])?;
    world.ok("zpool create -m {mnt}/tank tank {vdevs}/a")?;
    let path = world.path("mnt/tank/log");
    let mut log = OpenOptions::new().create_new(true).append(true).open(&path)?;
    log.write_all(b"1")?;
    world.refused("zirconia upgrade {dir}/nowhere", 1, "cannot replace the daemon")?;
    // The service would end, and every mount with it.
    world.ok("mkfifo {dir}/fifo")?;
    std::fs::write(world.path("plain"), "text\n")?;
    for program in ["{dir}/plain", "{dir}/mnt", "{dir}/fifo"] {
        world.refused(&format!("zirconia upgrade {program}"), 1, "nothing was changed")?;
        same("it is served", std::fs::read(&path)?.as_slice(), b"1".as_slice())?;
    }
    // No format that the system runs.
    std::fs::write(world.path("garbage"), [0x7f, b'E', b'L', b'F', 0, 1, 2, 3])?;
    world.ok("chmod 755 {dir}/garbage")?;
    world.refused("zirconia upgrade {dir}/garbage", 1, "did not start")?;
    for program in ["/bin/false", "/bin/true"] {
        let program = std::fs::canonicalize(program)?.display().to_string();
        world.refused(&format!("zirconia upgrade {program}"), 1, "did not start")?;
        log.write_all(b"2")?;
    }
    let mut text = String::new();
    File::open(&path)?.read_to_string(&mut text)?;
    same("what was written", text.as_str(), "122")?;
    // A daemon that dies is another matter, also after a replacement.
    replaced(world, "zirconia upgrade")?;
    // One that is killed before it goes on with a mount leaves that to the next.
    log.write_all(b"3")?;
    let daemon = world.daemon()?;
    world.ok(&format!("kill -9 {daemon}"))?;
    let begun = Instant::now();
    // It is served until the process is gone.
    while log.write_all(b"4").is_ok() {
        same("its open files are lost", begun.elapsed() < PATIENCE, true)?;
    }
    crate::hidden::comes_back(world, "tank")?;
    same("what is on disk", std::fs::read(&path)?.starts_with(b"122"), true)?;
    if !need::lacks(Need::Root, "upgrade: a pool in a mounted file system")? {
        File::create(world.path("mnt/tank/vdev"))?.set_len(crate::world::VDEV_BYTES / 4)?;
        world.ok("zpool create -m none inner {mnt}/tank/vdev")?;
        world.refused("zirconia upgrade", 1, "files in a mounted file system")?;
        world.ok("zpool destroy inner")?;
    }
    replaced(world, "zirconia upgrade")
}
