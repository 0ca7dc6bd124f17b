//! Memory: a daemon in a small control group lives within it, and what it does not need any more it gives back.

use crate::world::{Failure, World, mebibytes, same};
use need::Need;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Bytes of memory that the control group may have.
const LIMIT_BYTES: u64 = 400 << 20;
/// MiB that are written in it, and the number of files besides.
const WRITTEN_MIB: usize = 500;
const FILES: u32 = 2000;
/// Time by which memory has to be given back, and the KiB that may be left.
const BACK: Duration = Duration::from_secs(60);
const LEFT_KIB: u64 = 150 << 10;

/// Control group with a limit of memory.
struct Group {
    folder: PathBuf,
    above: PathBuf,
}

impl Group {
    /// Makes a group; None where it cannot be made: not root, or no controller.
    fn new() -> Option<Group> {
        let own = std::fs::read_to_string("/proc/self/cgroup").ok()?;
        let path = |controllers: &str| {
            own.lines().find_map(|line| line.split_once(':')?.1.strip_prefix(controllers)?.strip_prefix(":/").map(str::to_string))
        };
        let places = [
            path("memory").map(|path| (Path::new("/sys/fs/cgroup/memory").join(path), "memory.limit_in_bytes")),
            path("").map(|path| (Path::new("/sys/fs/cgroup").join(path), "memory.max")),
        ];
        places.into_iter().flatten().find_map(|(above, limit)| {
            let group = Group { folder: above.join(format!("zirconia-commands-{}", std::process::id())), above };
            std::fs::create_dir(&group.folder).ok()?;
            std::fs::write(group.folder.join(limit), LIMIT_BYTES.to_string()).ok()?;
            Some(group)
        })
    }

    /// Path of the file that a process writes its number to, to become a member.
    fn members(&self) -> PathBuf {
        self.folder.join("cgroup.procs")
    }

    fn let_go(&self, process: &str) -> std::io::Result<()> {
        std::fs::write(self.above.join("cgroup.procs"), process)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for process in std::fs::read_to_string(self.members()).unwrap_or_default().lines() {
            // Who has ended meanwhile is gone as well.
            let _ = self.let_go(process);
        }
        let _ = std::fs::remove_dir(&self.folder);
    }
}

/// KiB of the daemon's memory that are resident.
fn resident(world: &World) -> Result<u64, Failure> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", world.daemon()?))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
    Ok(line.split_whitespace().next().ok_or("no number")?.parse::<u64>()?)
}

/// A daemon that is killed for its memory takes all its mounts along; one that keeps what it once used starves everybody else.
pub fn life(world: &World) -> Result<(), Failure> {
    let group = Group::new();
    if group.is_none() {
        need::missing(Need::Cgroup, "life: memory within a limit", "no group can be made")?;
    }
    world.vdevs(&["a"])?;
    std::fs::OpenOptions::new().write(true).open(world.path("vdevs/a"))?.set_len(1 << 30)?;
    // The shell that starts the daemon becomes a member, nobody else.
    let joins = group.as_ref().map(|group| format!("echo $$ >{} &&\n", group.members().display())).unwrap_or_default();
    let created = format!("{} create -m {} -O compression=off tank {}", world.program("zpool"), world.at("mnt/tank"), world.at("vdevs/a"));
    std::fs::write(world.path("create.sh"), format!("{joins}exec {created}\n"))?;
    world.ok("sh {dir}/create.sh")?;
    let daemon = world.daemon()?;
    if group.is_some() {
        let parameter = std::fs::read_to_string(world.path("state/sys/module/zfs/parameters/zfs_dirty_data_max"))?;
        same("dirty data fit into the group", parameter.trim().parse::<u64>()? < LIMIT_BYTES / 4, true)?;
    }
    let block = mebibytes(1);
    let mut file = std::fs::File::create(world.path("mnt/tank/large"))?;
    for _ in 0..WRITTEN_MIB {
        file.write_all(&block)?;
    }
    drop(file);
    for number in 0..FILES {
        std::fs::write(world.path(&format!("mnt/tank/{number}")), b"small")?;
    }
    world.ok("zpool sync tank")?;
    same("the large file is there", std::fs::read(world.path("mnt/tank/large"))?.chunks(block.len()).all(|part| part == block), true)?;
    same("the same daemon serves it", world.daemon()?, daemon)?;
    world.ok("zpool destroy tank")?;
    let begun = Instant::now();
    while resident(world)? > LEFT_KIB {
        if begun.elapsed() > BACK {
            return Err(format!("      {} KiB are held after the pool is gone", resident(world)?).into());
        }
        std::thread::sleep(Duration::from_millis(250));
    }
    Ok(())
}
