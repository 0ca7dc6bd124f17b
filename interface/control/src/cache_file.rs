//! What the daemon remembers across restarts: the pools that are to be open, in `pools.json` of the state directory.

use crate::Control;
use serde::{Deserialize, Serialize};
use service::trust;
use vdev::{Leaf, LeafKind};

/// One pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Remembered {
    pub name: String,
    pub guid: u64,
    pub altroot: Option<String>,
    pub read_only: bool,
    pub paths: Vec<String>,
}

impl Control {
    /// Writes down which pools are to be open: those that are, and those that could not be opened. A file that cannot be written costs
    /// only the reopening, so it is reported, not failed.
    pub(crate) fn remember(&self) {
        // One after the other, and each with what is so when it writes.
        let mut written = self.written.lock();
        if self.is_stopping() {
            return;
        }
        let mut pools: Vec<Remembered> = self.pools.read().values().map(|open| remembered(open)).collect();
        pools.extend(self.absent_entries());
        // A daemon that ends lets go of its pools, which it is to have again.
        if self.is_stopping() || written.as_ref() == Some(&pools) {
            return;
        }
        let path = self.state.cache_file();
        match trust::replace(&path, &serde_json::to_vec_pretty(&pools).unwrap_or_default()) {
            Ok(()) => *written = Some(pools),
            Err(error) => eprintln!("cannot write {}: {error}", path.display()),
        }
    }

    pub(crate) fn remembered(&self) -> Vec<Remembered> {
        let path = self.state.cache_file();
        let text = match trust::read(&path) {
            Ok(Some(text)) => text,
            Ok(None) => return Vec::new(),
            Err(why) => {
                eprintln!("{}; import the pools by name", crate::failure::believable(&why));
                return Vec::new();
            }
        };
        serde_json::from_slice(&text).unwrap_or_else(|error| {
            let kept = path.with_extension("json.damaged");
            eprintln!("{}: {error}; it is kept as {}: import the pools by name", path.display(), kept.display());
            let _ = std::fs::rename(&path, &kept);
            Vec::new()
        })
    }
}

/// A pool with all of its devices, also those that are missing now.
fn remembered(open: &crate::OpenPool) -> Remembered {
    let (devices, tree) = (open.pool().devices(), open.pool().tree());
    let mut paths: Vec<String> = devices.iter().flatten().map(|device| device.path().to_string_lossy().into_owned()).collect();
    let is_elsewhere = |leaf: &&Leaf| leaf.kind != LeafKind::DraidSpare && leaf.path.starts_with('/');
    for leaf in tree.leaves.iter().filter(is_elsewhere) {
        if !paths.contains(&leaf.path) {
            paths.push(leaf.path.clone());
        }
    }
    Remembered {
        name: open.name(),
        guid: open.pool().guid().0,
        altroot: open.altroot().map(String::from),
        read_only: open.is_read_only(),
        paths,
    }
}
