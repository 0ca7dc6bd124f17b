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

/// Thing that the keeper has.
#[derive(Debug, Default, PartialEq, Eq)]
struct Told {
    notes: Vec<u8>,
    /// Device and inode of its descriptor: a pool that was closed and opened again has another arena, with the same notes.
    file: String,
}

#[derive(Default)]
struct State {
    /// Things that the keeper has, by their numbers.
    told: BTreeMap<u32, Told>,
    /// Numbers of arenas, by the guids of their pools.
    arenas: BTreeMap<u64, u32>,
    /// Arenas of the daemon before, by the guids of their pools.
    left: BTreeMap<u64, Left>,
    /// Numbers of arenas of the daemon before whose pools are being opened with them: the keeper has them, and was not told of them yet.
    taken: BTreeMap<u64, u32>,
    /// Numbers of mounts of the daemon before that this one is going on with: the keeper has them again, and they are not among the mounts yet.
    coming: BTreeSet<u32>,
}

impl State {
    /// Takes the arena that the daemon before left of a pool. Its number stays what it is: the keeper waits for the next word of it.
    fn take_arena(&mut self, pool: u64) -> Option<OwnedFd> {
        let Left { number, arena } = self.left.remove(&pool)?;
        self.taken.insert(pool, number);
        Some(arena)
    }

    /// Number of a pool's arena; that of the daemon before, if it was taken over, else the one that it had, else a new one.
    fn number_of_arena(&mut self, pool: u64, new: impl FnOnce() -> u32) -> u32 {
        match self.taken.remove(&pool) {
            Some(number) => {
                self.arenas.insert(pool, number);
                number
            }
            None => *self.arenas.entry(pool).or_insert_with(new),
        }
    }

    /// Forgets an arena; returns the number by which the keeper has it.
    fn forget_arena(&mut self, pool: u64) -> Option<u32> {
        let left = self.left.remove(&pool).map(|left| left.number);
        self.taken.remove(&pool).or_else(|| self.arenas.remove(&pool)).or(left)
    }

    /// Numbers of what the keeper was told of and can be over.
    fn told(&self) -> BTreeSet<u32> {
        self.told.keys().filter(|number| !self.coming.contains(number)).copied().collect()
    }

    /// Forgets what the keeper was told of before and is not any more; returns the numbers.
    fn forget_over(&mut self, told_before: &BTreeSet<u32>, now: &BTreeSet<u32>) -> Vec<u32> {
        let over: Vec<u32> = told_before.difference(now).filter(|number| self.told.remove(number).is_some()).copied().collect();
        let State { told, arenas, .. } = self;
        arenas.retain(|_, number| told.contains_key(number));
        over
    }
}

/// Holding of what outlives a daemon that dies.
#[derive(Default)]
pub(crate) struct Holding {
    keeper: OnceLock<Arc<dyn Keeper>>,
    last: AtomicU32,
    state: Mutex<State>,
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
        self.state.lock().take_arena(pool)
    }

    /// Has the keeper let go of the arena that a pool had before it was opened: nothing of it is known.
    pub(crate) fn drop_arena(&self, pool: u64) {
        let mut state = self.state.lock();
        if let (Some(number), Some(keeper)) = (state.forget_arena(pool), self.keeper.get()) {
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
        let file = rustix::fs::fstat(descriptor).map(|file| format!("{}:{}", file.st_dev, file.st_ino)).unwrap_or_default();
        let told = Told { notes, file };
        if state.told.get(&number) == Some(&told) {
            return;
        }
        match keeper.hold(number, &told.notes, descriptor) {
            Ok(()) => drop(state.told.insert(number, told)),
            Err(error) => tracing::warn!("a mount does not outlive the daemon: {error}"),
        }
    }

    /// Has the keeper hold a pool's arena; false when the pool has none.
    pub(crate) fn hold_arena(&self, open: &OpenPool) -> bool {
        let Some(arena) = open.pool().arena().filter(|_| self.is_there()) else { return false };
        let guid = open.pool().guid().0;
        let mut state = self.state.lock();
        let number = state.number_of_arena(guid, || self.next_number());
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

    /// Has the keeper hold a mount of the daemon before, with which this one is going on: until [`Holding::came`] or [`Holding::let_go`].
    pub(crate) fn hold_again(&self, open: &OpenPool, note: Note, connection: &OwnedFd) {
        if self.hold_arena(open) {
            let mut state = self.state.lock();
            state.coming.insert(note.number);
            self.tell(&mut state, note.number, Thing::Mount(Box::new(note)), connection.as_fd());
        }
    }

    /// Numbers of what the keeper was told of so far and can be over.
    pub(crate) fn told(&self) -> BTreeSet<u32> {
        self.state.lock().told()
    }

    /// Notes that this daemon goes on with a mount of the one before.
    pub(crate) fn came(&self, number: u32) {
        self.state.lock().coming.remove(&number);
    }

    /// Has the keeper let go of a mount of the daemon before with which this one could not go on.
    pub(crate) fn let_go(&self, number: u32) {
        let mut state = self.state.lock();
        state.coming.remove(&number);
        state.told.remove(&number);
        if let Some(keeper) = self.keeper.get() {
            keeper.let_go(number);
        }
    }

    /// Has the keeper hold the arena and the mounts of these pools, as they are now, and nothing else of what it was told of before somebody looked
    /// which pools there are.
    pub(crate) fn renew(&self, told_before: &BTreeSet<u32>, pools: &[Arc<OpenPool>]) {
        if !self.is_there() {
            return;
        }
        let mut numbers = BTreeSet::new();
        for open in pools.iter().filter(|open| self.hold_arena(open)) {
            let mounts = open.mounts.all();
            mounts.iter().for_each(|mounted| self.hold(open, mounted));
            let lasts = |mounted: &&Arc<Mounted>| mounted.session.is_alive() && !mounted.session.has_rings();
            numbers.extend(mounts.iter().filter(lasts).map(|mounted| mounted.number));
            numbers.extend(self.state.lock().arenas.get(&open.pool().guid().0));
        }
        let Some(keeper) = self.keeper.get() else { return };
        let mut state = self.state.lock();
        state.forget_over(told_before, &numbers).into_iter().for_each(|number| keeper.let_go(number));
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

    /// Keeper that remembers the numbers of what it was to hold.
    #[derive(Default)]
    struct Heard(Mutex<Vec<u32>>);

    impl Keeper for Heard {
        fn keep(&self, _: Heritage, _: &Path) -> std::io::Result<()> {
            Ok(())
        }
        fn taken(&self, _: u32) {}
        fn done(&self) {}
        fn can_hold(&self) -> bool {
            true
        }
        fn hold(&self, number: u32, _: &[u8], _: BorrowedFd<'_>) -> std::io::Result<()> {
            self.0.lock().push(number);
            Ok(())
        }
        fn let_go(&self, _: u32) {}
    }

    /// If this fails, a daemon that closed a pool and opened it again (`zinject -u`) leaves the arena of before to the next one, which goes on with the
    /// mounts and without anything that programs were told is done since.
    #[test]
    fn another_arena_is_held_though_its_notes_are_the_same() {
        let (heard, holding) = (Arc::new(Heard::default()), Holding::default());
        let keeper: Arc<dyn Keeper> = heard.clone();
        holding.begin(&keeper, 0);
        let file = |name: &str| rustix::fs::memfd_create(name, rustix::fs::MemfdFlags::CLOEXEC).expect("a file in memory");
        let (before, after) = (file("before"), file("after"));
        for (arena, count) in [(&before, 1), (&before, 1), (&after, 2), (&after, 2)] {
            holding.tell(&mut holding.state.lock(), 5, Thing::Arena(77), arena.as_fd());
            assert_eq!(heard.0.lock().len(), count);
        }
    }

    fn arena() -> OwnedFd {
        std::fs::File::open("/dev/null").expect("there").into()
    }

    /// If this fails, the keeper waits for ever for an arena that is there by another number, and cuts off what is served.
    #[test]
    fn an_arena_keeps_its_number_however_long_its_pool_takes_to_open() {
        let mut state = State::default();
        state.left.insert(77, Left { number: 5, arena: arena() });
        assert!(state.take_arena(77).is_some() && state.take_arena(77).is_none());
        // Somebody looks what there is meanwhile: no pool yet.
        assert!(state.forget_over(&BTreeSet::new(), &BTreeSet::new()).is_empty());
        assert_eq!(state.number_of_arena(77, || 9), 5);
        state.told.insert(5, Told::default());
        assert!(state.forget_over(&BTreeSet::from([5]), &BTreeSet::from([5])).is_empty());
        assert_eq!(state.number_of_arena(77, || 9), 5);
        assert_eq!(state.forget_arena(77), Some(5));
        state.left.insert(77, Left { number: 6, arena: arena() });
        assert!(state.take_arena(77).is_some());
        assert_eq!(state.forget_arena(77), Some(6), "its pool could not be opened with it");
        assert_eq!(state.number_of_arena(77, || 9), 9);
    }

    /// If this fails, a daemon that dies just after it mounted something leaves that mount to nobody.
    #[test]
    fn what_came_while_somebody_looked_is_not_let_go() {
        let mut state = State { told: [1, 2].map(|number| (number, Told::default())).into(), ..State::default() };
        let before = BTreeSet::from([1, 2]);
        state.told.insert(3, Told::default());
        assert_eq!(state.forget_over(&before, &BTreeSet::from([2])), [1]);
        assert_eq!(state.told.keys().copied().collect::<Vec<_>>(), [2, 3]);
        assert!(state.forget_over(&before, &BTreeSet::from([2])).is_empty(), "once");
        // One that a daemon is going on with is told before it is among the mounts.
        state.coming.insert(2);
        let before = state.told();
        state.coming.remove(&2);
        assert_eq!((state.forget_over(&before, &BTreeSet::new()), state.told()), (vec![3], BTreeSet::from([2])));
    }
}
