//! Grants: space that clients may count on for what they keep in their caches (Lustre: `tgt_grant.c`).
//!
//! A client reserves bytes, and spends them with the transactions that write its data. What is spent counts until the txg is on disk: from then on
//! the space of the dataset shows it.

use exec::Mutex;
use std::collections::BTreeMap;

/// Bytes that nobody is granted: for objects, attributes and what grants do not foresee.
const KEPT_BYTES: u64 = 16 << 20;

#[derive(Debug, Default)]
struct State {
    /// Bytes by client.
    clients: BTreeMap<u64, u64>,
    /// Bytes that were spent in txgs that are not on disk.
    unsettled: u64,
}

impl State {
    fn taken(&self) -> u64 {
        self.clients.values().fold(self.unsettled, |sum, bytes| sum.saturating_add(*bytes))
    }
}

/// Grants of a device.
#[derive(Debug, Default)]
pub(crate) struct Grants(Mutex<State>);

impl Grants {
    /// Reserves up to `bytes` more for a client, of `available`; returns how many.
    pub(crate) fn reserve(&self, client: u64, bytes: u64, available: u64) -> u64 {
        let mut state = self.0.lock();
        let got = bytes.min(available.saturating_sub(KEPT_BYTES).saturating_sub(state.taken()));
        if got > 0 {
            *state.clients.entry(client).or_default() += got;
        }
        got
    }

    /// Gives up to `bytes` of a client back; returns how many it still has.
    pub(crate) fn release(&self, client: u64, bytes: u64) -> u64 {
        let mut state = self.0.lock();
        let Some(has) = state.clients.get_mut(&client) else { return 0 };
        *has = has.saturating_sub(bytes);
        let left = *has;
        if left == 0 {
            state.clients.remove(&client);
        }
        left
    }

    /// Bytes that are reserved, or spent and not on disk.
    pub(crate) fn taken(&self) -> u64 {
        self.0.lock().taken()
    }

    /// Spends what a client has for a transaction of `bytes`; returns how many of them it had. None when the rest finds no room, beside what
    /// others count on: nothing is spent then.
    pub(crate) fn spend(&self, client: Option<u64>, bytes: u64, available: u64) -> Option<u64> {
        let mut state = self.0.lock();
        let had = client.and_then(|client| state.clients.get(&client).copied()).unwrap_or(0).min(bytes);
        let others = state.taken() - had;
        // The dataset itself lets whoever comes before it is full write any number of bytes.
        if bytes > had && bytes - had > available.saturating_sub(others) {
            return None;
        }
        state.unsettled += had;
        if let Some(has) = client.and_then(|client| state.clients.get_mut(&client)) {
            *has -= had;
        }
        state.clients.retain(|_, bytes| *bytes > 0);
        Some(had)
    }

    /// Settles what was spent: its txg is on disk, or never will be.
    pub(crate) fn settle(&self, bytes: u64) {
        self.0.lock().unsettled -= bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::{Grants, KEPT_BYTES};

    /// If this fails, a client loses what it keeps in its cache because others filled the device, or a device is full for the grants of nobody.
    #[test]
    fn what_is_granted_is_there_when_it_is_spent() {
        let grants = Grants::default();
        let available = KEPT_BYTES + 1000;
        assert_eq!((grants.reserve(1, 700, available), grants.reserve(2, 700, available)), (700, 300));
        assert_eq!(grants.spend(None, KEPT_BYTES + 1, available), None, "it would take what others count on");
        assert_eq!(grants.spend(None, 10, available), Some(0));
        assert_eq!(grants.spend(Some(1), 500, available), Some(500));
        assert_eq!(grants.taken(), 1000, "it counts until it is on disk");
        grants.settle(500);
        assert_eq!((grants.release(2, 300), grants.release(1, 50), grants.taken()), (0, 150, 150));
        assert_eq!(grants.spend(Some(1), 200, available), Some(150), "as far as it reaches");
    }
}
