//! What the keeper has from its beginning, so that it outlives a daemon that dies: each mount's connection with a note on it, and each pool's arena,
//! in which everything is that was acknowledged and is not on disk (docs/adr/0018).
//!
//! Invariant: a mount is held only while its pool has an arena that is held.

use crate::mount::keeping::Keeper;
use crate::mount::mounts::Mounted;
use crate::mount::note::Note;
use crate::pool::OpenPool;
use exec::Mutex;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

/// Version of the notes; those of another one are not understood.
const FORMAT: u32 = 1;

/// Something that is held, as it is noted.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Thing {
    Mount(Box<Note>),
    /// Arena of the pool of this guid.
    Arena(u64),
}

#[derive(Serialize, Deserialize)]
struct Notes {
    format: u32,
    thing: Thing,
}

/// Reads notes; None for those that are not understood.
pub(crate) fn understood(notes: &[u8]) -> Option<Thing> {
    serde_json::from_slice(notes).ok().filter(|notes: &Notes| notes.format == FORMAT).map(|notes| notes.thing)
}

/// Arena that a daemon which died left, and its number.
struct Left {
    number: u32,
    arena: OwnedFd,
}

#[derive(Default)]
struct State {
    /// Notes that the keeper has, by their numbers.
    told: BTreeMap<u32, Vec<u8>>,
    /// Numbers of arenas, by the guids of their pools.
    arenas: BTreeMap<u64, u32>,
    /// Arenas of the daemon before, by the guids of their pools.
    left: BTreeMap<u64, Left>,
}

/// Holding of what outlives a daemon that dies.
#[derive(Default)]
pub(crate) struct Holding {
    keeper: OnceLock<Arc<dyn Keeper>>,
    last: AtomicU32,
    state: Mutex<State>,
    /// Held while all is looked at, so that nobody lets go of what somebody else holds meanwhile.
    renewing: Mutex<()>,
}

impl Holding {
    /// Names the keeper, before anything is mounted; numbers up to `last` are in use.
    pub(crate) fn begin(&self, keeper: &Arc<dyn Keeper>, last: u32) {
        self.last.fetch_max(last, Ordering::AcqRel);
        let _ = self.keeper.set(keeper.clone());
    }

    /// Number for a mount.
    pub(crate) fn next_number(&self) -> u32 {
        self.last.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// True when there is somebody who holds.
    pub(crate) fn is_there(&self) -> bool {
        self.keeper.get().is_some_and(|keeper| keeper.can_hold())
    }

    /// Notes an arena that the daemon before left.
    pub(crate) fn inherit_arena(&self, pool: u64, number: u32, arena: OwnedFd) {
        self.state.lock().left.insert(pool, Left { number, arena });
    }

    /// Takes the arena that the daemon before left of a pool.
    pub(crate) fn take_arena(&self, pool: u64) -> Option<OwnedFd> {
        let mut state = self.state.lock();
        let Left { number, arena } = state.left.remove(&pool)?;
        state.arenas.insert(pool, number);
        Some(arena)
    }

    /// Has the keeper let go of the arena that a pool had before it was opened: nothing of it is known.
    pub(crate) fn drop_arena(&self, pool: u64) {
        let mut state = self.state.lock();
        let number = state.arenas.remove(&pool).or_else(|| state.left.remove(&pool).map(|left| left.number));
        if let (Some(number), Some(keeper)) = (number, self.keeper.get()) {
            state.told.remove(&number);
            keeper.let_go(number);
        }
    }

    /// Has the keeper let go of the arenas of pools that are not open: they are others by the time they are.
    pub(crate) fn drop_left(&self) {
        let left = std::mem::take(&mut self.state.lock().left);
        if let Some(keeper) = self.keeper.get() {
            left.values().for_each(|left| keeper.let_go(left.number));
        }
    }

    fn tell(&self, state: &mut State, number: u32, thing: Thing, descriptor: BorrowedFd<'_>) {
        let Some(keeper) = self.keeper.get() else { return };
        let Ok(notes) = serde_json::to_vec(&Notes { format: FORMAT, thing }) else { return };
        if state.told.get(&number) == Some(&notes) {
            return;
        }
        match keeper.hold(number, &notes, descriptor) {
            Ok(()) => drop(state.told.insert(number, notes)),
            Err(error) => tracing::warn!("a mount does not outlive the daemon: {error}"),
        }
    }

    /// Has the keeper hold a pool's arena; false when the pool has none.
    pub(crate) fn hold_arena(&self, open: &OpenPool) -> bool {
        let Some(arena) = open.pool().arena().filter(|_| self.is_there()) else { return false };
        let guid = open.pool().guid().0;
        let mut state = self.state.lock();
        let number = *state.arenas.entry(guid).or_insert_with(|| self.next_number());
        self.tell(&mut state, number, Thing::Arena(guid), arena.as_fd());
        true
    }

    /// Has the keeper hold a mount as it is now, where its pool has an arena.
    pub(crate) fn hold(&self, open: &OpenPool, mounted: &Mounted) {
        // What comes through io_uring ends with the process.
        if mounted.session.has_rings() || !mounted.session.is_alive() || !self.hold_arena(open) {
            return;
        }
        if let Ok((note, connection)) = Note::of(mounted, &[]) {
            self.tell(&mut self.state.lock(), mounted.number, Thing::Mount(Box::new(note)), connection.as_fd());
        }
    }

    /// Has the keeper hold a mount of the daemon before, with which this one goes on.
    pub(crate) fn hold_again(&self, open: &OpenPool, note: Note, connection: &OwnedFd) {
        if self.hold_arena(open) {
            self.tell(&mut self.state.lock(), note.number, Thing::Mount(Box::new(note)), connection.as_fd());
        }
    }

    /// Has the keeper hold the arena and the mounts of these pools, as they are now, and nothing else of what it was told of.
    pub(crate) fn renew(&self, pools: impl FnOnce() -> Vec<Arc<OpenPool>>) {
        if !self.is_there() {
            return;
        }
        let _one = self.renewing.lock();
        let mut numbers = BTreeSet::new();
        for open in pools().iter().filter(|open| self.hold_arena(open)) {
            let mounts = open.mounts.all();
            mounts.iter().for_each(|mounted| self.hold(open, mounted));
            let lasts = |mounted: &&Arc<Mounted>| mounted.session.is_alive() && !mounted.session.has_rings();
            numbers.extend(mounts.iter().filter(lasts).map(|mounted| mounted.number));
            numbers.extend(self.state.lock().arenas.get(&open.pool().guid().0));
        }
        let Some(keeper) = self.keeper.get() else { return };
        let mut state = self.state.lock();
        let over: Vec<u32> = state.told.keys().filter(|number| !numbers.contains(number)).copied().collect();
        // The arena of a pool that is being opened has its number and was not told of yet.
        state.arenas.retain(|_, number| !over.contains(number));
        for number in over {
            state.told.remove(&number);
            keeper.let_go(number);
        }
    }

    /// Forgets what the keeper has: all of it was handed over, or is not any more.
    pub(crate) fn forget(&self) {
        *self.state.lock() = State::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mount::keeping::Heritage;
    use std::path::Path;

    struct Nobody;

    impl Keeper for Nobody {
        fn keep(&self, _: Heritage, _: &Path) -> std::io::Result<()> {
            Ok(())
        }
        fn taken(&self, _: u32) {}
        fn done(&self) {}
        fn can_hold(&self) -> bool {
            true
        }
        fn hold(&self, _: u32, _: &[u8], _: BorrowedFd<'_>) -> std::io::Result<()> {
            Ok(())
        }
        fn let_go(&self, _: u32) {}
    }

    /// If this fails, a look at what is mounted while a pool takes long to open has the keeper wait for its arena for ever, and cut all mounts off.
    #[test]
    fn an_arena_keeps_its_number_while_its_pool_is_being_opened() {
        let holding = Holding::default();
        holding.begin(&(Arc::new(Nobody) as Arc<dyn Keeper>), 7);
        let arena: OwnedFd = std::fs::File::open("/dev/null").expect("there").into();
        holding.inherit_arena(1, 7, arena.try_clone().expect("a copy"));
        assert!(holding.take_arena(1).is_some());
        holding.renew(Vec::new);
        assert_eq!(holding.state.lock().arenas.get(&1), Some(&7));
        holding.tell(&mut holding.state.lock(), 7, Thing::Arena(1), arena.as_fd());
        holding.renew(Vec::new);
        assert_eq!(holding.state.lock().arenas.get(&1), None, "the pool is not open any more");
    }
}
