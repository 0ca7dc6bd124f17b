//! Devices that lead to the same bytes: whoever has one of them open has them all, also when another daemon asks.

use crate::world::{Failure, Running, World, same};
use std::time::Duration;

/// Time by which an import that waits for nobody has ended.
const SILENCE: Duration = Duration::from_secs(60);

/// Loop device, gone at the end.
pub struct Loop<'a> {
    world: &'a World,
    /// Path of the device.
    pub device: String,
}

impl Loop<'_> {
    /// Makes a loop device over a file, with these options of losetup(8).
    pub fn over<'a>(world: &'a World, options: &str, file: &str) -> Result<Loop<'a>, Failure> {
        let said = world.ok(&format!("losetup --find --show {options} {file}"))?;
        Ok(Loop { world, device: said.out.trim().to_string() })
    }
}

impl Drop for Loop<'_> {
    fn drop(&mut self) {
        // One that is in use goes when it is closed.
        let _ = self.world.run(&format!("losetup --detach {}", self.device));
    }
}

/// If this fails, one pool is open in two daemons at once, or a pool is made over one that is in use: all of it is lost.
pub fn to_the_same(world: &World) -> Result<(), Failure> {
    let other = World::new(world.options())?;
    let paths = world.vdevs(&["a", "b", "c", "cache"])?;
    let [a, b, c, _] = paths.as_slice() else { return Err("      four files".into()) };
    std::fs::hard_link(a, world.path("link"))?;
    let link = world.at("link");
    other.ok("zpool list")?;
    refuses_file(world, &other, a, &link)?;
    // A file with a name that nobody has any more.
    world.ok("zpool destroy one")?;
    let gone = Loop::over(world, "", a)?;
    std::fs::remove_file(a)?;
    world.ok(&format!("zpool create -f -O canmount=off one {}", gone.device))?;
    other.refused(&format!("zpool create -f -O canmount=off two {link}"), 1, "two")?;
    other.refused(&format!("zpool import -f -d {link} one"), 1, "one")?;
    world.ok("zpool destroy one")?;
    drop(gone);
    parts(world, &other, b)?;
    mounted(world, c)
}

/// If this fails, a listing advises to force in what another daemon has.
pub fn held(world: &World) -> Result<(), Failure> {
    let other = World::new(world.options())?;
    let paths = world.vdevs(&["a", "b"])?;
    world.ok("zpool create -O mountpoint=none one mirror {vdevs}/a {vdevs}/b")?;
    for path in &paths {
        let listed = other.ok(&format!("zpool import -d {path}"))?;
        listed.shows("UNAVAIL  currently in use")?.shows("in use by another process of this system")?.hides("can be imported")?;
    }
    other.refused(&format!("zpool import -f -d {} -d {} one", paths[0], paths[1]), 1, "in use")?;
    world.ok("zpool export one")?;
    other.ok(&format!("zpool import -d {} -d {}", paths[0], paths[1]))?.shows("The pool can be imported")?.hides("in use")?;
    other.ok("zirconia stop").map(drop)
}

/// If this fails, nobody can import what lies beside the mount of a daemon that does not answer, which is when somebody has to.
pub fn beside_silence(world: &World) -> Result<(), Failure> {
    let other = World::new(world.options())?;
    let paths = world.vdevs(&["a", "b"])?;
    other.ok(&format!("zpool create -O mountpoint=none two {}", paths[1]))?;
    other.ok("zpool export two")?;
    world.ok("zpool create -m {vdevs}/mounted one {vdevs}/a")?;
    let daemon = world.daemon()?;
    // The kernel has to ask for the attributes of a folder that changed.
    std::fs::write(world.path("vdevs/mounted/file"), "text")?;
    world.ok(&format!("kill -STOP {daemon}"))?;
    let imported = other.start(&format!("zpool import -d {} two", world.at("vdevs")), SILENCE).and_then(Running::finish);
    world.ok(&format!("kill -CONT {daemon}"))?;
    same("the status of an import", imported?.0.code, 0)
}

/// Checks that the file of a pool is refused to the other daemon, as are links to it and loop devices over it.
fn refuses_file(world: &World, other: &World, file: &str, link: &str) -> Result<(), Failure> {
    world.ok(&format!("zpool create -O canmount=off one {file}"))?;
    let first = Loop::over(world, "", link)?;
    let second = Loop::over(world, "", &first.device)?;
    let takes = |path: &str| -> Result<(), Failure> {
        other.refused(&format!("zpool import -f -d {path} one"), 1, "one")?;
        other.refused(&format!("zpool import -f -d {path} -o readonly=on one"), 1, "one")?;
        other.refused(&format!("zpool create -f -O canmount=off two {path}"), 1, "two")?;
        other.refused(&format!("zpool labelclear -f {path}"), 1, "")?;
        Ok(())
    };
    [file, link, &first.device, &second.device].into_iter().try_for_each(takes)?;
    other.vdevs(&["d", "spare"])?;
    other.ok("zpool create -O canmount=off two {vdevs}/d")?;
    for verb in ["add", "add -f", "add two spare", "add two cache", "attach two {vdevs}/d", "replace two {vdevs}/d"] {
        let verb = if verb.contains(' ') && !verb.ends_with("-f") { verb.replacen(' ', " -f ", 1) } else { format!("{verb} two") };
        for path in [link, &first.device, &second.device] {
            other.refused(&format!("zpool {verb} {path}"), 1, "")?;
        }
    }
    other.ok("zpool destroy two")?;
    world.ok("zpool export one")?;
    for path in [&first.device, &second.device] {
        world.ok(&format!("zpool import -d {path} one"))?;
        [file, link, &first.device, &second.device].into_iter().try_for_each(takes)?;
        world.ok("zpool export one")?;
    }
    // Nobody has it now.
    other.ok(&format!("zpool import -f -d {} one", second.device))?;
    other.ok("zpool export one")?;
    world.ok(&format!("zpool import -f -d {file} one")).map(drop)
}

/// Parts of one file are devices of their own; what overlaps is not.
fn parts(world: &World, other: &World, file: &str) -> Result<(), Failure> {
    let half = 128 << 20;
    let low = Loop::over(world, &format!("--sizelimit {half}"), file)?;
    let high = Loop::over(world, &format!("--offset {half}"), file)?;
    let middle = Loop::over(world, &format!("--offset {} --sizelimit {half}", half / 2), file)?;
    world.ok(&format!("zpool create -O canmount=off low {}", low.device))?;
    other.ok(&format!("zpool create -O canmount=off high {}", high.device))?;
    for daemon in [world, other] {
        daemon.refused(&format!("zpool create -f -O canmount=off middle {}", middle.device), 1, "middle")?;
        daemon.refused(&format!("zpool create -f -O canmount=off middle {file}"), 1, "middle")?;
    }
    world.ok("zpool destroy low")?;
    other.refused(&format!("zpool create -f -O canmount=off middle {}", middle.device), 1, "middle")?;
    other.ok("zpool destroy high")?;
    world.ok(&format!("zpool create -f -O canmount=off middle {}", middle.device))?;
    world.ok("zpool destroy middle").map(drop)
}

/// Checks that no pool is made on a file that is mounted through a loop device.
fn mounted(world: &World, file: &str) -> Result<(), Failure> {
    let device = Loop::over(world, "", file)?;
    world.ok(&format!("mkfs.ext4 -q {}", device.device))?;
    std::fs::create_dir_all(world.path("host"))?;
    world.ok(&format!("mount {} {{dir}}/host", device.device))?;
    let refused = world.refused(&format!("zpool create -f -O canmount=off three {file}"), 1, "three");
    world.ok("umount {dir}/host")?;
    refused?;
    world.ok(&format!("zpool create -f -O canmount=off three {file}"))?;
    world.ok("zpool destroy three").map(drop)
}
