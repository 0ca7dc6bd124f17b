//! Clients that have an export: who they are, and how they are told that it ends.

use exec::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::Notify;

/// Client that has an export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guest {
    /// Name of the export.
    pub export: String,
    /// Address of the client, or the number of its process on this machine.
    pub client: String,
}

struct Entry {
    guest: Guest,
    end: Arc<Notify>,
}

#[derive(Default)]
struct State {
    entries: BTreeMap<u64, Entry>,
    last: u64,
}

/// Clients that have an export, of any number of listeners.
#[derive(Default)]
pub struct Guests {
    state: Mutex<State>,
}

impl std::fmt::Debug for Guests {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Guests").field("guests", &self.list()).finish()
    }
}

/// Entry of a client, which ends with this.
pub(crate) struct Seat {
    guests: Arc<Guests>,
    number: u64,
    /// Client that it is about.
    pub(crate) guest: Guest,
    /// Told when the client has to go.
    pub(crate) end: Arc<Notify>,
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.guests.state.lock().entries.remove(&self.number);
    }
}

impl Guests {
    /// Clients at this moment, in the order in which they came.
    pub fn list(&self) -> Vec<Guest> {
        self.state.lock().entries.values().map(|entry| entry.guest.clone()).collect()
    }

    /// Has the clients of an export go: what they asked for before is done first. Does not wait for that.
    pub fn end(&self, export: &str) {
        let state = self.state.lock();
        state.entries.values().filter(|entry| entry.guest.export == export).for_each(|entry| entry.end.notify_one());
    }

    pub(crate) fn enter(self: &Arc<Self>, guest: Guest) -> Seat {
        let end = Arc::<Notify>::default();
        let mut state = self.state.lock();
        state.last += 1;
        let number = state.last;
        state.entries.insert(number, Entry { guest: guest.clone(), end: end.clone() });
        drop(state);
        Seat { guests: self.clone(), number, guest, end }
    }
}
