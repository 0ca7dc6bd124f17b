//! Layers of containers: renames that leave a whiteout or exchange two names, and an overlay whose upper directory is on a mount of ours. When these
//! fail, a container sees files that it deleted, or does not start.

use crate::logs::kill;
use crate::waiting::until;
use crate::world::{Failure, World, same};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use std::fs::File;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

/// Texts of files that layers have below.
const BELOW: [(&str, &str); 4] = [("kept", "kept"), ("gone", "gone"), ("moved", "moved"), ("folder/old", "old")];

fn pool(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a"])?;
    world.ok("zpool create -m {mnt}/tank tank {vdevs}/a").map(|_| ())
}

/// True for a whiteout: a character device of number 0.
fn is_whiteout(path: &Path) -> Result<bool, Failure> {
    let found = std::fs::symlink_metadata(path)?;
    Ok(found.file_type().is_char_device() && found.rdev() == 0)
}

/// Names that changed places, and a whiteout, are so again after everything died: the log has them.
pub fn renames(world: &World) -> Result<(), Failure> {
    pool(world)?;
    let folder = world.path("mnt/tank");
    let change = |from: &str, to: &str, flags| renameat_with(CWD, folder.join(from), CWD, folder.join(to), flags);
    for name in ["one", "two", "hidden"] {
        std::fs::write(folder.join(name), name)?;
    }
    // The log's beginning has to be on disk, or what follows is there by a txg and not by the log.
    File::open(&folder)?.sync_all()?;
    world.ok("zpool sync")?;
    change("one", "two", RenameFlags::EXCHANGE)?;
    change("hidden", "shown", RenameFlags::WHITEOUT)?;
    same("a name that is taken", change("one", "two", RenameFlags::NOREPLACE), Err(rustix::io::Errno::EXIST))?;
    same("a name that is missing", change("one", "three", RenameFlags::EXCHANGE), Err(rustix::io::Errno::NOENT))?;
    File::open(&folder)?.sync_all()?;
    let look = || -> Result<(), Failure> {
        let text = |name: &str| std::fs::read_to_string(folder.join(name));
        same("what changed places", [text("one")?, text("two")?], ["two".to_string(), "one".to_string()])?;
        same("what was moved", text("shown")?, "hidden".to_string())?;
        same("a whiteout in its place", is_whiteout(&folder.join("hidden"))?, true)
    };
    look()?;
    kill(world)?;
    until("the pool is open again", || Ok(world.ok("zpool status tank")?.out.contains("state: ONLINE")))?;
    look()
}

/// Changes an overlay as a container does, and looks what is left of that in the upper directory.
fn work(overlay: &Path, upper: &Path) -> Result<(), Failure> {
    std::fs::remove_file(overlay.join("gone"))?;
    std::fs::rename(overlay.join("moved"), overlay.join("elsewhere"))?;
    std::fs::remove_dir_all(overlay.join("folder"))?;
    std::fs::create_dir(overlay.join("folder"))?;
    std::fs::write(overlay.join("folder/new"), "new")?;
    let names = |folder: &Path| -> Result<Vec<String>, Failure> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(folder)? {
            names.push(entry?.file_name().to_string_lossy().into_owned());
        }
        names.sort();
        Ok(names)
    };
    same("names in the overlay", names(overlay)?, ["elsewhere", "folder", "kept"].map(String::from).to_vec())?;
    same("names in a folder that was made anew", names(&overlay.join("folder"))?, vec!["new".to_string()])?;
    same("what was moved", std::fs::read_to_string(overlay.join("elsewhere"))?, "moved".to_string())?;
    same("what was not touched", std::fs::read_to_string(overlay.join("kept"))?, "kept".to_string())?;
    for name in ["gone", "moved"] {
        same(&format!("whiteout of '{name}'"), is_whiteout(&upper.join(name))?, true)?;
    }
    Ok(())
}

/// An overlay with its upper directory on a mount of ours does what containers ask of it.
pub fn overlay(world: &World) -> Result<(), Failure> {
    pool(world)?;
    let tank = world.path("mnt/tank");
    for folder in ["below/folder", "upper", "work"] {
        std::fs::create_dir_all(tank.join(folder))?;
    }
    for (name, text) in BELOW {
        std::fs::write(tank.join("below").join(name), text)?;
    }
    let place = world.path("overlay");
    std::fs::create_dir(&place)?;
    world.ok("mount -t overlay overlay -o lowerdir={mnt}/tank/below,upperdir={mnt}/tank/upper,workdir={mnt}/tank/work {dir}/overlay")?;
    let worked = work(&place, &tank.join("upper"));
    world.ok("umount {dir}/overlay")?;
    worked
}
