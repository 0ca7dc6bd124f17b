//! Budget of bytes that requests of all connections take of the daemon's memory at a time.

use exec::{Exec, Mutex, WaitQueue};
use std::cell::Cell;
use std::sync::Arc;

/// See the module.
pub(crate) struct Budget {
    exec: Exec,
    left: Mutex<u64>,
    returned: WaitQueue,
}

/// Bytes of a budget, which go back when this is dropped.
pub(crate) struct Spent {
    budget: Arc<Budget>,
    bytes: u64,
}

impl Budget {
    pub(crate) fn new(exec: &Exec, bytes: u64) -> Arc<Budget> {
        Arc::new(Budget { exec: exec.clone(), left: Mutex::new(bytes), returned: WaitQueue::new() })
    }

    fn try_take(&self, bytes: u64) -> bool {
        let mut left = self.left.lock();
        let is_enough = *left >= bytes;
        if is_enough {
            *left -= bytes;
        }
        is_enough
    }

    /// Takes bytes, no more than there are in all; waits until others gave theirs back.
    pub(crate) fn take(self: &Arc<Self>, bytes: u64) -> Spent {
        let is_taken = Cell::new(false);
        self.returned.wait_until(&self.exec, &|| {
            // They are taken once, however often somebody asks.
            is_taken.set(is_taken.get() || self.try_take(bytes));
            is_taken.get()
        });
        Spent { budget: self.clone(), bytes }
    }
}

impl Drop for Spent {
    fn drop(&mut self) {
        *self.budget.left.lock() += self.bytes;
        self.budget.returned.notify_all();
    }
}
