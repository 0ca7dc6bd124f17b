//! Notes on a mount for the next daemon: where it is, how it was asked for, and what is known of the kernel's side of it.

use crate::failure::because;
use crate::mount::heirs::Heirs;
use crate::mount::mounts::{Left, Mounted};
use crate::mount::whereabouts::Asked;
use control_api::{ErrorKind, Failure};
use fuse::{MountFacts, Negotiated};
use rustix::fd::OwnedFd;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::sync::Arc;
use zpl::{EnteredSnapshot, Remembered};

/// Mount as it is noted.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Note {
    pub number: u32,
    pub name: String,
    pub mountpoint: PathBuf,
    device: (u32, u32),
    minor: u32,
    capabilities: u64,
    max_write: u32,
    through_helper: bool,
    pub by_hand: bool,
    pub options: Vec<String>,
    asked: Asked,
    /// Object, references, descriptors that may be mapped, and bits: pages, stores.
    nodes: Vec<(u64, u64, u32, u8)>,
    /// Name, number, open files.
    snapshots: Vec<(String, u64, u64)>,
    /// True when a daemon before died: what the kernel remembers besides is not known.
    #[serde(default)]
    is_unknown: bool,
}

const PAGES: u8 = 1;
const STORED: u8 = 2;

fn noted(node: &Remembered) -> (u64, u64, u32, u8) {
    let pages = if node.has_pages { PAGES } else { 0 };
    let stored = if node.has_stored { STORED } else { 0 };
    (node.object, node.references, node.writable, pages | stored)
}

impl Note {
    /// Notes a mount, of whose nodes the kernel remembers these; with it its connection.
    pub(crate) fn of(mounted: &Mounted, remembered: &[Remembered]) -> Result<(Note, OwnedFd), Failure> {
        let (connection, facts) =
            mounted.session.connection().map_err(|errno| because(ErrorKind::Io, format!("cannot note '{}'", mounted.name()), errno))?;
        let Negotiated { minor, capabilities, max_write } = facts.negotiated;
        let note = Note {
            number: mounted.number,
            name: mounted.name(),
            by_hand: mounted.is_by_hand(),
            mountpoint: facts.mountpoint,
            device: facts.number,
            minor,
            capabilities,
            max_write,
            through_helper: facts.through_helper,
            options: mounted.wishes(),
            asked: mounted.asked.lock().clone(),
            nodes: remembered.iter().map(noted).collect(),
            is_unknown: mounted.zfs().is_client_unknown(),
            snapshots: mounted.handler.entered().into_iter().map(|one| (one.name, one.number, one.open_files)).collect(),
        };
        Ok((note, connection))
    }

    /// Note of the same mount without what the kernel remembers.
    pub(crate) fn again(&self) -> Note {
        Note { nodes: Vec::new(), ..self.clone() }
    }

    /// Mount that was noted, with its connection, and its share in what its daemon left if that died.
    pub(crate) fn left(self, connection: OwnedFd, heir: Option<Arc<Heirs>>) -> Left {
        let Note {
            number, mountpoint, device, minor, capabilities, max_write, through_helper, asked, nodes, snapshots, is_unknown, ..
        } = self;
        let negotiated = Negotiated { minor, capabilities, max_write };
        let remembered = |(object, references, writable, bits): (u64, u64, u32, u8)| {
            let (has_pages, has_stored) = (bits & PAGES != 0, bits & STORED != 0);
            Remembered { object, references, writable, has_pages, has_stored }
        };
        let entered = |(name, number, open_files)| EnteredSnapshot { name, number, open_files };
        Left {
            connection,
            facts: MountFacts { mountpoint, number: device, negotiated, through_helper },
            number,
            asked,
            remembered: nodes.into_iter().map(remembered).collect(),
            snapshots: snapshots.into_iter().map(entered).collect(),
            is_unknown: is_unknown || heir.is_some(),
            heir,
        }
    }
}
