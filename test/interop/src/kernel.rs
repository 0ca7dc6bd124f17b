//! Pools that the OpenZFS kernel module wrote: listed by us, compared with what a script saw on a real mount of them.
//!
//! A manifest of a mount has a line for every node: path, kind (F L D S), permissions, owner, links, size, time of modification,
//! digest of the extended attributes (without those of `system.`), digest of the contents.

use crate::manifest::{self, Lines};
use crate::report::Table;
use crate::{Failure, driver};
use need::Need;
use ondisk::ObjectId;
use pool::Pool;
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use zap::Zap;
use zpl::{Node, Settings, Zfs};

const POOL: &str = "kplain";
const S_IFMT: u64 = 0o170_000;
const MINOR_BITS: u32 = 20;
/// Number of digits of the attributes' digest that the script keeps.
const DIGEST_DIGITS: usize = 16;

/// Archive of a pool in `$ZIRCONIA_KERNEL_FIXTURES` or `../shared/fixtures`; what cannot be checked without is noted as left out.
pub fn archive(pool: &str, root: &Path, what: &str, table: &Table) -> Option<PathBuf> {
    let places = [std::env::var_os("ZIRCONIA_KERNEL_FIXTURES").map(PathBuf::from), Some(root.join("../shared/fixtures"))];
    let archives = places.into_iter().flatten().map(|folder| folder.join(format!("{pool}.tar.zst")));
    let found = archives.into_iter().find(|archive| archive.is_file());
    if found.is_none() {
        table.left_out(Need::Fixtures, what, &format!("there is no {pool}.tar.zst"));
    }
    found
}

/// Unpacks an archive into a folder.
pub fn unpack(archive: &Path, folder: &Path) -> Result<(), Failure> {
    std::fs::create_dir_all(folder)?;
    let status = Command::new("tar").args(["--zstd", "-xSf"]).arg(archive).arg("-C").arg(folder).status()?;
    if status.success() { Ok(()) } else { Err("the archive could not be unpacked".into()) }
}

/// Compares the pool `kplain`, where its archive is found.
pub fn run(base: &Path, root: &Path, table: &Table) {
    let Some(archive) = archive(POOL, root, &format!("read {POOL} (kernel)"), table) else { return };
    let folder = base.join(POOL);
    let exec = driver::executor();
    let opened = table.check(&format!("read {POOL} (kernel): import read-only"), || {
        unpack(&archive, &folder)?;
        Ok(driver::import(&exec, &folder, POOL, true)?)
    });
    let Some(pool) = opened else { return };
    for (dataset, file) in manifests(&folder) {
        table.check(&format!("read {POOL} (kernel): {dataset}"), || compare(&pool, &dataset, &file));
    }
    table.check(&format!("read {POOL} (kernel): volume"), || volume(&pool, &folder));
    drop(pool);
    let _ = std::fs::remove_dir_all(&folder);
}

/// Names of datasets and paths of their manifests in a folder.
fn manifests(folder: &Path) -> Vec<(String, PathBuf)> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut found: Vec<(String, PathBuf)> = entries
        .filter_map(|path| {
            let name = path.file_name()?.to_str()?.strip_suffix(".MANIFEST")?.replace('_', "/");
            Some((name, path))
        })
        .collect();
    found.sort();
    found
}

fn compare(pool: &Pool, dataset: &str, file: &Path) -> Result<(), Failure> {
    let expected = manifest::parse(&String::from_utf8_lossy(&std::fs::read(file)?));
    manifest::compare("ours", &expected, &listed(pool, dataset)?)
}

/// Lines of everything in a dataset, as the script writes them.
pub fn listed(pool: &Pool, dataset: &str) -> Result<Lines, Failure> {
    let zfs = Zfs::open(&pool.dsl().hold(dataset)?.objset()?, None, Settings::default())?;
    let mut found = Lines::new();
    directory(&zfs, zfs.root(), ".", &mut found)?;
    Ok(found)
}

fn directory(zfs: &Arc<Zfs>, object: ObjectId, path: &str, lines: &mut Lines) -> Result<(), Failure> {
    let node = zfs.node(object)?;
    lines.insert(line(zfs, &node, path).map_err(|error| format!("{path}: {error}"))?);
    let mut entries = Vec::new();
    zfs.list(&node, 0, &mut |listed| {
        if listed.name != b"." && listed.name != b".." {
            entries.push((String::from_utf8_lossy(listed.name).replace('\n', "\\n"), listed.dirent.object));
        }
        true
    })?;
    for (name, object) in entries {
        let path = if path == "." { name } else { format!("{path}/{name}") };
        let child = zfs.node(object).map_err(|error| format!("{path}: {error}"))?;
        if child.fields().is_directory() {
            directory(zfs, object, &path, lines)?;
        } else {
            lines.insert(line(zfs, &child, &path).map_err(|error| format!("{path}: {error}"))?);
        }
    }
    Ok(())
}

fn line(zfs: &Arc<Zfs>, node: &Node, path: &str) -> Result<String, Failure> {
    let fields = node.fields();
    let (mode, owner) = (fields.mode & 0o7777, format!("{}:{}", fields.uid, fields.gid));
    if fields.is_symlink() {
        return Ok(format!("{path}\tL\t{owner}\t{}", String::from_utf8_lossy(&zfs.read_link(node)?)));
    }
    if fields.is_directory() {
        return Ok(format!("{path}\tD\t{mode:o}\t{owner}\t{}\t{}", fields.links, attributes(zfs, node)?));
    }
    if !fields.is_regular() {
        let (major, minor) = (fields.rdev >> MINOR_BITS, fields.rdev & ((1 << MINOR_BITS) - 1));
        return Ok(format!("{path}\tS\t{mode:o}\t{owner}\t{:o}\t{major}:{minor}", fields.mode & S_IFMT));
    }
    let (seconds, nanoseconds) = fields.times[1];
    let time = i128::from(seconds) * 1_000_000_000 + i128::from(nanoseconds);
    let sha = manifest::digest_object(&*zfs.objset().hold(node.object())?, fields.size)?;
    let attributes = attributes(zfs, node)?;
    Ok(format!("{path}\tF\t{mode:o}\t{owner}\t{}\t{}\t{time}\t{attributes}\t{sha}", fields.links, fields.size))
}

fn attributes(zfs: &Arc<Zfs>, node: &Node) -> Result<String, Failure> {
    let mut names = zfs.list_xattrs(node)?;
    names.retain(|name| !name.starts_with(b"system."));
    names.sort();
    let mut sha = Sha256::new();
    for name in names {
        sha.update(&name);
        sha.update(b"=");
        sha.update(zfs.get_xattr(node, &name)?);
        sha.update(b"\0");
    }
    let mut text = manifest::hex(&sha.finalize());
    text.truncate(DIGEST_DIGITS);
    Ok(text)
}

fn volume(pool: &Pool, folder: &Path) -> Result<(), Failure> {
    let text = std::fs::read_to_string(folder.join(format!("{POOL}-vol.sha256")))?;
    let expected = text.split_whitespace().next().ok_or("an empty digest file")?;
    let objset = pool.dsl().hold(&format!("{POOL}/vol"))?.objset()?;
    let size = Zap::hold(&objset, ObjectId(2))?.lookup_u64("size")?;
    let sha = manifest::digest_object(&*objset.hold(ObjectId(1))?, size)?;
    if sha == expected { Ok(()) } else { Err(format!("its digest is {sha}").into()) }
}
