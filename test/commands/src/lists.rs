//! POSIX access control lists: set, kept to by the kernel, inherited; what a chmod, another `acltype` and a new mount make of them.

use crate::world::{Failure, World, same};
use rustix::fs::{XattrFlags, getxattr, listxattr, removexattr, setxattr};
use rustix::io::Errno;
use std::fs::{File, Permissions, set_permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";
/// Ids of somebody whom lists name, and of somebody else.
const NAMED: u32 = 65_533;
const OTHER: u32 = 65_534;

/// Rights in a list: of the owner, of [`NAMED`], of the owning group, the mask, of others.
#[derive(Clone, Copy)]
struct List(u16, u16, u16, u16, u16);

impl List {
    /// Encodes the list as setxattr(2) wants it.
    fn bytes(self) -> Vec<u8> {
        let nobody = u32::MAX;
        let entries = [(1_u16, self.0, nobody), (2, self.1, NAMED), (4, self.2, nobody), (0x10, self.3, nobody), (0x20, self.4, nobody)];
        let entry = |(tag, rights, id): (u16, u16, u32)| [&tag.to_le_bytes()[..], &rights.to_le_bytes(), &id.to_le_bytes()].concat();
        [2_u32.to_le_bytes().to_vec(), entries.into_iter().flat_map(entry).collect()].concat()
    }

    fn set(self, path: &Path, name: &str) -> Result<(), Errno> {
        setxattr(path, name, &self.bytes(), XattrFlags::empty())
    }
}

fn list_of(path: &Path, name: &str) -> Result<Vec<u8>, Errno> {
    let mut room = [0_u8; 4096];
    let length = getxattr(path, name, &mut room)?;
    Ok(room[..length].to_vec())
}

fn mode(path: &Path) -> Result<u32, Failure> {
    Ok(std::fs::symlink_metadata(path)?.mode() & 0o7777)
}

fn change_mode(path: &Path, mode: u32) -> Result<(), Failure> {
    Ok(set_permissions(path, Permissions::from_mode(mode))?)
}

/// True when a program of this user succeeds.
fn may(world: &World, user: u32, line: &str) -> Result<bool, Failure> {
    Ok(world.run(&format!("setpriv --reuid={user} --regid={user} --clear-groups {line}"))?.code == 0)
}

/// Checks who reads and who writes a file: whom lists name, and the other.
fn open_to(world: &World, file: &str, what: &str, (named, other): ((bool, bool), (bool, bool))) -> Result<(), Failure> {
    for (user, wanted) in [(NAMED, named), (OTHER, other)] {
        let found = (may(world, user, &format!("cat {{mnt}}/tank/{file}"))?, may(world, user, &format!("touch -c {{mnt}}/tank/{file}"))?);
        same(&format!("{what}: what user {user} reads and writes"), found, wanted)?;
    }
    Ok(())
}

const NOTHING: (bool, bool) = (false, false);
const READS: (bool, bool) = (true, false);
const BOTH: (bool, bool) = (true, true);

fn access(world: &World) -> Result<(), Failure> {
    let file = world.path("mnt/tank/file");
    std::fs::write(&file, "words")?;
    change_mode(&file, 0o640)?;
    open_to(world, "file", "without a list", (NOTHING, NOTHING))?;
    let given = List(6, 6, 0, 6, 0);
    given.set(&file, ACCESS)?;
    same("the mode, whose group is the mask", mode(&file)?, 0o660)?;
    same("the list", list_of(&file, ACCESS)?, given.bytes())?;
    open_to(world, "file", "who is named", (BOTH, NOTHING))?;
    change_mode(&file, 0o600)?;
    same("the list after a chmod", list_of(&file, ACCESS)?, List(6, 6, 0, 0, 0).bytes())?;
    open_to(world, "file", "a mask of nothing", (NOTHING, NOTHING))?;
    change_mode(&file, 0o640)?;
    open_to(world, "file", "a mask of reading", (READS, NOTHING))?;
    List(6, 0, 4, 4, 4).set(&file, ACCESS)?;
    open_to(world, "file", "who is named and shut out", (NOTHING, READS))?;
    removexattr(&*file, ACCESS)?;
    same("the mode stays", mode(&file)?, 0o644)?;
    same("no list", list_of(&file, ACCESS), Err(Errno::NODATA))?;
    open_to(world, "file", "the list is gone", (READS, READS))?;
    same("no list", setxattr(&*file, ACCESS, &given.bytes()[..12], XattrFlags::empty()), Err(Errno::INVAL))?;
    same("a default list of a file", given.set(&file, DEFAULT), Err(Errno::ACCESS))
}

fn inheritance(world: &World) -> Result<(), Failure> {
    let folder = world.path("mnt/tank/shared");
    std::fs::create_dir(&folder)?;
    change_mode(&folder, 0o777)?;
    let default = List(7, 7, 0, 7, 0);
    default.set(&folder, DEFAULT)?;
    same("somebody makes a file", may(world, OTHER, "touch {mnt}/tank/shared/file")?, true)?;
    same("its mode: the umask does not count", mode(&folder.join("file"))?, 0o660)?;
    same("its list", list_of(&folder.join("file"), ACCESS)?, List(6, 7, 0, 6, 0).bytes())?;
    same("a file has no default list", list_of(&folder.join("file"), DEFAULT), Err(Errno::NODATA))?;
    open_to(world, "shared/file", "in a shared directory", (BOTH, BOTH))?;
    same("somebody makes a directory", may(world, OTHER, "mkdir {mnt}/tank/shared/inner")?, true)?;
    same("its default list", list_of(&folder.join("inner"), DEFAULT)?, default.bytes())?;
    same("who is named makes a file in it", may(world, NAMED, "touch {mnt}/tank/shared/inner/file")?, true)?;
    same("its mode", mode(&folder.join("inner/file"))?, 0o660)?;
    removexattr(&*folder, DEFAULT)?;
    same("somebody makes a file again", may(world, OTHER, "touch {mnt}/tank/shared/plain")?, true)?;
    same("the umask counts again", mode(&folder.join("plain"))? & 0o002, 0)?;
    same("no list is inherited", list_of(&folder.join("plain"), ACCESS), Err(Errno::NODATA))
}

/// Lists that begin to count while files are open: nobody is shown one to which the kernel does not keep, and a chmod changes none.
fn not_kept_to(world: &World, file: &Path, given: List) -> Result<(), Failure> {
    let open = File::open(file)?;
    world.ok("zfs set acltype=posix tank")?.shows("acltype: takes effect when the file systems that are in use are mounted again")?;
    open_to(world, "file", "in use, without lists", (NOTHING, NOTHING))?;
    same("a list that does not count", list_of(file, ACCESS), Err(Errno::OPNOTSUPP))?;
    same("it is not named", listxattr(file, &mut [0_u8; 256]), Ok(0))?;
    change_mode(file, 0o640)?;
    drop(open);
    world.ok("zfs unmount tank")?;
    world.ok("zfs mount tank")?;
    same("the list, which the chmod left", list_of(file, ACCESS)?, given.bytes())?;
    open_to(world, "file", "with lists again", (BOTH, NOTHING))
}

/// Who shares files with somebody beyond their group, or shuts somebody out, relies on it: also after a chmod, with the next mount, and for what
/// others make in a shared directory.
pub fn posix(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a"])?;
    world.ok("zpool create -O acltype=posix -m {mnt}/tank tank {vdevs}/a")?;
    for way in ["sa", "dir"] {
        world.ok(&format!("zfs set xattr={way} tank"))?;
        access(world)?;
        inheritance(world)?;
        std::fs::remove_dir_all(world.path("mnt/tank/shared"))?;
    }
    let file = world.path("mnt/tank/file");
    let given = List(6, 6, 0, 6, 0);
    given.set(&file, ACCESS)?;
    world.ok("zpool export tank")?;
    world.ok("zpool import -d {vdevs} tank")?;
    open_to(world, "file", "after an import", (BOTH, NOTHING))?;
    // With another type lists are neither kept to nor shown, nor lost.
    world.ok("zfs set acltype=off tank")?;
    open_to(world, "file", "acltype=off", (NOTHING, NOTHING))?;
    same("no list with acltype=off", list_of(&file, ACCESS), Err(Errno::OPNOTSUPP))?;
    same("none can be set", given.set(&file, ACCESS), Err(Errno::OPNOTSUPP))?;
    world.ok("zfs set acltype=posix tank")?;
    open_to(world, "file", "acltype=posix again", (BOTH, NOTHING))?;
    same("the list is there", list_of(&file, ACCESS)?, given.bytes())?;
    // What is in use goes on as it is.
    let open = File::open(&file)?;
    world.ok("zfs set acltype=off tank")?.shows("acltype: takes effect when the file systems that are in use are mounted again")?;
    open_to(world, "file", "in use", (BOTH, NOTHING))?;
    drop(open);
    world.ok("zfs unmount tank")?;
    world.ok("zfs mount tank")?;
    open_to(world, "file", "mounted again", (NOTHING, NOTHING))?;
    not_kept_to(world, &file, given)?;
    world.ok("zpool destroy tank").map(drop)
}

/// Who has a pool without being root shares files in it as root does.
pub fn ordinary_user(world: &World) -> Result<(), Failure> {
    let is_root = need::is_root();
    let user = if is_root { "setpriv --reuid=65534 --regid=65534 --clear-groups " } else { "" };
    let (zpool, zfs) = (world.program("zpool"), world.program("zfs"));
    if world.out_of_reach(world.run(&format!("{user}{zpool} --help"))?, "posix: access control lists of an ordinary user's mount")? {
        return Ok(());
    }
    world.vdevs(&["a"])?;
    if is_root {
        world.ok("chown -R 65534:65534 {dir}")?;
    }
    let run = |line: &str| world.ok(&format!("{user}{line}"));
    run(&format!("{zpool} create -O acltype=posix -m {{mnt}}/tank tank {{vdevs}}/a"))?;
    run("mkdir {mnt}/tank/shared")?;
    run("setfacl -m u:65533:rwx,d:u:65533:rwx {mnt}/tank/shared")?;
    run("touch {mnt}/tank/shared/file")?;
    run("getfacl -n -c -p {mnt}/tank/shared/file")?.shows("user:65533:rwx")?.shows("mask::rw-")?;
    run("chmod g= {mnt}/tank/shared/file")?;
    run("getfacl -n -c -p {mnt}/tank/shared/file")?.shows("user:65533:rwx")?.shows("mask::---")?;
    run("setfacl -b {mnt}/tank/shared/file")?;
    run("getfacl -n -c -p {mnt}/tank/shared/file")?.hides("65533")?.hides("mask")?;
    run(&format!("{zfs} set acltype=off tank"))?;
    world.refused(&format!("{user}setfacl -m u:65533:r {{mnt}}/tank/shared"), 1, "Operation not supported")?;
    run(&format!("{zfs} set acltype=posix tank"))?;
    run("getfacl -n -c -p {mnt}/tank/shared")?.shows("default:user:65533:rwx")?;
    run(&format!("{zpool} destroy tank")).map(drop)
}
