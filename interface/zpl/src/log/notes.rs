//! Operations as their records have them, and with whose commits they go: names with every commit, data and attributes with those of
//! their object. What lies in a hidden directory goes with every commit: nobody commits it by its own number.

use super::Journal;
use crate::znode::{Fields, State, Time, Znode, flag};
use dmu::Tx;
use ondisk::ObjectId;
use std::ops::Range;
use zil::{Create, Itx, Link, Log, Made, NewAttributes, Payload, Record, Remove, Rename, RenameKind, SetAttributes, write_header};

/// Switches that records can set, as they have them (OpenZFS: `XAT0_*`), and as stored.
const SWITCHES: [(u64, u64); 13] = [
    (0x2, flag::ARCHIVE),
    (0x4, flag::SYSTEM),
    (0x8, flag::READONLY),
    (0x10, flag::HIDDEN),
    (0x20, flag::NOUNLINK),
    (0x40, flag::IMMUTABLE),
    (0x80, flag::APPENDONLY),
    (0x100, flag::NODUMP),
    (0x800, flag::AV_MODIFIED),
    (0x2000, flag::REPARSE),
    (0x8000, flag::OFFLINE),
    (0x1_0000, flag::SPARSE),
    (0x2_0000, flag::PROJINHERIT),
];

/// Switches among these, each as records have it and as stored.
pub(crate) fn switches(recorded: u64) -> impl Iterator<Item = (u64, u64)> {
    SWITCHES.into_iter().filter(move |(bit, _)| recorded & bit != 0)
}

/// Flags as stored in the bits of records.
fn recorded(flags: u64) -> u64 {
    SWITCHES.iter().filter(|(_, stored)| flags & stored != 0).fold(0, |bits, (bit, _)| bits | bit)
}

/// Write that is done.
pub(crate) struct Wrote {
    /// Bytes that were written.
    pub range: Range<u64>,
    /// Part of them that was written directly, in whole blocks; empty at the end of the others when none was.
    pub direct: Range<u64>,
    /// Bytes of the file's blocks.
    pub block_size: u64,
}

/// Renaming that is done.
pub(crate) struct Moved<'a> {
    /// Old directory and name.
    pub from: (&'a Znode, &'a [u8]),
    /// New directory and name.
    pub to: (&'a Znode, &'a [u8]),
    /// Node that was renamed.
    pub source: &'a Znode,
    /// Node that had the new name.
    pub target: Option<&'a Znode>,
    /// True when that one has the old name now.
    pub is_exchange: bool,
    /// Node that was left under the old name.
    pub left: Option<&'a Znode>,
}

fn put(log: &dyn Log, record: &Record<'_>, only_with: Option<ObjectId>, tx: &Tx) {
    log.note(Itx { record: record.encode(), only_with, payload: Payload::None }, tx);
}

/// True for names that records can have.
fn can_be_told(name: &[u8]) -> bool {
    !matches!(name, b"" | b"." | b"..") && !name.contains(&b'/')
}

/// Object whose commits take a change along: those of all for what lies in a hidden directory.
fn taken_along_by(node: &Znode, fields: &Fields) -> Option<ObjectId> {
    (fields.flags & flag::XATTR == 0).then_some(node.object)
}

/// New node as its record has it; None when no record can.
fn created<'a>(directory: ObjectId, node: &Znode, name: &'a [u8], target: &'a [u8]) -> Option<Create<'a>> {
    let fields = node.fields();
    let made = match (fields.is_directory(), fields.is_symlink()) {
        (true, _) if name.is_empty() => Made::XattrDirectory,
        (true, _) => Made::Directory,
        (_, true) => Made::Symlink,
        _ => Made::Plain,
    };
    if made != Made::XattrDirectory && !can_be_told(name) {
        return None;
    }
    Some(Create {
        made,
        directory,
        object: node.object,
        slots: node.dnode.info().ok()?.slots,
        mode: fields.mode,
        uid: u32::try_from(fields.uid).ok()?,
        gid: u32::try_from(fields.gid).ok()?,
        generation: fields.generation,
        crtime: fields.times[crate::znode::CRTIME],
        rdev: fields.rdev,
        name,
        target,
        attributes: None,
    })
}

/// Names.
impl Journal {
    /// Notes a new node with a name; one without a name is the hidden directory of `directory`, which is no directory then.
    pub(crate) fn note_made(&self, directory: &Znode, node: &Znode, name: &[u8], target: &[u8], tx: &Tx) {
        let Some(log) = self.wanted(tx) else { return };
        match created(directory.object, node, name, target) {
            Some(create) => put(log, &Record::Create(create), None, tx),
            None => self.leave_out(tx),
        }
    }

    /// Notes that a node lost a name, perhaps its last: what was to be made durable of it alone is forgotten then.
    pub(crate) fn note_removed(&self, directory: &Znode, name: &[u8], node: &Znode, tx: &Tx) {
        let Some(log) = self.wanted(tx) else { return };
        let remove = Remove { directory: directory.object, name, is_directory: node.fields().is_directory() };
        if can_be_told(name) {
            put(log, &Record::Remove(remove), None, tx);
        } else {
            self.leave_out(tx);
        }
        forget(log, node);
    }

    /// Notes that a node got a further name.
    pub(crate) fn note_linked(&self, directory: &Znode, name: &[u8], node: &Znode, tx: &Tx) {
        let Some(log) = self.wanted(tx) else { return };
        put(log, &Record::Link(Link { directory: directory.object, object: node.object, name }), None, tx);
    }

    /// Notes that a node was renamed. What was noted for it alone comes before.
    pub(crate) fn note_moved(&self, moved: &Moved<'_>, tx: &Tx) {
        let Some(log) = self.wanted(tx) else { return };
        let (from, to) = ((moved.from.0.object, moved.from.1), (moved.to.0.object, moved.to.1));
        let kind = match moved.left {
            Some(left) => created(from.0, left, from.1, &[]).map(RenameKind::Whiteout),
            None if moved.is_exchange => Some(RenameKind::Exchange),
            None => Some(RenameKind::Replace),
        };
        log.promote(moved.source.object);
        match kind {
            Some(kind) if can_be_told(from.1) && can_be_told(to.1) => put(log, &Record::Rename(Rename { from, to, kind }), None, tx),
            _ => self.leave_out(tx),
        }
        if let Some(target) = moved.target {
            forget(log, target);
        }
    }
}

/// Forgets what was noted for a node alone, once it has no links.
fn forget(log: &dyn Log, node: &Znode) {
    if node.state.lock().unlinked {
        log.forget(node.object);
    }
}

/// Data and attributes.
impl Journal {
    /// Notes an operation of a node with links.
    fn note_of(&self, node: &Znode, record: &Record<'_>, tx: &Tx) {
        let Some(log) = self.wanted(tx) else { return };
        let state = node.state.lock();
        if !state.unlinked {
            put(log, record, taken_along_by(node, &state.fields), tx);
        }
    }

    /// Notes a write: the bytes are read, or the blocks looked up, when somebody wants them durable.
    pub(crate) fn note_written(&self, node: &Znode, wrote: &Wrote, tx: &Tx) {
        let Some(log) = self.wanted(tx) else { return };
        let state = node.state.lock();
        if state.unlinked {
            return;
        }
        let only_with = taken_along_by(node, &state.fields);
        let note = |range: Range<u64>, payload: fn(zil::Range) -> Payload| {
            if range.start < range.end {
                let (offset, length) = (range.start, range.end - range.start);
                let range = zil::Range { object: node.object, generation: state.fields.generation, offset, length };
                log.note(Itx { record: write_header(node.object, offset, length), only_with, payload: payload(range) }, tx);
            }
        };
        let Wrote { range, direct, block_size } = wrote;
        note(range.start..direct.start, Payload::Copied);
        let mut at = direct.start;
        while at < direct.end {
            let end = at.saturating_add(*block_size).min(direct.end);
            note(at..end, Payload::Block);
            at = end;
        }
        note(direct.end..range.end, Payload::Copied);
    }

    /// Notes that a file was made shorter or longer.
    pub(crate) fn note_resized(&self, node: &Znode, size: u64, mtime: Time, tx: &Tx) {
        let (size, mtime) = (Some(size), Some(mtime));
        let set = SetAttributes { object: node.object, mode: None, uid: None, gid: None, size, atime: None, mtime, attributes: None };
        self.note_of(node, &Record::SetAttributes(set), tx);
    }

    /// Notes that a range became zeros, and the file as long as to hold it.
    pub(crate) fn note_zeroed(&self, node: &Znode, range: Range<u64>, tx: &Tx) {
        if range.start < range.end {
            let (offset, length) = (range.start, range.end - range.start);
            self.note_of(node, &Record::Truncate { object: node.object, offset, length }, tx);
        }
    }

    /// Notes changed attributes of a node whose state is locked.
    pub(crate) fn note_set(&self, state: &State, set: SetAttributes, tx: &Tx) {
        let nothing = SetAttributes { mode: None, uid: None, gid: None, size: None, atime: None, mtime: None, attributes: None, ..set };
        if set == nothing || state.unlinked {
            return;
        }
        let Some(log) = self.wanted(tx) else { return };
        // With flags goes what others may do with the node and its names: in the order of those.
        let is_ordered = set.attributes.is_some() || state.fields.flags & flag::XATTR != 0;
        if is_ordered {
            log.promote(set.object);
        }
        put(log, &Record::SetAttributes(set), (!is_ordered).then_some(set.object), tx);
    }

    /// Notes a mode that followed from something else, of a node whose state is locked.
    pub(crate) fn note_mode(&self, object: ObjectId, state: &State, tx: &Tx) {
        let mode = Some(state.fields.mode);
        let set = SetAttributes { object, mode, uid: None, gid: None, size: None, atime: None, mtime: None, attributes: None };
        self.note_set(state, set, tx);
    }

    /// Notes flags that differ from before, and a new project, of a node whose state is locked.
    pub(crate) fn note_flags(&self, object: ObjectId, state: &State, (differing, project): (u64, Option<u64>), tx: &Tx) {
        let mask = recorded(differing) | if project.is_some() { NewAttributes::PROJECT } else { 0 };
        let given = NewAttributes { mask, set: recorded(state.fields.flags & differing), crtime: None, project };
        let attributes = (mask != 0).then_some(given);
        let set = SetAttributes { object, mode: None, uid: None, gid: None, size: None, atime: None, mtime: None, attributes };
        self.note_set(state, set, tx);
    }

    /// Notes extended attributes in the system attributes that are set, or go when they have no value. In the order of names when
    /// others of the node change there too.
    pub(crate) fn note_xattrs<'a>(
        &self,
        node: &Znode,
        is_ordered: bool,
        changes: impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)>,
        tx: &Tx,
    ) {
        let Some(log) = self.wanted(tx) else { return };
        if node.state.lock().unlinked {
            return;
        }
        if is_ordered {
            log.promote(node.object);
        }
        let tells = self.port.get().is_some_and(|port| port.tells_xattrs);
        for (name, value) in changes {
            // A record of an empty value says that the attribute goes.
            if !tells || value.is_some_and(<[u8]>::is_empty) {
                self.leave_out_alone(node.object, tx);
                continue;
            }
            let record = Record::SetXattr { object: node.object, name, value: value.unwrap_or_default() };
            put(log, &record, (!is_ordered).then_some(node.object), tx);
        }
    }

    /// Notes a file with the value of an extended attribute that got its name in a hidden directory. It was made before, and the record
    /// makes it: where that may be on disk already, no record can tell of it.
    pub(crate) fn note_value(&self, directory: &Znode, file: &Znode, name: &[u8], tx: &Tx) {
        if self.wanted(tx).is_none() {
            return;
        }
        let fields = file.fields();
        if fields.generation != tx.txg().0 {
            return self.leave_out(tx);
        }
        self.note_made(directory, file, name, &[], tx);
        self.note_written(file, &Wrote { range: 0..fields.size, direct: fields.size..fields.size, block_size: 0 }, tx);
    }
}
