//! Writing to a pool that somebody else made: files made, changed and removed over several txgs.

use crate::{Failure, driver, manifest, shadow};
use pool::Pool;
use std::sync::Arc;
use zpl::{DataAt, NewNode, Node, SetMode, WriteData, Zfs, ZplError};

/// Mode of a regular file.
pub const FILE: u64 = 0o100_644;
/// Mode of a directory.
pub const DIRECTORY: u64 = 0o040_755;

/// Name of the first file system of the pool below the root dataset, or of the root.
fn target(pool: &Pool) -> Result<String, Failure> {
    let mut root = None;
    for name in driver::datasets(pool)?.into_iter().filter(|name| !name.contains('@')) {
        if manifest::has_file_system(&pool.dsl().hold(&name)?.objset()?) {
            if name.contains('/') {
                return Ok(name);
            }
            root = Some(name);
        }
    }
    root.ok_or_else(|| "the pool has no file system".into())
}

/// Writes bytes at a place of a file.
pub fn write(zfs: &Zfs, node: &Node, offset: u64, bytes: &[u8]) -> Result<(), Failure> {
    let data = abd::Abd::from_slice(bytes);
    let may_keep = bytes.len().is_multiple_of(2);
    zfs.write(node, WriteData { offset, data, may_keep, kill_suid: false, synchronous: false })?;
    Ok(())
}

/// Makes a file of these bytes.
pub fn new_file(zfs: &Arc<Zfs>, directory: &Node, name: &[u8], bytes: &[u8]) -> Result<Node, Failure> {
    let node = zfs.create_node(directory, name, &NewNode { mode: FILE, uid: 7, gid: 8, ..NewNode::default() })?;
    for (index, part) in bytes.chunks(1 << 20).enumerate() {
        write(zfs, &node, (index as u64) << 20, part)?;
    }
    Ok(node)
}

/// Makes a new file that shares blocks with another one, as far as that is possible; the rest of the bytes is written.
pub fn share(zfs: &Arc<Zfs>, root: &Node, (node, copy): (&Node, &str), bytes: &[u8]) -> Result<(), Failure> {
    let made = new_file(zfs, root, copy.as_bytes(), &[])?;
    let shared = match zfs.clone_range(DataAt { node, offset: 0 }, DataAt { node: &made, offset: 0 }, u64::MAX >> 2) {
        Err(ZplError::NotSupported) => 0,
        shared => shared? as usize,
    };
    write(zfs, &made, shared as u64, &bytes[shared..])
}

/// Changes the pool over several txgs, as users would.
pub fn touch(pool: &Pool) -> Result<(), Failure> {
    touch_in(pool, &target(pool)?)
}

/// Changes one file system over several txgs, as users would.
pub fn touch_in(pool: &Pool, name: &str) -> Result<(), Failure> {
    let zfs = driver::open(pool, name)?;
    let root = zfs.node(zfs.root())?;
    let content = shadow::content(900_000, 11, shadow::Kind::Random);
    drop(new_file(&zfs, &root, b"by-us", &content)?);
    let directory = zfs.create_node(&root, b"our-directory", &NewNode { mode: DIRECTORY, ..NewNode::default() })?;
    for index in 0..300u64 {
        let name = format!("entry-{index:04}-with-a-name-that-is-too-long-for-a-micro-table-{index}");
        drop(new_file(&zfs, &directory, name.as_bytes(), &content[..(index * 17) as usize])?);
    }
    zfs.create_node(&directory, b"link", &NewNode { mode: 0o120_777, target: b"../by-us", ..NewNode::default() })?;
    pool.sync()?;
    for index in (0..300u64).step_by(3) {
        let name = format!("entry-{index:04}-with-a-name-that-is-too-long-for-a-micro-table-{index}");
        zfs.unlink(&directory, name.as_bytes())?;
    }
    change_known(&zfs, &root, &content)?;
    share(&zfs, &root, (&zfs.lookup(&root, b"by-us")?, "copy-of-ours"), &content)?;
    pool.sync()?;
    let ours = zfs.lookup(&root, b"by-us")?;
    write(&zfs, &ours, 100_001, &content[..300_000])?;
    zfs.truncate(&ours, 800_000)?;
    zfs.link(&ours, &directory, b"hard")?;
    for round in 0..4u64 {
        write(&zfs, &ours, 800_000 + round * 5000, &content[..5000])?;
        pool.sync()?;
    }
    drop((ours, directory, root));
    zfs.sync()?;
    Ok(())
}

/// Changes files that the fixtures have, where they are.
fn change_known(zfs: &Arc<Zfs>, root: &Node, content: &[u8]) -> Result<(), Failure> {
    for name in [b"half-700001".as_slice(), b"bulk-0000", b"xattr-dir", b"xattr-spill"] {
        if zfs.lookup(root, name).is_ok() {
            zfs.unlink(root, name)?;
        }
    }
    for (name, offset) in [(b"random-1m".as_slice(), 300_000), (b"text-300k", 299_999), (b"tiny", 10), (b"embedded", 5), (b"sparse", 777)] {
        if let Ok(node) = zfs.lookup(root, name) {
            write(zfs, &node, offset, &content[..200_000])?;
        }
    }
    if let Ok(node) = zfs.lookup(root, b"xattr-small") {
        zfs.set_xattr(&node, b"user.ours", &content[..2500], SetMode::Any)?;
        zfs.remove_xattr(&node, b"user.small")?;
    }
    Ok(())
}
