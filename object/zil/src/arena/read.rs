//! What an arena proves that another process left: entries one after the other from the first on, as far as each is whole, of the pool, and in
//! its place. Of what comes after, nobody knows whether it was; and nobody was answered.

use super::facts::{ArenaError, Done};
use super::layout::{ALIGNMENT, ENTRY_BYTES, Entry, EntryKind, Header};
use super::store::Store;
use ondisk::Txg;
use std::collections::HashMap;

/// Bytes that are looked at after the end for entries that come later: more than one entry has.
const LOOKED_AT_BYTES: u64 = 32 << 20;
/// Bytes of these that are read at once.
const CHUNK_BYTES: usize = 256 << 10;

/// No arena lives to see a position, or a number of its header, beyond this one.
const NUMBER_MAX: u64 = 1 << 60;

/// Contents of an arena.
#[derive(Debug, Default)]
pub(super) struct Contents {
    /// Entries that are to be done again, in their order; only those that change something.
    pub replay: Vec<Entry>,
    /// Position of the first entry that is not on disk.
    pub start: u64,
    /// Position behind the last that counts.
    pub end: u64,
    /// Effects of requests, by object set and number.
    pub done: HashMap<(u64, u64), Done>,
    /// True when something came after that does not count: logs on disk may have more than the arena.
    pub is_cut: bool,
    /// Number of changes that do not count.
    pub left_out: u64,
    /// Marks among what does not count: they tell of what is on disk.
    pub beyond: Vec<Entry>,
}

impl Contents {
    /// Reads what counts, for a pool whose last txg on disk is `synced`.
    pub(super) fn read(store: &Store, header: &Header, synced: Txg) -> Result<Contents, ArenaError> {
        if header.tail.max(header.generation).max(header.epoch) > NUMBER_MAX {
            return Err(ArenaError::Unsound("its numbers are those of none"));
        }
        if header.synced > synced {
            return Err(ArenaError::Unsound("the pool lacks what was on disk"));
        }
        let cut = header.gaps.iter().filter(|gap| gap.txg > synced).map(|gap| gap.position).min();
        let is_redone = header.inherited.txg.is_some_and(|txg| txg <= synced);
        let mut contents = Contents { end: header.tail, is_cut: cut.is_some(), ..Contents::default() };
        let (mut start, mut newest, mut position) = (None, Txg(0), header.tail);
        while position - header.tail < store.capacity() {
            let Some(entry) = entry_at(store, position, header.tail)? else { break };
            let is_inherited = entry.position < header.inherited.end;
            if !is_inherited && entry.epoch != header.epoch {
                break;
            }
            let is_beyond = cut.is_some_and(|cut| position >= cut);
            position = entry.end();
            if entry.kind == EntryKind::Mark && is_beyond {
                contents.beyond.push(entry);
            }
            if is_beyond && entry.kind != EntryKind::Mark {
                contents.left_out += u64::from(entry.kind != EntryKind::Gap);
                continue;
            }
            contents.tell(&entry);
            if is_beyond {
                continue;
            }
            contents.end = position;
            if entry.kind == EntryKind::Mark {
                continue;
            }
            let is_on_disk = match is_inherited {
                true => entry.position < header.inherited.start || is_redone,
                false => entry.txg <= synced,
            };
            if !is_inherited && entry.txg < newest {
                return Err(ArenaError::Unsound("its txgs are not those of a pool"));
            }
            newest = if is_inherited { newest } else { entry.txg };
            if !is_on_disk {
                start.get_or_insert(entry.position);
                if entry.kind != EntryKind::Gap {
                    contents.replay.push(entry);
                }
            }
        }
        if position < header.inherited.end || has_more(store, header, position)? {
            return Err(ArenaError::Unsound("there is a hole in it"));
        }
        contents.start = start.unwrap_or(contents.end);
        Ok(contents)
    }

    fn tell(&mut self, entry: &Entry) {
        if entry.unique != 0 {
            let told = Done { object: entry.object, bytes: entry.bytes };
            // A kill may leave a mark beside the entries that it is there for.
            let with = |done: &mut Done| *done = if entry.kind == EntryKind::Mark { done.told_again(told) } else { done.and(told) };
            self.done.entry((entry.objset, entry.unique)).and_modify(with).or_insert(told);
        }
    }
}

/// True when an entry of the last process comes after this position, where they seem to end. Each is written at once and after the one before: a kill
/// tears the last, so what comes after one that is not whole was answered, and is not to be had.
fn has_more(store: &Store, header: &Header, position: u64) -> Result<bool, ArenaError> {
    let end = (header.tail + store.capacity()).min(position + LOOKED_AT_BYTES);
    let mut at = position + ALIGNMENT;
    let mut bytes = vec![0; CHUNK_BYTES + ENTRY_BYTES];
    while at + ENTRY_BYTES as u64 <= end {
        let length = bytes.len().min((end - at) as usize);
        store.read(at, &mut bytes[..length])?;
        for offset in (0..CHUNK_BYTES).step_by(ALIGNMENT as usize) {
            let Some(head) = bytes[..length].get(offset..).and_then(<[u8]>::first_chunk::<ENTRY_BYTES>) else { break };
            let is_later = |entry: Entry| entry.epoch == header.epoch && Entry::is_head_sound(head);
            if Entry::decode(head, at + offset as u64).is_some_and(is_later) {
                return Ok(true);
            }
        }
        at += CHUNK_BYTES as u64;
    }
    Ok(false)
}

/// Entry at a position, None when there is no whole one.
fn entry_at(store: &Store, position: u64, tail: u64) -> Result<Option<Entry>, ArenaError> {
    let mut head = [0; ENTRY_BYTES];
    store.read(position, &mut head)?;
    let Some(entry) = Entry::decode(&head, position) else { return Ok(None) };
    let room = store.capacity() - (position - tail);
    if entry.length > room || Entry::bytes_with(entry.length) > room {
        return Ok(None);
    }
    let payload = payload_of(store, &entry)?;
    Ok(Entry::is_sound(&head, &payload).then_some(entry))
}

/// Payload of an entry.
pub(super) fn payload_of(store: &Store, entry: &Entry) -> Result<Vec<u8>, ArenaError> {
    let mut payload = vec![0; usize::try_from(entry.length).map_err(|_| ArenaError::Unsound("an entry is too long"))?];
    store.read(entry.position + ENTRY_BYTES as u64, &mut payload)?;
    Ok(payload)
}
