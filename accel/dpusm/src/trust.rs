//! How far a provider is trusted: how many results of each operation stood their proof, and whether one was a lie.
//!
//! Trust belongs to what somebody loaded, not to a generation: a target that is connected anew keeps it, and a lie of any generation ends it for
//! all of them. Only somebody who loads the provider again begins a new one.

use crate::OpKind;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Trust {
    proven: [AtomicU64; OpKind::ALL.len()],
    lie: OnceLock<OpKind>,
}

impl Trust {
    /// Makes the trust in a provider that was caught lying before.
    pub(crate) fn lost(kind: OpKind) -> Trust {
        Trust { lie: OnceLock::from(kind), ..Trust::default() }
    }

    /// One more result was right.
    pub(crate) fn note_right(&self, kind: OpKind) {
        self.proven[kind as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that a result was wrong; true for the first one.
    pub(crate) fn note_lie(&self, kind: OpKind) -> bool {
        self.lie.set(kind).is_ok()
    }

    /// The operation that it lied at.
    pub(crate) fn lie(&self) -> Option<OpKind> {
        self.lie.get().copied()
    }

    /// Results of an operation that were proven right.
    pub(crate) fn proven(&self, kind: OpKind) -> u64 {
        self.proven[kind as usize].load(Ordering::Relaxed)
    }
}
