//! From typed replies to the kernel's records.
//!
//! Invariant: a [`Listing`] never grows beyond the size the kernel asked for, and entries are padded to 8 bytes.

use crate::abi;
use crate::handler::{DirEntry, DirSink, Entry, FileAttr, Opened, Statfs, Timestamp};
use std::time::Duration;
use zerocopy::IntoBytes;

const FOPEN_DIRECT_IO: u32 = 1 << 0;
const FOPEN_KEEP_CACHE: u32 = 1 << 1;
const FOPEN_CACHE_DIR: u32 = 1 << 3;
const FOPEN_PARALLEL_DIRECT_WRITES: u32 = 1 << 6;
const STATX_BASIC_STATS_AND_BTIME: u32 = 0xfff;

fn attr(from: &FileAttr) -> abi::Attr {
    abi::Attr {
        ino: from.ino,
        size: from.size,
        blocks: from.blocks,
        atime: from.atime.seconds as u64,
        mtime: from.mtime.seconds as u64,
        ctime: from.ctime.seconds as u64,
        atimensec: from.atime.nanoseconds,
        mtimensec: from.mtime.nanoseconds,
        ctimensec: from.ctime.nanoseconds,
        mode: from.mode,
        nlink: from.nlink,
        uid: from.uid,
        gid: from.gid,
        rdev: from.rdev,
        blksize: from.blksize,
        flags: 0,
    }
}

pub(crate) fn attr_out(from: &FileAttr, ttl: Duration) -> abi::AttrOut {
    abi::AttrOut { attr_valid: ttl.as_secs(), attr_valid_nsec: ttl.subsec_nanos(), dummy: 0, attr: attr(from) }
}

pub(crate) fn entry_out(entry: &Entry) -> abi::EntryOut {
    abi::EntryOut {
        nodeid: entry.node.0,
        generation: entry.generation,
        entry_valid: entry.entry_ttl.as_secs(),
        attr_valid: entry.attr_ttl.as_secs(),
        entry_valid_nsec: entry.entry_ttl.subsec_nanos(),
        attr_valid_nsec: entry.attr_ttl.subsec_nanos(),
        attr: attr(&entry.attr),
    }
}

pub(crate) fn open_out(opened: &Opened) -> abi::OpenOut {
    let mut open_flags = 0;
    if opened.direct_io {
        open_flags |= FOPEN_DIRECT_IO;
        if !opened.in_turn {
            open_flags |= FOPEN_PARALLEL_DIRECT_WRITES;
        }
    }
    if opened.keep_cache {
        open_flags |= FOPEN_KEEP_CACHE;
    }
    if opened.cache_dir {
        open_flags |= FOPEN_CACHE_DIR;
    }
    abi::OpenOut { fh: opened.handle.0, open_flags, backing_id: 0 }
}

pub(crate) fn statfs_out(from: &Statfs) -> abi::StatfsOut {
    abi::StatfsOut {
        blocks: from.blocks,
        bfree: from.bfree,
        bavail: from.bavail,
        files: from.files,
        ffree: from.ffree,
        bsize: from.bsize,
        namelen: from.namelen,
        frsize: from.frsize,
        padding: 0,
        spare: [0; 6],
    }
}

pub(crate) fn statx_out(from: &FileAttr, ttl: Duration) -> abi::StatxOut {
    let time = |at: Timestamp| abi::SxTime { tv_sec: at.seconds, tv_nsec: at.nanoseconds, reserved: 0 };
    let stat = abi::Statx {
        mask: STATX_BASIC_STATS_AND_BTIME,
        blksize: from.blksize,
        nlink: from.nlink,
        uid: from.uid,
        gid: from.gid,
        mode: from.mode as u16,
        ino: from.ino,
        size: from.size,
        blocks: from.blocks,
        atime: time(from.atime),
        btime: time(from.btime),
        ctime: time(from.ctime),
        mtime: time(from.mtime),
        rdev_major: (from.rdev >> 8) & 0xfff,
        rdev_minor: (from.rdev & 0xff) | ((from.rdev >> 12) & 0xfff00),
        ..abi::Statx::default()
    };
    abi::StatxOut { attr_valid: ttl.as_secs(), attr_valid_nsec: ttl.subsec_nanos(), flags: 0, spare: [0; 2], stat }
}

/// Reply to READDIR or READDIRPLUS under construction.
#[derive(Debug)]
pub(crate) struct Listing<'a> {
    out: &'a mut Vec<u8>,
    limit: usize,
    plus: bool,
}

impl<'a> Listing<'a> {
    pub(crate) fn new(out: &'a mut Vec<u8>, size: usize, plus: bool) -> Self {
        let limit = out.len() + size;
        Listing { out, limit, plus }
    }

    fn push_dirent(&mut self, entry: &DirEntry<'_>) {
        let record = abi::Dirent { ino: entry.ino, off: entry.next, namelen: entry.name.len() as u32, kind: entry.kind };
        self.out.extend_from_slice(record.as_bytes());
        self.out.extend_from_slice(entry.name);
        let padding = entry.name.len().next_multiple_of(8) - entry.name.len();
        self.out.extend_from_slice(&[0; 8][..padding]);
    }
}

impl DirSink for Listing<'_> {
    fn fits(&self, name: &[u8]) -> bool {
        let head = if self.plus { size_of::<abi::EntryOut>() } else { 0 };
        self.out.len() + head + size_of::<abi::Dirent>() + name.len().next_multiple_of(8) <= self.limit
    }

    fn add(&mut self, entry: DirEntry<'_>) -> bool {
        if !self.fits(entry.name) {
            return false;
        }
        if self.plus {
            self.out.extend_from_slice(abi::EntryOut::default().as_bytes());
        }
        self.push_dirent(&entry);
        true
    }

    fn add_plus(&mut self, entry: DirEntry<'_>, found: &Entry) -> bool {
        if !self.fits(entry.name) {
            return false;
        }
        if self.plus {
            self.out.extend_from_slice(entry_out(found).as_bytes());
        }
        self.push_dirent(&entry);
        true
    }
}
