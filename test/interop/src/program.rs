//! The programs that fill and change our pools: every kind of node, then random changes over many txgs, snapshots, clones of
//! habits that users have. Everything follows from a seed, and a shadow remembers what files must hold.

use crate::churn::Churn;
use crate::shadow::{Expected, Kind, Shadow, content};
use crate::touch::{DIRECTORY, new_file, write};
use crate::{Failure, driver, manifest};
use abd::Abd;
use exec::SplitMix;
use pool::Pool;
use sha2::{Digest, Sha256};
use std::sync::Arc;
use zpl::direct::Direct;
use zpl::{Allocate, NewNode, Node, SetAttrs, SetMode, Zfs};
use zvol::{Access, Volume};

const SNAPSHOTS_KEPT: usize = 4;
const HUGE_BYTES: u64 = 1 << 30;
/// Names that make the table of a directory larger than 128 KiB, which hold 2,047.
const LARGE_TABLE_NAMES: u64 = 2050;
/// Largest tables of one block that the feature allows.
const TABLE_BYTES_MAX: u64 = 1 << 20;

/// Size of what a program does.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Number of txgs of random changes.
    pub rounds: u64,
    /// Number of entries of the large directory.
    pub entries: u64,
    /// True for every checksum, compression and record size.
    pub every_property: bool,
    /// True for a file of 1 GiB.
    pub huge: bool,
}

/// Pool being filled.
pub struct Program<'a> {
    pool: &'a Pool,
    size: Size,
    random: SplitMix,
    /// Contents that it must hold.
    pub expected: Expected,
    churn: Churn,
    snapshots: Vec<String>,
    round: u64,
}

fn checksums(every: bool) -> &'static [&'static str] {
    if every {
        &["off", "on", "fletcher2", "fletcher4", "sha256", "sha512", "skein", "edonr", "blake3"]
    } else {
        &["off", "fletcher2", "sha256", "skein", "edonr", "blake3"]
    }
}

fn compressions(every: bool) -> &'static [&'static str] {
    if every {
        &[
            "off",
            "on",
            "lzjb",
            "zle",
            "gzip-1",
            "gzip-6",
            "gzip-9",
            "lz4",
            "zstd",
            "zstd-1",
            "zstd-3",
            "zstd-9",
            "zstd-19",
            "zstd-fast",
            "zstd-fast-10",
            "zstd-fast-1000",
        ]
    } else {
        &["off", "lzjb", "zle", "gzip-6", "lz4", "zstd-3", "zstd-fast-10"]
    }
}

fn record_sizes(every: bool) -> &'static [(&'static str, usize)] {
    if every {
        &[("512", 512), ("4K", 4 << 10), ("128K", 128 << 10), ("1M", 1 << 20), ("16M", 16 << 20)]
    } else {
        &[("512", 512), ("4K", 4 << 10), ("1M", 1 << 20), ("16M", 16 << 20)]
    }
}

impl<'a> Program<'a> {
    /// Makes a program that has done nothing yet.
    pub fn new(pool: &'a Pool, size: Size, seed: u64) -> Program<'a> {
        zap::set_micro_bytes_max(TABLE_BYTES_MAX);
        Program {
            pool,
            size,
            random: SplitMix::new(seed),
            expected: Expected::default(),
            churn: Churn::new(seed ^ 1, ""),
            snapshots: Vec::new(),
            round: 0,
        }
    }

    fn name(&self, dataset: &str) -> String {
        format!("{}/{dataset}", self.pool.name())
    }

    fn make(&self, dataset: &str, properties: &[(&str, &str)]) -> Result<Arc<Zfs>, Failure> {
        let name = self.name(dataset);
        self.pool.dsl().create_dataset(&name, driver::filesystem(properties)).map_err(|error| format!("create {name}: {error}"))?;
        driver::open(self.pool, &name)
    }

    /// Fills the pool.
    pub fn fill(&mut self) -> Result<(), Failure> {
        let every = self.size.every_property;
        for checksum in checksums(every) {
            self.tree(&format!("ck-{checksum}"), &[("checksum", checksum), ("compression", "off")], 128 << 10)?;
        }
        for compression in compressions(every) {
            self.tree(&format!("c-{compression}"), &[("compression", compression)], 128 << 10)?;
        }
        for (word, bytes) in record_sizes(every) {
            self.tree(&format!("rs-{word}"), &[("recordsize", word)], *bytes)?;
        }
        self.tree("copies", &[("copies", "2"), ("dnodesize", "2k"), ("xattr", "sa")], 128 << 10)?;
        self.large_directory()?;
        self.large_table()?;
        self.volumes()?;
        if self.size.huge {
            self.huge()?;
        }
        self.branches()?;
        self.datasets_that_go("lz4")
    }

    /// Fills a pool without feature flags: with what every version can do.
    pub fn fill_plain(&mut self) -> Result<(), Failure> {
        for (checksum, compression) in [("fletcher4", "lzjb"), ("sha256", "gzip-6"), ("fletcher2", "zle"), ("off", "off")] {
            let dataset = format!("{checksum}-{compression}");
            self.tree(&dataset, &[("checksum", checksum), ("compression", compression)], 128 << 10)?;
        }
        self.tree("copies", &[("copies", "3"), ("recordsize", "8K")], 8 << 10)?;
        self.large_directory()?;
        self.volumes()?;
        self.branches()?;
        self.datasets_that_go("gzip-1")
    }

    /// Makes a dataset with one of everything.
    fn tree(&mut self, dataset: &str, properties: &[(&str, &str)], record: usize) -> Result<(), Failure> {
        let zfs = self.make(dataset, properties)?;
        let mut shadow = Shadow::default();
        let root = zfs.node(zfs.root())?;
        let seed = self.random.next_u64();
        let large = if record > 1 << 20 { record + 12_345 } else { 700_001 };
        let files: [(&str, usize, Kind); 9] = [
            ("empty", 0, Kind::Zeros),
            ("tiny", 10, Kind::Text),
            ("embedded", 400, Kind::Letter),
            ("oneblock", 3000, Kind::Random),
            ("text", 300_000, Kind::Text),
            ("random", 260_000, Kind::Random),
            ("half", large, Kind::Half),
            ("zeros", 512 << 10, Kind::Zeros),
            ("exact", 256 << 10, Kind::Letter),
        ];
        for (index, (name, size, kind)) in files.into_iter().enumerate() {
            let bytes = content(size, seed + index as u64, kind);
            drop(new_file(&zfs, &root, name.as_bytes(), &bytes)?);
            shadow.files.insert(format!("/{name}"), bytes);
        }
        sparse(&zfs, &root, &mut shadow, record)?;
        nodes(&zfs, &root, &mut shadow, seed)?;
        self.expected.add(&self.name(dataset), &shadow);
        Ok(())
    }

    fn large_directory(&mut self) -> Result<(), Failure> {
        let zfs = self.make("bigdir", &[])?;
        let root = zfs.node(zfs.root())?;
        let directory = zfs.create_node(&root, b"many", &NewNode { mode: DIRECTORY, ..NewNode::default() })?;
        for index in 0..self.size.entries {
            let name = format!("entry {index:08}");
            let size = if index % 1000 == 0 { 700 } else { 0 };
            drop(new_file(&zfs, &directory, name.as_bytes(), &content(size, index, Kind::Text))?);
        }
        // No slot of a table in one block holds it: the table becomes one of many.
        drop(new_file(&zfs, &directory, &[b'e'; 60], b"")?);
        for index in (0..self.size.entries).step_by(7) {
            zfs.unlink(&directory, format!("entry {index:08}").as_bytes())?;
        }
        Ok(())
    }

    /// Makes a directory whose table is one block of more than 128 KiB.
    fn large_table(&mut self) -> Result<(), Failure> {
        let zfs = self.make("largetable", &[])?;
        let root = zfs.node(zfs.root())?;
        let directory = zfs.create_node(&root, b"table", &NewNode { mode: DIRECTORY, ..NewNode::default() })?;
        let file = new_file(&zfs, &root, b"file", b"of many names")?;
        for index in 0..LARGE_TABLE_NAMES {
            zfs.link(&file, &directory, format!("{index}").as_bytes())?;
        }
        if !zfs.objset().has_large_micro_zaps() {
            return Err("no table became larger than 128 KiB".into());
        }
        Ok(())
    }

    /// Makes volumes with blocks of several sizes: written through the cache and past it, in part in a snapshot only, made smaller and larger again,
    /// and with holes.
    fn volumes(&mut self) -> Result<(), Failure> {
        for block in [512, 16 << 10, 128 << 10] {
            let name = self.name(&format!("vol-{block}"));
            let size = 4 << 20;
            self.pool.dsl().create_dataset(&name, driver::volume(size, block)).map_err(|error| format!("create {name}: {error}"))?;
            let volume = Volume::open(self.pool.dsl().hold(&name)?, zvol::Settings::default(), Direct::default())?;
            let put = |(offset, length): (u64, usize), seed: u64, access: Access| -> Result<(), Failure> {
                Ok(volume.write(offset, Abd::from_slice(&content(length, seed, Kind::Half)), access, seed.is_multiple_of(2))?)
            };
            put((0, 300_000), block, Access::default())?;
            put((3 << 20, 512 << 10), block + 1, Access::DIRECT)?;
            self.pool.dsl().snapshot(&[format!("{name}@s")], Vec::new())?;
            put((100_000, 300_000), block + 2, Access::default())?;
            volume.resize(size / 2)?;
            volume.resize(size * 2)?;
            put((7 << 20, 300_000), block + 3, Access::default())?;
            put((1 << 20, 640 << 10), block + 4, Access::DIRECT)?;
            volume.discard((1 << 20) + 1000, 300_000)?;
            volume.write_zeroes(7 << 20, 100_001)?;
            volume.flush()?;
        }
        Ok(())
    }

    fn huge(&mut self) -> Result<(), Failure> {
        let zfs = self.make("huge", &[("recordsize", "1M")])?;
        let root = zfs.node(zfs.root())?;
        let node = new_file(&zfs, &root, b"gib", b"")?;
        let mut sha = Sha256::new();
        for index in 0..HUGE_BYTES >> 20 {
            let kind = if index % 3 == 0 { Kind::Text } else { Kind::Random };
            let bytes = content(1 << 20, index, kind);
            sha.update(&bytes);
            write(&zfs, &node, index << 20, &bytes)?;
        }
        self.expected.add_digest(format!("{}/gib", self.name("huge")), HUGE_BYTES, manifest::hex(&sha.finalize()));
        Ok(())
    }

    /// Makes clones, one of which is promoted, and a file system that goes back to a snapshot.
    fn branches(&mut self) -> Result<(), Failure> {
        let dsl = self.pool.dsl().clone();
        let (trunk, branch, twig) = (self.name("trunk"), self.name("branch"), self.name("twig"));
        self.tree("trunk", &[], 128 << 10)?;
        for snapshot in [format!("{trunk}@a"), format!("{trunk}@b")] {
            self.another(&trunk, snapshot.rsplit('@').next().unwrap_or_default())?;
            dsl.snapshot(std::slice::from_ref(&snapshot), Vec::new())?;
            self.expected.copy(&trunk, &snapshot);
        }
        for (clone, origin) in [(&branch, "a"), (&twig, "b")] {
            let origin = format!("{trunk}@{origin}");
            dsl.clone_snapshot(clone, &origin, Vec::new())?;
            self.expected.copy(&origin, clone);
            self.another(clone, "own")?;
        }
        dsl.promote(&branch).map_err(|error| format!("promote {branch}: {error}"))?;
        self.expected.rename(&format!("{trunk}@a"), &format!("{branch}@a"));
        self.another(&trunk, "lost")?;
        dsl.rollback(&format!("{trunk}@b")).map_err(|error| format!("rollback {trunk}: {error}"))?;
        self.expected.forget_file(&format!("{trunk}/lost"));
        Ok(())
    }

    /// Adds a file to a dataset.
    fn another(&mut self, dataset: &str, name: &str) -> Result<(), Failure> {
        let zfs = driver::open(self.pool, dataset)?;
        let root = zfs.node(zfs.root())?;
        let bytes = content(200_000, self.random.next_u64(), Kind::Half);
        drop(new_file(&zfs, &root, name.as_bytes(), &bytes)?);
        self.expected.add(dataset, &Shadow { files: [(format!("/{name}"), bytes)].into() });
        Ok(())
    }

    /// Makes, fills, renames and destroys datasets.
    fn datasets_that_go(&mut self, compression: &str) -> Result<(), Failure> {
        self.tree("gone", &[("compression", compression)], 128 << 10)?;
        self.tree("before", &[], 128 << 10)?;
        let (gone, before, after) = (self.name("gone"), self.name("before"), self.name("after"));
        let snapshot = format!("{gone}@s");
        self.pool.dsl().snapshot(std::slice::from_ref(&snapshot), Vec::new())?;
        self.pool.dsl().destroy_snapshots(&[snapshot], false)?;
        self.pool.dsl().destroy_dataset(&gone).map_err(|error| format!("destroy {gone}: {error}"))?;
        self.expected.forget(&gone);
        self.pool.dsl().rename(&before, &after)?;
        self.expected.rename(&before, &after);
        Ok(())
    }

    /// Makes random changes of one file system, a txg a round, with snapshots that come and go.
    pub fn churn(&mut self, rounds: u64) -> Result<(), Failure> {
        let name = self.name("churn");
        let zfs = if self.round == 0 { self.make("churn", &[("recordsize", "16K")])? } else { driver::open(self.pool, &name)? };
        let root = zfs.node(zfs.root())?;
        for _ in 0..rounds {
            self.round += 1;
            for _ in 0..6 {
                self.churn.step(&zfs, &root).map_err(|error| format!("round {}: {error}", self.round))?;
            }
            self.pool.sync()?;
            if self.round.is_multiple_of(5) {
                self.turn_snapshots(&name)?;
            }
        }
        drop(root);
        zfs.sync()?;
        self.expected.forget(&name);
        self.expected.add(&name, &self.churn.shadow);
        Ok(())
    }

    fn turn_snapshots(&mut self, name: &str) -> Result<(), Failure> {
        let snapshot = format!("{name}@r{}", self.round);
        self.pool.dsl().snapshot(std::slice::from_ref(&snapshot), Vec::new())?;
        self.expected.add(&snapshot, &self.churn.shadow);
        self.snapshots.push(snapshot);
        if self.snapshots.len() > SNAPSHOTS_KEPT {
            let index = self.random.below(self.snapshots.len());
            let snapshot = self.snapshots.remove(index);
            self.pool.dsl().destroy_snapshots(std::slice::from_ref(&snapshot), false)?;
            self.expected.forget(&snapshot);
        }
        Ok(())
    }
}

/// Makes a file with data far apart, a hole punched, the end cut and grown again: to more than it had, and to more than one record.
fn sparse(zfs: &Arc<Zfs>, root: &Node, shadow: &mut Shadow, record: usize) -> Result<(), Failure> {
    let node = new_file(zfs, root, b"sparse", b"")?;
    let mut bytes = vec![0; 3_000_000];
    for (at, size) in [(100_000usize, 5000usize), (1_000_000, 400_000), (2_999_000, 1000)] {
        let data = content(size, at as u64, Kind::Text);
        write(zfs, &node, at as u64, &data)?;
        bytes[at..at + size].copy_from_slice(&data);
    }
    zfs.allocate(&node, 1_050_000, 200_000, Allocate::Punch)?;
    bytes[1_050_000..1_250_000].fill(0);
    zfs.truncate(&node, 1_300_001)?;
    bytes.truncate(1_300_001);
    let grown = 3_100_000 + record;
    zfs.truncate(&node, grown as u64)?;
    bytes.resize(grown, 0);
    shadow.files.insert("/sparse".to_string(), bytes);
    Ok(())
}

/// Makes directories, links, device nodes, attributes, names.
fn nodes(zfs: &Arc<Zfs>, root: &Node, shadow: &mut Shadow, seed: u64) -> Result<(), Failure> {
    let new = |mode: u64| NewNode { mode, uid: 1000, gid: 100, ..NewNode::default() };
    let directory = zfs.create_node(root, b"dir", &new(0o040_750))?;
    let deep = zfs.create_node(&directory, b"sub", &new(0o041_777))?;
    let bytes = content(5000, seed, Kind::Text);
    drop(new_file(zfs, &deep, b"deep", &bytes)?);
    shadow.files.insert("/dir/sub/deep".to_string(), bytes);
    let long = vec![b'x'; 399];
    zfs.create_node(&directory, b"short", &NewNode { target: b"../tiny", ..new(0o120_777) })?;
    zfs.create_node(&directory, b"long", &NewNode { target: &long, ..new(0o120_777) })?;
    zfs.create_node(&directory, b"fifo", &new(0o010_600))?;
    zfs.create_node(&directory, b"character", &NewNode { rdev: 1 << 20 | 3, ..new(0o020_600) })?;
    zfs.create_node(&directory, b"block", &NewNode { rdev: 8 << 20 | 1, ..new(0o060_600) })?;
    zfs.create_node(&directory, "n\u{e4}me with sp\u{e4}ce".as_bytes(), &new(0o100_644))?;
    zfs.create_node(&directory, &[b'L'; 255], &new(0o104_755))?;
    let bytes = content(2000, seed + 1, Kind::Half);
    let node = new_file(zfs, root, b"hard", &bytes)?;
    zfs.link(&node, &directory, b"hard too")?;
    shadow.files.insert("/hard".to_string(), bytes.clone());
    shadow.files.insert("/dir/hard too".to_string(), bytes);
    for (name, size) in [(b"user.small".as_slice(), 5), (b"user.spill", 3000), (b"user.directory", 40_000)] {
        let node = new_file(zfs, root, &[b"with ", name].concat(), b"data")?;
        zfs.set_xattr(&node, b"user.first", b"1", SetMode::Any)?;
        zfs.set_xattr(&node, name, &content(size, seed, Kind::Text), SetMode::Any)?;
        zfs.set_xattr(&node, b"user.last", &[7; 300], SetMode::Any)?;
        zfs.remove_xattr(&node, b"user.first")?;
    }
    let old = new_file(zfs, root, b"old", b"")?;
    zfs.set_attrs(&old, &SetAttrs { mode: Some(0o400), uid: Some(4_000_000_000), mtime: Some((-5, 7)), ..SetAttrs::default() })?;
    let gone = new_file(zfs, root, b"gone", &content(200_000, seed, Kind::Random))?;
    zfs.unlink(root, b"gone")?;
    drop(gone);
    Ok(())
}
