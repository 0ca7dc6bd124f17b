//! What xfstests asks of file systems by number, where a test of ours does not ask it yet: access times (generic/003), files without a name
//! (004), loops of links (005), directories that were synced before a crash (034), room that is promised (213), buffered readers beside a
//! direct writer (451). Each is written from what its description says it is about.

use crate::world::{Failure, World, same};
use rustix::fs::{Advice, AtFlags, CWD, FallocateFlags, Mode, OFlags};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Number of links that the kernel follows on the way to one file.
const LINKS_MAX: usize = 40;
const PAGE: usize = 4096;
/// Number of direct writes beside readers.
const WRITES: u64 = 500;
/// Time of a sleep that is seen in times of files, whatever the kernel's clock ticks with.
const TICK: std::time::Duration = std::time::Duration::from_millis(20);

fn pool(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a"])?;
    world.ok("zpool create -m {mnt}/tank tank {vdevs}/a")?;
    Ok(())
}

fn atime(path: &Path) -> Result<(i64, i64), Failure> {
    let stat = std::fs::metadata(path)?;
    Ok((stat.atime(), stat.atime_nsec()))
}

/// Reads a file past what the kernel has of it: of a read that it answers by itself no server hears.
fn read_anew(path: &Path) -> Result<(), Failure> {
    std::thread::sleep(TICK);
    let file = File::open(path)?;
    file.sync_all().or_else(|error| if error.raw_os_error() == Some(30) { Ok(()) } else { Err(error) })?;
    rustix::fs::fadvise(&file, 0, None, Advice::DontNeed)?;
    let mut bytes = [0; 1];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(())
}

/// Reads a file of which the kernel may have everything.
fn read_kept(path: &Path) -> Result<(), Failure> {
    std::thread::sleep(TICK);
    std::fs::read(path)?;
    Ok(())
}

fn list_anew(path: &Path) -> Result<(), Failure> {
    std::thread::sleep(TICK);
    std::fs::read_dir(path)?.count();
    Ok(())
}

fn write(path: &Path) -> Result<(), Failure> {
    std::thread::sleep(TICK);
    File::create(path)?.write_all(b"some bytes")?;
    Ok(())
}

/// True when the read moves the access time.
fn moves(path: &Path, read: fn(&Path) -> Result<(), Failure>) -> Result<bool, Failure> {
    let before = atime(path)?;
    read(path)?;
    Ok(atime(path)? != before)
}

/// generic/003: whoever cleans up by access time deletes what is in use, or nothing.
pub fn access_times(world: &World) -> Result<(), Failure> {
    pool(world)?;
    let (file, folder) = (world.path("mnt/tank/file"), world.path("mnt/tank/folder"));
    let touch = || -> Result<(), Failure> {
        write(&file)?;
        std::fs::create_dir_all(&folder)?;
        write(&folder.join("entry"))
    };
    touch()?;
    same("relatime, the first read after a write", moves(&file, read_anew)?, true)?;
    same("relatime, the second", moves(&file, read_anew)?, false)?;
    same("relatime, the first listing after a change", moves(&folder, list_anew)?, true)?;
    same("relatime, the second listing", moves(&folder, list_anew)?, false)?;
    let kept = atime(&file)?;
    for (options, is_read) in [("strictatime", true), ("noatime", false), ("ro", false)] {
        world.ok("zfs unmount tank")?;
        world.ok(&format!("zfs mount -o {options} tank"))?;
        if options == "strictatime" {
            same("an access time after the file system was mounted again", atime(&file)?, kept)?;
        }
        if options != "ro" {
            touch()?;
        }
        for round in ["first", "second"] {
            same(&format!("{options}, the {round} read"), moves(&file, read_anew)?, is_read)?;
            same(&format!("{options}, the {round} read of what the kernel has"), moves(&file, read_kept)?, is_read)?;
            same(&format!("{options}, the {round} listing"), moves(&folder, list_anew)?, is_read)?;
        }
    }
    Ok(())
}

/// generic/004: a file without a name is written, gets a name, and is there for good; one that gets none goes.
pub fn nameless(world: &World) -> Result<(), Failure> {
    pool(world)?;
    let folder = world.path("mnt/tank");
    let open = |more: OFlags| rustix::fs::open(&folder, OFlags::TMPFILE | OFlags::RDWR | more, Mode::RUSR | Mode::WUSR).map(File::from);
    let link = |file: &File, name: &str| {
        let own = format!("/proc/self/fd/{}", file.as_raw_fd());
        rustix::fs::linkat(CWD, own.as_str(), CWD, folder.join(name), AtFlags::SYMLINK_FOLLOW)
    };
    let mut file = open(OFlags::empty())?;
    file.write_all(b"written before it had a name")?;
    file.sync_all()?;
    same("its links", file.metadata()?.nlink(), 0)?;
    same("names in the directory", std::fs::read_dir(&folder)?.count(), 0)?;
    link(&file, "named")?;
    same("its links with a name", file.metadata()?.nlink(), 1)?;
    let exclusive = open(OFlags::EXCL)?;
    same("a name for one that is to have none", link(&exclusive, "never"), Err(rustix::io::Errno::NOENT))?;
    drop((file, exclusive, open(OFlags::empty())?));
    world.ok("zpool export tank")?;
    world.ok("zpool import -d {vdevs} tank")?;
    same("after an import", std::fs::read(folder.join("named"))?.as_slice(), b"written before it had a name")?;
    same("names after an import", std::fs::read_dir(&folder)?.count(), 1)
}

/// generic/005: links that lead to themselves end with ELOOP, long chains within the limit do not.
pub fn loops(world: &World) -> Result<(), Failure> {
    pool(world)?;
    let at = |name: String| world.path(&format!("mnt/tank/{name}"));
    let opened = |name: &str| File::open(at(name.to_string())).map(drop).map_err(|error| error.raw_os_error());
    symlink("self", at("self".into()))?;
    symlink("second", at("first".into()))?;
    symlink("first", at("second".into()))?;
    write(&at("0".into()))?;
    for number in 0..LINKS_MAX + 1 {
        symlink(number.to_string(), at((number + 1).to_string()))?;
    }
    for name in ["self", "first", "second", &(LINKS_MAX + 1).to_string()] {
        same(&format!("open of {name}"), opened(name), Err(Some(40)))?;
    }
    same("open of a chain within the limit", opened(&LINKS_MAX.to_string()), Ok(()))?;
    // Made where it leads, not in the place of the link.
    let made = OpenOptions::new().write(true).create(true).truncate(false).open(at("self".into()));
    same("creation through a loop", made.map(drop).map_err(|error| error.raw_os_error()), Err(Some(40)))
}

/// generic/034: what a synced directory held is there after a crash, no more and no less, and it can be emptied.
pub fn synced_directories(world: &World) -> Result<(), Failure> {
    pool(world)?;
    let at = |name: &str| world.path(&format!("mnt/tank/{name}"));
    std::fs::create_dir(at("d"))?;
    write(&at("d/old"))?;
    world.ok("zpool sync tank")?;
    write(&at("d/new"))?;
    std::fs::hard_link(at("d/old"), at("d/linked"))?;
    std::fs::rename(at("d/old"), at("d/renamed"))?;
    File::open(at("d"))?.sync_all()?;
    File::open(at("d/new"))?.sync_all()?;
    world.ok(&format!("kill -9 {}", world.daemon()?))?;
    world.ok("zpool status tank")?.shows("state: ONLINE")?;
    world.ok("zfs mount -a")?;
    let mut names: Vec<_> = std::fs::read_dir(at("d"))?.flatten().map(|entry| entry.file_name()).collect();
    names.sort();
    same("names after the crash", names, ["linked", "new", "renamed"].map(std::ffi::OsString::from).to_vec())?;
    same("links of the one with two names", std::fs::metadata(at("d/linked"))?.nlink(), 2)?;
    for name in ["d/linked", "d/new", "d/renamed"] {
        std::fs::remove_file(at(name))?;
    }
    std::fs::remove_dir(at("d"))?;
    Ok(())
}

/// generic/213: more room than there is is not promised, and refusing it costs nothing.
pub fn room(world: &World) -> Result<(), Failure> {
    pool(world)?;
    let path = world.path("mnt/tank/file");
    let file = File::create(&path)?;
    let statistics = rustix::fs::statvfs(world.path("mnt/tank"))?;
    let free = statistics.f_bavail * statistics.f_frsize;
    let asked = |bytes: u64| rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes);
    same("twice the room", asked(2 * free), Err(rustix::io::Errno::NOSPC))?;
    same("the file's size after the refusal", file.metadata()?.len(), 0)?;
    same("a quarter of the room", asked(free / 4), Ok(()))?;
    same("the file's size after the promise", file.metadata()?.len(), free / 4)?;
    std::fs::write(world.path("mnt/tank/other"), b"x")?;
    world.ok("zpool sync tank")?;
    Ok(())
}

fn number_at_start(file: &File) -> Result<u64, std::io::Error> {
    let mut bytes = [0; 8];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(u64::from_le_bytes(bytes))
}

/// generic/451: who reads through the cache sees what a direct write has acknowledged, with others reading all the time.
pub fn direct_beside_readers(world: &World) -> Result<(), Failure> {
    pool(world)?;
    let path = world.path("mnt/tank/file");
    std::fs::write(&path, vec![0; 16 * PAGE])?;
    let (acknowledged, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let read = || -> Result<(), String> {
            let file = File::open(&path).map_err(|error| error.to_string())?;
            while !is_over.load(Ordering::Acquire) {
                let least = acknowledged.load(Ordering::Acquire);
                let seen = number_at_start(&file).map_err(|error| error.to_string())?;
                if seen < least {
                    return Err(format!("      a reader saw write {seen} after write {least} was acknowledged"));
                }
            }
            Ok(())
        };
        let readers: Vec<_> = (0..3).map(|_| scope.spawn(read)).collect();
        let write = || -> std::io::Result<()> {
            let file = OpenOptions::new().write(true).custom_flags(OFlags::DIRECT.bits() as i32).open(&path)?;
            for number in 1..=WRITES {
                let mut page = vec![0; PAGE];
                page[..8].copy_from_slice(&number.to_le_bytes());
                file.write_all_at(&page, 0)?;
                acknowledged.store(number, Ordering::Release);
            }
            Ok(())
        };
        let written = write();
        is_over.store(true, Ordering::Release);
        let outcomes: Vec<_> = readers.into_iter().map(|reader| reader.join()).collect();
        written?;
        for outcome in outcomes {
            outcome.map_err(|_| "      a reader failed")??;
        }
        Ok(())
    })
}
