//! The daemon dies while its mounts are kept (`zirconia_keep_mounts`): what users lose if this fails is a program that sees an error, a write that is
//! gone or done twice, a file that is deleted while it is open. Where the keeper dies too it is a crash: what was made durable is there.

use crate::kills::Chance;
use crate::kills::keep::{KEEP, REST, kill};
use crate::programs::{Held, append, ended, store, trees};
use crate::waiting::until;
use crate::world::{Failure, World, judge, same};
use need::Need;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// Number of kills under programs.
const KILLS: u64 = 10;

/// True when the kernel sends again what a daemon that died had read: before Linux 6.9 mounts are not kept.
fn sends_again() -> Result<bool, Failure> {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease")?;
    let mut numbers = release.split(|letter: char| !letter.is_ascii_digit()).flat_map(str::parse::<u32>);
    if (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= (6, 9) {
        return Ok(true);
    }
    need::missing(Need::Fuse, "death: mounts that are kept", "the kernel has what that takes from Linux 6.9 on")?;
    Ok(false)
}

fn create(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a"])?;
    world.ok_with((KEEP.0, Path::new(KEEP.1)), "zpool create -m {mnt}/tank tank {vdevs}/a").map(drop)
}

/// Writes a file that grows, piece after piece, and reads all of it now and then: nothing is synced.
fn grow(path: &Path, stop: &AtomicBool) -> Result<(), String> {
    use std::os::unix::fs::FileExt;
    let why = |what: &'static str| move |error: std::io::Error| format!("      {what}: {error}");
    let file = OpenOptions::new().create_new(true).read(true).write(true).open(path).map_err(why("create"))?;
    let mut wanted = Vec::new();
    for count in 0_usize.. {
        if stop.load(Ordering::Acquire) {
            break;
        }
        // A file of so many bytes begins anew.
        if wanted.len() > 8 << 20 {
            file.set_len(0).map_err(why("truncate"))?;
            wanted.clear();
        }
        let piece: Vec<u8> = (0..count * 577 % 70_000).map(|at| (at ^ count ^ (at >> 8)) as u8).collect();
        file.write_all_at(&piece, wanted.len() as u64).map_err(why("write"))?;
        wanted.extend(piece);
        if count.is_multiple_of(16) {
            let mut found = vec![0; wanted.len()];
            file.read_exact_at(&mut found, 0).map_err(why("read"))?;
            if found != wanted {
                return Err("      a file that grows has other bytes".into());
            }
        }
    }
    let found = std::fs::read(path).map_err(why("read"))?;
    if found == wanted { Ok(()) } else { Err("      a file that grew has other bytes".into()) }
}

/// Programs go on, whatever they do, while one daemon after the other is killed.
pub fn programs_go_on(world: &World) -> Result<(), Failure> {
    if !sends_again()? {
        return Ok(());
    }
    create(world)?;
    for name in ["tank/append", "tank/trees", "tank/store", "tank/grow"] {
        world.ok(&format!("zfs create {name}"))?;
    }
    world.ok("zfs create -o canmount=noauto tank/byhand")?;
    world.ok("zfs mount -o ro tank/byhand")?;
    let held = Held::take(world)?;
    let stop = AtomicBool::new(false);
    let at = |name: &str| world.path(&format!("mnt/tank/{name}"));
    let outcome = std::thread::scope(|scope| {
        let programs = [
            scope.spawn(|| append(&at("append/log"), &stop)),
            scope.spawn(|| trees(&at("trees"), &stop)),
            scope.spawn(|| store(&at("store/mapped"), &stop)),
            scope.spawn(|| grow(&at("grow/file"), &stop)),
        ];
        let mut chance = Chance(world.options().seed.unwrap_or(1) | 1);
        let is_wrong = || programs.iter().any(|program| program.is_finished());
        let killed = kill(world, KILLS, &mut chance, &is_wrong).and_then(|()| {
            held.check(world, || {
                std::thread::sleep(REST);
                kill(world, 1, &mut chance, &is_wrong)
            })
        });
        ended(world, &stop, programs, killed)
    });
    outcome?;
    world.ok("zfs list -H -o mounted tank/byhand")?.prints("yes")?;
    same("it is read-only", std::fs::write(at("byhand/f"), "").is_err(), true)?;
    world.logged(&["its mounts wait for the next one"])?;
    world.ok("zpool export tank")?;
    world.clean(&judge("death: OpenZFS's judgement")?, "-e -p {vdevs} -bcch tank").map(drop)
}

/// Writes a file and makes it durable, with its name.
fn make_durable(path: &Path) -> Result<(), Failure> {
    let mut file = File::create_new(path)?;
    write!(file, "{}", path.display())?;
    file.sync_all()?;
    Ok(path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())?)
}

/// Number of the process that started the daemon.
fn keeper_of(daemon: &str) -> Result<String, Failure> {
    let status = std::fs::read_to_string(format!("/proc/{daemon}/status"))?;
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"));
    Ok(parent.ok_or("      a process without a parent")?.trim().to_string())
}

/// The keeper is killed, and the daemon with it or later: as after a crash, what was made durable is there, and the mounts come back with a command.
pub fn keeper_is_killed(world: &World) -> Result<(), Failure> {
    if !sends_again()? {
        return Ok(());
    }
    create(world)?;
    for (round, goes_on) in [true, false].into_iter().enumerate() {
        let path = |name: &str| world.path(&format!("mnt/tank/{name}{round}"));
        make_durable(&path("before"))?;
        let daemon = world.daemon()?;
        world.ok(&format!("kill -9 {}", keeper_of(&daemon)?))?;
        if goes_on {
            make_durable(&path("after"))?;
        }
        world.ok(&format!("kill -9 {daemon}"))?;
        until("the daemon's process ends", || Ok(!Path::new(&format!("/proc/{daemon}")).exists()))?;
        world.ok_with((KEEP.0, Path::new(KEEP.1)), "zpool list tank")?;
        let names = if goes_on { &["before", "after"][..] } else { &["before"][..] };
        for name in names {
            let wanted = path(name).display().to_string();
            until("what was durable is there", || Ok(std::fs::read_to_string(path(name)).is_ok_and(|found| found == wanted)))?;
        }
    }
    world.ok("zpool export tank")?;
    world.clean(&judge("death: OpenZFS's judgement")?, "-e -p {vdevs} -bcch tank").map(drop)
}
