//! What the arena of the pool is told of changes: records as logs have them, with the time that the change left behind, and the bytes of writes.

use crate::znode::Time;
use abd::Abd;
use dmu::Tx;
use ondisk::ObjectId;
use std::sync::Arc;
use zil::{Arena, Done, EntryKind, Noted};

/// Whoever tells the arena of the changes of one object set.
#[derive(Clone, Copy)]
pub(super) struct Teller<'a> {
    pub arena: &'a Arc<Arena>,
    pub objset: u64,
}

impl Teller<'_> {
    /// Tells of a change that a record tells of; `object` is what was made or linked, if anything was.
    pub(super) fn tell(&self, kind: EntryKind, record: &[u8], (time, object): (Time, u64), tx: &Tx) {
        let done = Done { object, bytes: 0 };
        self.arena.note(&Noted { kind, objset: self.objset, time, done, payload: &[record] }, tx);
    }

    /// Tells of a write: its record, and behind it the bytes.
    pub(super) fn tell_write(&self, record: &[u8], data: &Abd, time: Time, tx: &Tx) {
        let data = data.to_stable();
        let payload: Vec<&[u8]> = std::iter::once(record).chain(data.chunks()).collect();
        let done = Done { object: 0, bytes: data.len() as u64 };
        self.arena.note(&Noted { kind: EntryKind::Record, objset: self.objset, time, done, payload: &payload }, tx);
    }

    /// Tells that an object without names was deleted.
    pub(super) fn tell_gone(&self, object: ObjectId, tx: &Tx) {
        let done = Done { object: object.0, bytes: 0 };
        self.arena.note(&Noted { kind: EntryKind::Gone, objset: self.objset, time: (0, 0), done, payload: &[] }, tx);
    }

    /// Tells of a change that nothing else tells of.
    pub(super) fn leave_out(&self, done: Done, tx: &Tx) {
        self.arena.note_gap(self.objset, done, tx);
    }
}
