//! What the daemon remembers across restarts: the pools that were open, in `pools.json` of the state directory.

use crate::Control;
use serde::{Deserialize, Serialize};

/// One open pool.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Remembered {
    pub name: String,
    pub guid: u64,
    pub altroot: Option<String>,
    pub read_only: bool,
    pub paths: Vec<String>,
}

impl Control {
    /// Writes down which pools are open. A file that cannot be written costs only the reopening, so it is reported, not failed.
    pub(crate) fn remember(&self) {
        let open: Vec<Remembered> = self.pools.read().values().map(|open| remembered(open)).collect();
        let path = self.state.cache_file();
        let fresh = path.with_extension("json.new");
        let text = serde_json::to_vec_pretty(&open).unwrap_or_default();
        if let Err(error) = std::fs::write(&fresh, text).and_then(|()| std::fs::rename(&fresh, &path)) {
            eprintln!("cannot write {}: {error}", path.display());
        }
    }

    pub(crate) fn remembered(&self) -> Vec<Remembered> {
        let Ok(text) = std::fs::read(self.state.cache_file()) else { return Vec::new() };
        serde_json::from_slice(&text).unwrap_or_else(|error| {
            eprintln!("{}: {error}; import the pools by name", self.state.cache_file().display());
            Vec::new()
        })
    }
}

fn remembered(open: &crate::OpenPool) -> Remembered {
    let devices = open.pool().devices();
    Remembered {
        name: open.name(),
        guid: open.pool().guid().0,
        altroot: open.altroot().map(String::from),
        read_only: open.is_read_only(),
        paths: devices.iter().flatten().map(|device| device.path().to_string_lossy().into_owned()).collect(),
    }
}
