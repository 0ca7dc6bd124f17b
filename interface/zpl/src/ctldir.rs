//! `.zfs/snapshot`: the snapshots of a file system as directories (OpenZFS: `zfs_ctldir.c`).
//!
//! A snapshot is opened when it is entered and stays open until [`Ctldir::close`]; each gets a number that marks its nodes.

use crate::{Settings, Zfs, ZplError};
use dmu::Objset;
use exec::Mutex;
use fuse::{DirEntry, DirSink, Reply};
use std::collections::HashMap;
use std::sync::Arc;

/// Where the snapshots of a file system are known (the dataset).
pub trait SnapshotSource: Send + Sync {
    /// Names, oldest first.
    fn list(&self) -> Result<Vec<String>, ZplError>;
    /// The object set of one.
    fn open(&self, name: &str) -> Result<Arc<Objset>, ZplError>;
}

/// A directory that exists in no object set; numbers as OpenZFS's `ZFSCTL_INO_*`, marked so that no object has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ControlNode {
    /// `.zfs`.
    Root,
    /// `.zfs/snapshot`.
    Snapshots,
}

const ROOT: u64 = 0x0000_FFFF_FFFF_FFFF;
const SNAPSHOTS: u64 = 0x0000_FFFF_FFFF_FFFD;
const DT_DIR: u32 = 4;

impl ControlNode {
    pub(crate) fn of(number: u64) -> Option<ControlNode> {
        match number {
            ROOT => Some(ControlNode::Root),
            SNAPSHOTS => Some(ControlNode::Snapshots),
            _ => None,
        }
    }

    pub(crate) fn number(self) -> u64 {
        match self {
            ControlNode::Root => ROOT,
            ControlNode::Snapshots => SNAPSHOTS,
        }
    }
}

#[derive(Default)]
struct Opened {
    by_name: HashMap<String, u64>,
    by_number: HashMap<u64, Arc<Zfs>>,
    last: u64,
}

/// The snapshots that were entered.
pub(crate) struct Ctldir {
    source: Option<Arc<dyn SnapshotSource>>,
    opened: Mutex<Opened>,
}

impl Ctldir {
    pub(crate) fn new(source: Option<Arc<dyn SnapshotSource>>) -> Ctldir {
        Ctldir { source, opened: Mutex::default() }
    }

    /// True when there is a `.zfs`.
    pub(crate) fn is_present(&self) -> bool {
        self.source.is_some()
    }

    /// The snapshot with this number.
    pub(crate) fn opened(&self, number: u64) -> Option<Arc<Zfs>> {
        self.opened.lock().by_number.get(&number).cloned()
    }

    /// Opens a snapshot by name. One that was destroyed and made again is another one.
    pub(crate) fn open(&self, name: &[u8]) -> Result<(u64, Arc<Zfs>), ZplError> {
        let source = self.source.as_ref().ok_or(ZplError::NotFound)?;
        let name = std::str::from_utf8(name).map_err(|_| ZplError::NotFound)?;
        let objset = source.open(name)?;
        let mut opened = self.opened.lock();
        if let Some(number) = opened.by_name.get(name).copied()
            && let Some(zfs) = opened.by_number.get(&number)
            && zfs.objset().id() == objset.id()
        {
            return Ok((number, zfs.clone()));
        }
        let zfs = Zfs::open(&objset, None, Settings { atime: false, ..Settings::default() })?;
        opened.last += 1;
        let number = opened.last;
        opened.by_name.insert(name.to_string(), number);
        opened.by_number.insert(number, zfs.clone());
        Ok((number, zfs))
    }

    /// Lists `.zfs` or `.zfs/snapshot`.
    pub(crate) fn list(&self, node: ControlNode, offset: u64, sink: &mut dyn DirSink) -> Reply<()> {
        let mut names: Vec<(String, u64)> = vec![(".".into(), node.number()), ("..".into(), ROOT)];
        match node {
            ControlNode::Root => names.push(("snapshot".into(), SNAPSHOTS)),
            ControlNode::Snapshots => {
                let list = self.source.as_ref().map_or(Ok(Vec::new()), |source| source.list())?;
                // The numbers of their roots are known when they are entered; any number but 0 is good for a listing.
                names.extend(list.into_iter().zip(1..).map(|(name, index)| (name, SNAPSHOTS - index)));
            }
        }
        for (index, (name, ino)) in names.iter().enumerate().skip(offset as usize) {
            let entry = DirEntry { ino: *ino, next: index as u64 + 1, kind: DT_DIR, name: name.as_bytes() };
            if !sink.add(entry) {
                break;
            }
        }
        Ok(())
    }
}
