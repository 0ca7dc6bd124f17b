//! Operations as their records have them, and with whose commits they go: names with every commit, data and attributes with those of
//! their object. What lies in a hidden directory goes with every commit: nobody commits it by its own number.

use super::{Journal, Listeners, Port};
use crate::znode::{CTIME, Fields, MTIME, State, Time, Znode, flag};
use abd::Abd;
use dmu::Tx;
use ondisk::ObjectId;
use std::ops::Range;
use zil::{
    Create, Done, EntryKind, Itx, Link, Made, NewAttributes, Payload, Record, Remove, Rename, RenameKind, SetAttributes, Wrote,
    write_header,
};

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

impl Listeners<'_> {
    /// Tells of a change, the log only for the commits of an object if there is one; with it goes the time that it left behind, and the object
    /// that was made or linked.
    fn hear(&self, record: &Record<'_>, only_with: Option<ObjectId>, (time, object): (Time, u64), tx: &Tx) {
        let record = record.encode();
        if let Some(teller) = self.teller {
            teller.tell(EntryKind::Record, &record, (time, object), tx);
        }
        if let Some(log) = self.log {
            log.note(Itx { record, only_with, payload: Payload::None }, tx);
        }
    }

    /// Returns who among them is to hear of a node in this state: logs know nothing of one without links.
    fn of(self, state: &State) -> Self {
        Listeners { log: self.log.filter(|_| !state.unlinked), ..self }
    }

    fn promote(&self, object: ObjectId) {
        if let Some(log) = self.log {
            log.promote(object);
        }
    }

    /// Forgets what was noted for a node alone, once it has no links.
    fn forget(&self, node: &Znode) {
        if let Some(log) = self.log
            && node.state.lock().unlinked
        {
            log.forget(node.object);
        }
    }
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

/// Name that the record of a node without one has.
const NO_NAME: &[u8] = b"nameless";

/// Names.
impl Journal {
    /// Notes a new node with a name; one without a name is the hidden directory of `directory`, which is no directory then.
    pub(crate) fn note_made(&self, directory: &Znode, node: &Znode, name: &[u8], target: &[u8], tx: &Tx) {
        let Some(listeners) = self.listeners(tx) else { return };
        let object = node.object.0;
        match created(directory.object, node, name, target) {
            Some(create) => listeners.hear(&Record::Create(create), None, (directory.fields().times[CTIME], object), tx),
            None => self.leave_out(Done { object, bytes: 0 }, tx),
        }
    }

    /// Notes a new file without a name, of which logs know nothing.
    pub(crate) fn note_nameless(&self, directory: &Znode, node: &Znode, tx: &Tx) {
        let Some(teller) = self.teller() else { return };
        let (object, time) = (node.object.0, node.fields().times[CTIME]);
        match created(directory.object, node, NO_NAME, &[]) {
            Some(create) => teller.tell(EntryKind::Nameless, &Record::Create(create).encode(), (time, object), tx),
            None => teller.leave_out(Done { object, bytes: 0 }, tx),
        }
    }

    /// Notes that a node without names was deleted, of which logs know nothing.
    pub(crate) fn note_gone(&self, object: ObjectId, tx: &Tx) {
        if let Some(teller) = self.teller() {
            teller.tell_gone(object, tx);
        }
    }

    /// Notes that a node lost a name, perhaps its last: what was to be made durable of it alone is forgotten then.
    pub(crate) fn note_removed(&self, directory: &Znode, name: &[u8], node: &Znode, tx: &Tx) {
        let Some(listeners) = self.listeners(tx) else { return };
        let remove = Remove { directory: directory.object, name, is_directory: node.fields().is_directory() };
        if can_be_told(name) {
            listeners.hear(&Record::Remove(remove), None, (directory.fields().times[CTIME], 0), tx);
        } else {
            self.leave_out(Done::default(), tx);
        }
        listeners.forget(node);
    }

    /// Notes that a node got a further name, or its first: of one without names nothing was logged, and no record of a log could make it what it is.
    pub(crate) fn note_linked(&self, directory: &Znode, name: &[u8], (node, was_nameless): (&Znode, bool), tx: &Tx) {
        let Some(listeners) = self.listeners(tx) else { return };
        if was_nameless {
            self.leave_out_of_log(tx);
        }
        let listeners = Listeners { log: listeners.log.filter(|_| !was_nameless), ..listeners };
        let link = Link { directory: directory.object, object: node.object, name };
        listeners.hear(&Record::Link(link), None, (directory.fields().times[CTIME], node.object.0), tx);
    }

    /// Notes that a node was renamed. What was noted for it alone comes before.
    pub(crate) fn note_moved(&self, moved: &Moved<'_>, tx: &Tx) {
        let Some(listeners) = self.listeners(tx) else { return };
        let (from, to) = ((moved.from.0.object, moved.from.1), (moved.to.0.object, moved.to.1));
        let kind = match moved.left {
            Some(left) => created(from.0, left, from.1, &[]).map(RenameKind::Whiteout),
            None if moved.is_exchange => Some(RenameKind::Exchange),
            None => Some(RenameKind::Replace),
        };
        listeners.promote(moved.source.object);
        match kind {
            Some(kind) if can_be_told(from.1) && can_be_told(to.1) => {
                let time = moved.to.0.fields().times[CTIME];
                listeners.hear(&Record::Rename(Rename { from, to, kind }), None, (time, 0), tx);
            }
            _ => self.leave_out(Done::default(), tx),
        }
        if let Some(target) = moved.target {
            listeners.forget(target);
        }
    }
}

/// Data and attributes.
impl Journal {
    /// Notes an operation of a node.
    fn note_of(&self, node: &Znode, record: &Record<'_>, tx: &Tx) {
        let Some(listeners) = self.listeners(tx) else { return };
        let state = node.state.lock();
        listeners.of(&state).hear(record, taken_along_by(node, &state.fields), (state.fields.times[CTIME], 0), tx);
    }

    /// Notes a write: for the log the bytes are read, or the blocks looked up, when somebody wants them durable; for the arena they are `data`, None
    /// where a later note has them.
    pub(crate) fn note_written(&self, node: &Znode, wrote: &Wrote, data: Option<&Abd>, tx: &Tx) {
        let Some(listeners) = self.listeners(tx) else { return };
        let state = node.state.lock();
        let range = &wrote.range;
        // Of a value that is being made nobody knows before it has its name.
        let is_hidden = state.unlinked && state.fields.flags & flag::XATTR != 0;
        if let (Some(teller), Some(data), false) = (listeners.teller, data, is_hidden) {
            let record = write_header(node.object, range.start, range.end - range.start);
            teller.tell_write(&record, data, state.fields.times[MTIME], tx);
        }
        let Some(log) = listeners.log.filter(|_| !state.unlinked) else { return };
        let only_with = taken_along_by(node, &state.fields);
        wrote.each((node.object, state.fields.generation), &mut |payload| log.note_write(payload, only_with, tx));
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
        if (set == nothing || state.unlinked) && self.teller().is_none() {
            return;
        }
        let Some(listeners) = self.listeners(tx) else { return };
        // Time passed at least, of which logs say nothing.
        let listeners = Listeners { log: listeners.log.filter(|_| set != nothing && !state.unlinked), ..listeners };
        // With flags goes what others may do with the node and its names: in the order of those.
        let is_ordered = set.attributes.is_some() || state.fields.flags & flag::XATTR != 0;
        if is_ordered {
            listeners.promote(set.object);
        }
        let time = state.fields.times[CTIME];
        listeners.hear(&Record::SetAttributes(set), (!is_ordered).then_some(set.object), (time, 0), tx);
    }

    /// Notes that nothing but the time of a node's last change is another, which concerns the arena alone.
    pub(crate) fn note_touched(&self, node: &Znode, tx: &Tx) {
        let object = node.object;
        let nothing = SetAttributes { object, mode: None, uid: None, gid: None, size: None, atime: None, mtime: None, attributes: None };
        self.note_set(&node.state.lock(), nothing, tx);
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
        let Some(listeners) = self.listeners(tx) else { return };
        if is_ordered {
            listeners.promote(node.object);
        }
        let (tells, time) = (self.port.get().is_some_and(Port::tells_xattrs), node.fields().times[CTIME]);
        let changes: Vec<_> = changes.collect();
        // A record of an empty value says that the attribute goes.
        let is_empty = |value: Option<&[u8]>| value.is_some_and(<[u8]>::is_empty);
        if let Some(teller) = listeners.teller.filter(|_| changes.iter().any(|(_, value)| is_empty(*value))) {
            teller.leave_out(Done::default(), tx);
        }
        for (name, value) in changes {
            let is_empty = is_empty(value);
            let log = listeners.log.filter(|_| tells && !is_empty);
            match listeners.log.is_some() && log.is_none() {
                // What comes before it in the order of names must not come without it.
                true if is_ordered => self.leave_out_of_log(tx),
                true => self.leave_alone_out_of_log(node.object, tx),
                false => {}
            }
            if is_empty {
                continue;
            }
            let record = Record::SetXattr { object: node.object, name, value: value.unwrap_or_default() };
            Listeners { log, ..listeners }.hear(&record, (!is_ordered).then_some(node.object), (time, 0), tx);
        }
    }

    /// Notes that extended attributes were changed of a node without names.
    pub(crate) fn note_xattrs_nameless(&self, tx: &Tx) {
        if let Some(teller) = self.teller() {
            teller.leave_out(Done::default(), tx);
        }
    }

    /// Notes, before what comes with it, that no record can tell of a file with a value: it may be on disk already.
    pub(crate) fn leave_out_value(&self, file: &Znode, tx: &Tx) {
        let is_heard = self.listeners(tx).is_some();
        if is_heard {
            self.leave_out(Done { object: file.object.0, bytes: 0 }, tx);
        }
    }

    /// Notes a file with the value of an extended attribute that got its name in a hidden directory. It was made before, and the record
    /// makes it: where that may be on disk already, [`Journal::leave_out_value`] was called.
    pub(crate) fn note_value(&self, directory: &Znode, file: &Znode, name: &[u8], tx: &Tx) {
        if self.listeners(tx).is_none() {
            return;
        }
        let fields = file.fields();
        if fields.generation != tx.txg().0 {
            return;
        }
        self.note_made(directory, file, name, &[], tx);
        // It was written in this txg: all of it is in memory.
        let data = self.teller().and_then(|_| file.dnode.read_abd(0, usize::try_from(fields.size).ok()?).ok());
        if data.is_none()
            && let Some(teller) = self.teller()
        {
            teller.leave_out(Done::default(), tx);
        }
        self.note_written(file, &Wrote { range: 0..fields.size, direct: fields.size..fields.size, block_size: 0 }, data.as_ref(), tx);
    }
}
