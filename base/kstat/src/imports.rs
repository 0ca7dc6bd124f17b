//! Imports of pools that are under way, and how far they are (OpenZFS: kstat `import_progress`, `spa_import_progress_add` and its neighbours).
//!
//! One list for the process, as in OpenZFS: whoever does a step of an import knows the pool's guid, and nothing of who asked for it. A pool that
//! nobody imports (a program that only reads it, say) is not in the list, and what is said of it is not kept.

use parking_lot::Mutex;
use std::fmt::Write;
use std::time::Duration;

/// State of an import, with OpenZFS's numbers (`spa_load_state_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadState {
    /// The newest state is opened.
    Import = 2,
    /// An older state may be opened.
    Recover = 4,
}

struct Entry {
    /// Number of the import in this process: two may be of the same guid.
    number: u64,
    guid: u64,
    name: String,
    state: LoadState,
    multihost_secs: u64,
    max_txg: u64,
    note: Option<String>,
}

struct List {
    last: u64,
    entries: Vec<Entry>,
}

static LIST: Mutex<List> = Mutex::new(List { last: 0, entries: Vec::new() });

/// An import under way; it is in the list until this is dropped.
#[derive(Debug)]
pub struct Import {
    number: u64,
}

impl Import {
    /// Begins an import of the pool with this guid and name (OpenZFS: `spa_import_progress_add`).
    pub fn begin(guid: u64, name: &str, state: LoadState) -> Import {
        let mut list = LIST.lock();
        list.last += 1;
        let number = list.last;
        list.entries.push(Entry { number, guid, name: name.to_string(), state, multihost_secs: 0, max_txg: 0, note: None });
        Import { number }
    }

    /// Sets the newest txg that may be opened (OpenZFS: `spa_import_progress_set_max_txg`).
    pub fn set_max_txg(&self, txg: u64) {
        let mut list = LIST.lock();
        if let Some(entry) = list.entries.iter_mut().find(|entry| entry.number == self.number) {
            entry.max_txg = txg;
        }
    }
}

impl Drop for Import {
    fn drop(&mut self) {
        LIST.lock().entries.retain(|entry| entry.number != self.number);
    }
}

/// Notes what the newest import of a pool does now, and gives the pool's name; None when there is none (OpenZFS: `spa_import_progress_set_notes`).
pub fn note_import(guid: u64, note: &str) -> Option<String> {
    change(guid, |entry| entry.note = Some(note.to_string()))
}

/// Notes for how long the newest import of a pool still looks for another host (OpenZFS: `spa_import_progress_set_mmp_check`).
pub fn note_import_waits(guid: u64, left: Duration) {
    change(guid, |entry| entry.multihost_secs = left.as_secs());
}

fn change(guid: u64, edit: impl FnOnce(&mut Entry)) -> Option<String> {
    let mut list = LIST.lock();
    let entry = list.entries.iter_mut().rev().find(|entry| entry.guid == guid)?;
    edit(entry);
    Some(entry.name.clone())
}

/// Text of the statistic: a header, and a line for each import, oldest first (OpenZFS: `spa_import_progress_show`).
pub fn imports_text() -> String {
    let mut text =
        format!("{:<20} {:<14} {:<14} {:<12} {:<16} {}\n", "pool_guid", "load_state", "multihost_secs", "max_txg", "pool_name", "notes");
    for Entry { guid, state, multihost_secs, max_txg, name, note, .. } in &LIST.lock().entries {
        let (state, note) = (*state as u8, note.as_deref().unwrap_or("-"));
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{guid:<20} {state:<14} {multihost_secs:<14} {max_txg:<12} {name:<16} {note}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, whoever waits for a long import is not told what it does, or sees it for ever.
    #[test]
    fn an_import_is_told_of_while_it_is_under_way() {
        let line = |guid: u64| imports_text().lines().find(|line| line.starts_with(&guid.to_string())).map(str::to_string);
        assert!(imports_text().starts_with("pool_guid            load_state     multihost_secs max_txg      pool_name        notes\n"));
        assert_eq!(note_import(4711, "Loading properties"), None, "nobody imports it");
        let import = Import::begin(4711, "tank", LoadState::Import);
        assert_eq!(line(4711).as_deref(), Some("4711                 2              0              0            tank             -"));
        assert_eq!(note_import(4711, "Loading properties").as_deref(), Some("tank"));
        note_import_waits(4711, Duration::from_secs(20));
        import.set_max_txg(99);
        let again = Import::begin(4711, "tank", LoadState::Recover);
        assert_eq!(
            line(4711).as_deref(),
            Some("4711                 2              20             99           tank             Loading properties"),
            "the older one comes first"
        );
        drop(import);
        assert_eq!(line(4711).as_deref(), Some("4711                 4              0              0            tank             -"));
        drop(again);
        assert_eq!(line(4711), None);
    }
}
