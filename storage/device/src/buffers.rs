//! Which memory a ring has registered with the kernel: pages of registered memory stay pinned, so that an I/O on them need not
//! look them up, pin and release them each time (`IORING_REGISTER_BUFFERS2`, `READ_FIXED`, `WRITE_FIXED`).
//!
//! The unit is a mapping of `abd` (a slab of 4 MiB in huge pages, or one long buffer). It is registered when the first I/O
//! falls into it and given up when `abd` announces its end. Registration counts against the user's limit of locked memory
//! (`RLIMIT_MEMLOCK`; root has none): what the kernel refuses stays unregistered and its I/O goes the plain way.
//!
//! Invariant: an index is handed out only for memory that is mapped now. `abd` announces the end of a mapping before its
//! addresses can mean other memory, and the owner reads announcements before requests, so a stale registration is never used.

use std::collections::HashMap;

/// Size of the pages that mappings consist of and begin at.
const PAGE_BYTES: usize = 2 << 20;
/// Most registrations of a ring (Linux: `IORING_MAX_REG_BUFFERS`).
pub(crate) const BUFFERS_MAX: u16 = 1 << 14;

/// A change of `abd`'s memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MappingNote {
    /// Memory that buffers may lie in.
    Mapped { start: usize, size_bytes: usize },
    /// Memory that is gone.
    Unmapping { start: usize },
}

/// The kernel's table of registered buffers.
pub(crate) trait BufferTable {
    /// Puts memory into a slot of the table, or takes what is there away (none); false when the kernel refuses.
    fn set(&mut self, index: u16, memory: Option<(usize, usize)>) -> bool;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Unused,
    Registered(u16),
    Refused,
}

#[derive(Debug)]
struct Mapping {
    size_bytes: usize,
    state: State,
}

/// The registrations of one ring.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    mappings: HashMap<usize, Mapping>,
    /// Start of the mapping that a page belongs to.
    pages: HashMap<usize, usize>,
    vacant: Vec<u16>,
    used: u16,
    registered_bytes: u64,
    refusals: u64,
}

impl Buffers {
    /// Takes note of a change.
    pub(crate) fn note(&mut self, note: MappingNote, table: &mut dyn BufferTable) {
        match note {
            MappingNote::Mapped { start, size_bytes } => {
                self.mappings.insert(start, Mapping { size_bytes, state: State::Unused });
                self.pages.extend((start..start + size_bytes).step_by(PAGE_BYTES).map(|page| (page / PAGE_BYTES, start)));
            }
            MappingNote::Unmapping { start } => self.forget(start, table),
        }
    }

    fn forget(&mut self, start: usize, table: &mut dyn BufferTable) {
        let Some(mapping) = self.mappings.remove(&start) else { return };
        (start..start + mapping.size_bytes).step_by(PAGE_BYTES).for_each(|page| {
            self.pages.remove(&(page / PAGE_BYTES));
        });
        let State::Registered(index) = mapping.state else { return };
        self.registered_bytes -= mapping.size_bytes as u64;
        // A slot that cannot be emptied is never used again.
        if table.set(index, None) {
            self.vacant.push(index);
        }
        // There may be room now for what was refused.
        self.mappings.values_mut().filter(|other| other.state == State::Refused).for_each(|other| other.state = State::Unused);
    }

    /// The slot that covers these bytes; registers their mapping when it is not yet.
    pub(crate) fn index_of(&mut self, start: usize, length: usize, table: &mut dyn BufferTable) -> Option<u16> {
        let base = *self.pages.get(&(start / PAGE_BYTES))?;
        let mapping = self.mappings.get_mut(&base)?;
        if start - base + length > mapping.size_bytes {
            return None;
        }
        match mapping.state {
            State::Registered(index) => return Some(index),
            State::Refused => return None,
            State::Unused => {}
        }
        let index = self.vacant.pop().or_else(|| {
            let fresh = (self.used < BUFFERS_MAX).then_some(self.used)?;
            self.used += 1;
            Some(fresh)
        })?;
        if table.set(index, Some((base, mapping.size_bytes))) {
            mapping.state = State::Registered(index);
            self.registered_bytes += mapping.size_bytes as u64;
            return Some(index);
        }
        mapping.state = State::Refused;
        self.vacant.push(index);
        self.refusals += 1;
        None
    }

    /// Bytes registered now, and how many mappings were refused so far.
    pub(crate) fn usage(&self) -> (u64, u64) {
        (self.registered_bytes, self.refusals)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table with a limit, as that of an unprivileged user; keeps what is registered.
    struct Limited {
        slots: HashMap<u16, (usize, usize)>,
        limit_bytes: usize,
    }

    impl BufferTable for Limited {
        fn set(&mut self, index: u16, memory: Option<(usize, usize)>) -> bool {
            self.slots.remove(&index);
            let Some((start, size_bytes)) = memory else { return true };
            let used: usize = self.slots.values().map(|(_, size)| size).sum();
            let fits = used + size_bytes <= self.limit_bytes;
            if fits {
                self.slots.insert(index, (start, size_bytes));
            }
            fits
        }
    }

    const SLAB: usize = 2 * PAGE_BYTES;

    /// An index that outlives its mapping makes the kernel transfer to pages that belong to nobody: lost writes, wrong reads.
    #[test]
    fn an_address_mapped_anew_is_registered_anew() {
        let mut table = Limited { slots: HashMap::new(), limit_bytes: 64 * SLAB };
        let mut buffers = Buffers::default();
        let start = 10 * SLAB;
        buffers.note(MappingNote::Mapped { start, size_bytes: SLAB }, &mut table);
        let first = buffers.index_of(start + 4096, 8192, &mut table).unwrap();
        assert_eq!(buffers.index_of(start + PAGE_BYTES, PAGE_BYTES, &mut table), Some(first));
        assert_eq!(table.slots[&first], (start, SLAB));
        buffers.note(MappingNote::Unmapping { start }, &mut table);
        assert!(table.slots.is_empty() && buffers.usage().0 == 0);
        assert_eq!(buffers.index_of(start, 4096, &mut table), None, "memory that is gone has no index");
        buffers.note(MappingNote::Mapped { start: start + PAGE_BYTES, size_bytes: SLAB }, &mut table);
        assert_eq!(buffers.index_of(start, 4096, &mut table), None);
        let second = buffers.index_of(start + PAGE_BYTES, 4096, &mut table).unwrap();
        assert_eq!(table.slots[&second], (start + PAGE_BYTES, SLAB), "the new mapping, not the old one");
        assert_eq!(buffers.index_of(start + PAGE_BYTES + SLAB - 4096, 8192, &mut table), None, "bytes beyond the mapping");
    }

    /// Without this an unprivileged user's I/O would fail, or try a system call for each request for ever.
    #[test]
    fn what_the_limit_refuses_goes_the_plain_way_until_there_is_room() {
        let mut table = Limited { slots: HashMap::new(), limit_bytes: 2 * SLAB };
        let mut buffers = Buffers::default();
        let starts: Vec<usize> = (1..5).map(|number| number * SLAB).collect();
        starts.iter().for_each(|start| buffers.note(MappingNote::Mapped { start: *start, size_bytes: SLAB }, &mut table));
        let found: Vec<bool> = starts.iter().map(|start| buffers.index_of(*start, 512, &mut table).is_some()).collect();
        assert_eq!(found, [true, true, false, false]);
        assert_eq!(buffers.index_of(starts[2], 512, &mut table), None);
        assert_eq!(buffers.usage(), (2 * SLAB as u64, 2), "a refusal is asked for once");
        buffers.note(MappingNote::Unmapping { start: starts[0] }, &mut table);
        assert!(buffers.index_of(starts[3], 512, &mut table).is_some());
        assert_eq!(buffers.index_of(starts[1], 512, &mut table), buffers.index_of(starts[1], 512, &mut table));
        assert_eq!(table.slots.len(), 2);
    }
}
