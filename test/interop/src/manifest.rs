//! The manifest of a pool: one line for everything in it, with a digest of its contents, as the real engine's `zpfix` prints it.
//!
//! Two manifests are equal when they have the same lines; order and lines that start with `#` mean nothing.

use crate::{Failure, accounting, driver};
use dmu::{Dnode, Objset};
use dsl::DatasetHandle;
use ondisk::{ObjectId, ObjsetType};
use pool::Pool;
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::sync::Arc;
use zap::Zap;
use zpl::direct::Direct;
use zpl::{Attr, Settings, Zfs};
use zvol::{Access, Volume};

const CHUNK: u64 = 1 << 20;
/// Number of bytes at the start of objects outside file systems that count.
const OTHER_BYTES_MAX: u64 = 16 << 20;
const DEPTH_MAX: usize = 64;

/// Lines of a manifest.
pub type Lines = BTreeSet<String>;

/// Text of a digest in hexadecimal.
pub fn hex(digest: &[u8]) -> String {
    digest.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Digest of bytes.
pub fn digest(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// Digest of the first `size` bytes of an object.
pub fn digest_object(dnode: &Dnode, size: u64) -> Result<String, Failure> {
    let mut sha = Sha256::new();
    let mut buffer = vec![0; CHUNK.min(size) as usize];
    let mut at = 0;
    while at < size {
        let part = &mut buffer[..CHUNK.min(size - at) as usize];
        dnode.read(at, part)?;
        sha.update(&*part);
        at += part.len() as u64;
    }
    Ok(hex(&sha.finalize()))
}

struct Walk<'a> {
    zfs: &'a Arc<Zfs>,
    dataset: &'a str,
    lines: &'a mut Lines,
}

impl Walk<'_> {
    fn directory(&mut self, directory: ObjectId, path: &str, depth: usize) -> Result<(), Failure> {
        let mut entries = Vec::new();
        let node = self.zfs.node(directory)?;
        self.zfs.list(&node, 0, &mut |listed| {
            if listed.name != b"." && listed.name != b".." {
                entries.push((String::from_utf8_lossy(listed.name).into_owned(), listed.dirent.object));
            }
            true
        })?;
        for (name, object) in entries {
            let path = format!("{path}/{name}");
            self.node(object, &path, depth).map_err(|error| format!("{}{path}: {error}", self.dataset))?;
        }
        Ok(())
    }

    fn node(&mut self, object: ObjectId, path: &str, depth: usize) -> Result<(), Failure> {
        let node = self.zfs.node(object)?;
        let (fields, info) = (node.fields(), self.zfs.objset().hold(object)?.info()?);
        let sha = if fields.is_regular() {
            digest_object(&*self.zfs.objset().hold(object)?, fields.size)?
        } else if fields.is_symlink() {
            digest(&self.zfs.read_link(&node)?)
        } else {
            String::new()
        };
        let (seconds, nanoseconds) = fields.times[1];
        self.lines.insert(format!(
            "{}{path}\tobj={}\tmode={:o}\tsize={}\tuid={}\tlinks={}\tmtime={}.{nanoseconds}\tblksz={}\tsaxattr={}\txdir={}\tsha256={sha}",
            self.dataset,
            object.0,
            fields.mode,
            fields.size,
            fields.uid,
            fields.links,
            seconds as u64,
            info.block_size,
            self.zfs.attribute_bytes(&node, Attr::Dxattr),
            fields.xattr,
        ));
        if fields.is_directory() && depth < DEPTH_MAX {
            self.directory(object, path, depth + 1)?;
        }
        if fields.xattr != 0 {
            self.directory(ObjectId(fields.xattr), &format!("{path}#xattrdir"), depth + 1)?;
        }
        Ok(())
    }
}

fn file_system(objset: &Arc<Objset>, dataset: &str, lines: &mut Lines) -> Result<(), Failure> {
    let zfs = Zfs::open(objset, None, Settings::default())?;
    let root = zfs.root();
    Walk { zfs: &zfs, dataset, lines }.directory(root, "", 0)
}

fn volume(handle: DatasetHandle, dataset: &str, lines: &mut Lines) -> Result<(), Failure> {
    let volume = Volume::open(handle, zvol::Settings { read_only: true, ..zvol::Settings::default() }, Direct::default())?;
    let (mut sha, mut at) = (Sha256::new(), 0);
    while at < volume.size() {
        let part = volume.read(at, CHUNK, Access::default())?;
        part.chunks().for_each(|bytes| sha.update(bytes));
        at += part.len() as u64;
    }
    lines.insert(format!("{dataset}\tzvol\tsize={}\tsha256={}", volume.size(), hex(&sha.finalize())));
    Ok(())
}

fn other(objset: &Arc<Objset>, dataset: &str, lines: &mut Lines) -> Result<(), Failure> {
    let mut at = ObjectId(0);
    while let Some(object) = objset.next_object(at)? {
        let dnode = objset.hold(object)?;
        let info = dnode.info()?;
        let end = (info.max_block.0 + 1) * info.block_size as u64;
        let sha = digest_object(&dnode, end.min(OTHER_BYTES_MAX))?;
        let (kind, block) = (info.kind.0, info.block_size);
        lines.insert(format!("{dataset}\tobj={}\ttype={kind}\tblksz={block}\tmaxoff={end}\tsha256={sha}", object.0));
        at = object;
    }
    Ok(())
}

/// Adds the manifest of one dataset or snapshot.
pub fn of_dataset(pool: &Pool, name: &str, lines: &mut Lines) -> Result<(), Failure> {
    let handle = pool.dsl().hold(name)?;
    let objset = handle.objset()?;
    match objset.kind() {
        // Pools made without the kernel may have a root dataset without a file system.
        ObjsetType::ZFS if !name.contains('/') && !has_file_system(&objset) => Ok(()),
        ObjsetType::ZFS => file_system(&objset, name, lines),
        ObjsetType::ZVOL => volume(handle, name, lines),
        _ => other(&objset, name, lines),
    }
}

/// True when the object set has the objects of a file system.
pub fn has_file_system(objset: &Arc<Objset>) -> bool {
    objset.kind() == ObjsetType::ZFS && Zap::hold(objset, ObjectId(1)).is_ok_and(|master| master.contains("ROOT").unwrap_or(false))
}

/// Manifest of everything in a pool. Of one that cannot change meanwhile the space accounting is checked, too.
pub fn of_pool(pool: &Pool) -> Result<Lines, Failure> {
    let mut lines = Lines::new();
    for name in driver::datasets(pool)? {
        of_dataset(pool, &name, &mut lines).map_err(|error| format!("{name}: {error}"))?;
        if !pool.is_writeable() {
            let objset = pool.dsl().hold(&name)?.objset()?;
            accounting::check(&objset).map_err(|error| format!("{name}: {error}"))?;
        }
    }
    Ok(lines)
}

/// Lines of a manifest that was printed.
pub fn parse(text: &str) -> Lines {
    text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).map(str::to_string).collect()
}

/// Compares two manifests; the error says how they differ.
pub fn compare(whose: &str, expected: &Lines, found: &Lines) -> Result<(), Failure> {
    const SHOWN: usize = 4;
    if expected == found {
        return Ok(());
    }
    let mut text = format!("{whose}: manifests differ");
    for (sign, list) in [('-', expected.difference(found)), ('+', found.difference(expected))] {
        let all: Vec<&String> = list.collect();
        let _ = write!(text, "; {} lines {sign}", all.len());
        for line in all.iter().take(SHOWN) {
            let _ = write!(text, "\n      {sign} {}", line.replace('\t', " "));
        }
    }
    Err(text.into())
}

/// File of a manifest: its path, size and digest.
pub struct FileLine<'a> {
    /// Dataset of the file and path in it.
    pub path: &'a str,
    /// Size in bytes.
    pub size: u64,
    /// Digest in hexadecimal.
    pub sha: &'a str,
}

/// File that a line is about; None for anything but a regular one.
pub fn file_line(line: &str) -> Option<FileLine<'_>> {
    let mut parts = line.split('\t');
    let path = parts.next()?;
    let value = |name: &str| line.split('\t').find_map(|part| part.strip_prefix(name));
    if !value("mode=")?.starts_with("100") {
        return None;
    }
    Some(FileLine { path, size: value("size=")?.parse().ok()?, sha: value("sha256=")? })
}
