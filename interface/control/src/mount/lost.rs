//! What was mounted when its daemon died, and is not mounted again: its key went with the daemon, it is damaged, its pool is not there.
//!
//! Its place must not lead to the directory beneath, which is another file system's: who opens a path there again would write with success what
//! the next mount hides, and what was to be encrypted in the clear. Where the dead mount went with the one around it, which was replaced, another
//! dead one takes its place: a mount without a server (a grave). What lies in it needs none, and is noted all the same: it comes back with it.
//!
//! It follows its dataset: a new name leaves it where it is, a new place takes it there. What it lies in takes it along when that is unmounted, and
//! it is dead again when that is mounted.

use crate::mount::mounts::{Directory, is_within, prepare_directory};
use crate::mount::place::place_of;
use crate::pool::Pools;
use dsl::DslError;
use exec::{Exec, Mutex};
use fuse::{MountRow, MountTable};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Types of our mounts in the system's table: what it is, and what it was before.
pub(crate) const KINDS: [&str; 3] = ["fuse.zfs", "fuseblk.zfs", "fuse.zirconia"];

/// Note of one place of a mount.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Note {
    pub name: String,
    pub place: PathBuf,
    /// True when the place was said by hand.
    pub by_hand: bool,
    /// Options that were asked for beyond the properties.
    pub options: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Noted: nobody knows what is at its place.
    Noted,
    /// A dead mount is at its place.
    Buried,
    /// The dead mount went with what it was in, or was taken away for a change that is under way.
    Dug,
    /// A dead mount has to be at its place again.
    Due,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Grave {
    note: Note,
    state: State,
    /// Name of the file system in whose mount its place lies, or lay before it went.
    within: Option<String>,
}

/// See the module.
pub(crate) struct Losses {
    exec: Exec,
    graves: Mutex<Vec<Grave>>,
}

/// True for a path inside of a place, and not that place.
fn is_inside(path: &Path, place: &Path) -> bool {
    path != place && path.starts_with(place)
}

impl Note {
    /// True for a row of its mount. That has the name which its dataset had when it was mounted: only its pool is sure to be the same.
    pub(crate) fn is_row(&self, row: &MountRow) -> bool {
        row.place == self.place && pool_of(&row.source) == pool_of(&self.name) && KINDS.contains(&row.kind.as_str())
    }
}

fn is_in_table(rows: &[MountRow], note: &Note) -> bool {
    rows.iter().any(|row| note.is_row(row))
}

fn rows() -> Arc<[MountRow]> {
    MountTable::default().rows().unwrap_or_default()
}

/// Graves that lie in no other one of these.
fn outermost(graves: Vec<Grave>) -> Vec<Grave> {
    let places: Vec<PathBuf> = graves.iter().map(|grave| grave.note.place.clone()).collect();
    graves.into_iter().filter(|grave| !places.iter().any(|place| is_inside(&grave.note.place, place))).collect()
}

impl Losses {
    pub(crate) fn new(exec: &Exec) -> Losses {
        Losses { exec: exec.clone(), graves: Mutex::default() }
    }

    /// Notes what may not come back.
    pub(crate) fn note(&self, notes: Vec<Note>) {
        let mut graves = self.graves.lock();
        for note in notes {
            if !graves.iter().any(|grave| grave.note.name == note.name && grave.note.place == note.place) {
                graves.push(Grave { note, state: State::Noted, within: None });
            }
        }
    }

    /// Notes what went with what it was in, with the name of that.
    pub(crate) fn note_away(&self, notes: Vec<(Option<String>, Note)>) {
        let mut graves = self.graves.lock();
        for (within, note) in notes {
            if !graves.iter().any(|grave| grave.note.name == note.name && grave.note.place == note.place) {
                graves.push(Grave { note, state: State::Dug, within });
            }
        }
    }

    /// Notes of what went with what it was in, with the name of that.
    pub(crate) fn away(&self) -> Vec<(Option<String>, Note)> {
        let graves = self.graves.lock();
        graves.iter().filter(|grave| grave.state == State::Dug).map(|grave| (grave.within.clone(), grave.note.clone())).collect()
    }

    /// Notes of everything that has not come back and whose place is to be kept.
    pub(crate) fn kept(&self) -> Vec<Note> {
        let graves = self.graves.lock();
        graves.iter().filter(|grave| grave.state != State::Dug).map(|grave| grave.note.clone()).collect()
    }

    /// Follows datasets that have another name now; their places are what they were.
    pub(crate) fn renamed(&self, from: &str, to: &str) {
        let new = |name: &str| is_within(name, from).then(|| name.replacen(from, to, 1));
        for grave in self.graves.lock().iter_mut() {
            let (name, within) = (new(&grave.note.name), grave.within.as_deref().and_then(new));
            if let Some(name) = name {
                grave.note.name = name;
            }
            if within.is_some() {
                grave.within = within;
            }
        }
    }

    /// Notes of everything that has not come back.
    pub(crate) fn all(&self) -> Vec<Note> {
        self.graves.lock().iter().map(|grave| grave.note.clone()).collect()
    }

    /// Name of what is lost at this place.
    pub(crate) fn name_at(&self, place: &Path) -> Option<String> {
        self.graves.lock().iter().find(|grave| grave.note.place == place).map(|grave| grave.note.name.clone())
    }

    /// True for a place inside of that of something that is lost; not counted is what `is_filled` says of the latter's place.
    pub(crate) fn encloses(&self, place: &Path, is_filled: &dyn Fn(&Path) -> bool) -> bool {
        let graves = self.graves.lock();
        graves.iter().any(|grave| grave.state != State::Dug && is_inside(place, &grave.note.place) && !is_filled(&grave.note.place))
    }

    /// Notes of everything that needs a grave inside of a place, other than at places that are filled.
    pub(crate) fn to_bury(&self, place: &Path, is_filled: &dyn Fn(&Path) -> bool) -> Vec<Note> {
        let mut graves = self.graves.lock().clone();
        graves.retain(|grave| grave.state != State::Dug && is_inside(&grave.note.place, place) && !is_filled(&grave.note.place));
        outermost(graves).into_iter().map(|grave| grave.note).collect()
    }

    /// Puts a dead mount at a path, which is the place of this one now or later.
    pub(crate) fn bury_at(&self, note: &Note, at: &Path) {
        let (name, to, place) = (note.name.clone(), at.to_path_buf(), note.place.to_string_lossy().into_owned());
        let work = move || -> Result<(), String> {
            prepare_directory(&to, false, &place).map_err(|failure| failure.to_string())?;
            fuse::bury(&to, &name).map_err(|error| error.to_string())
        };
        match fuse::apart(&self.exec, Err("it came to no end".to_string()), work) {
            Ok(()) => tracing::warn!("'{}' is not mounted again: {} gives errors until it is", note.name, note.place.display()),
            Err(why) => tracing::warn!("'{}' is not mounted again, and {} cannot be kept free: {why}", note.name, note.place.display()),
        }
    }

    /// Notes that a file system is mounted again; a grave at another place that was its own goes.
    pub(crate) fn came_back(&self, name: &str, place: &Path, by_hand: bool) {
        let is_it = |note: &Note| note.name == name && (note.place == place || !by_hand && !note.by_hand);
        let mut left = Vec::new();
        self.graves.lock().retain(|grave| {
            let goes = is_it(&grave.note);
            if goes && grave.note.place != place {
                left.push(grave.note.clone());
            }
            !goes
        });
        left.iter().for_each(|note| self.clear(note));
    }

    /// Does [`Losses::came_back`]; what was dead in it is to be so again, with the next [`Losses::bury`].
    pub(crate) fn settled(&self, pools: &Pools, name: &str, place: &Path, by_hand: bool) {
        self.came_back(name, place, by_hand);
        self.wake(pools, &|grave| grave.within.as_deref() == Some(name));
    }

    /// Has what is away dead again with the next [`Losses::bury`], where it is meant and does not lie in what stays away: at the place that
    /// its properties say now.
    fn wake(&self, pools: &Pools, is_meant: &dyn Fn(&Grave) -> bool) {
        let mut dug = self.graves.lock().clone();
        dug.retain(|grave| grave.state == State::Dug);
        let (woken, asleep): (Vec<Grave>, Vec<Grave>) = dug.into_iter().partition(is_meant);
        for grave in woken {
            if asleep.iter().any(|around| is_inside(&grave.note.place, &around.note.place)) {
                continue;
            }
            let place = place_now(pools, &grave.note);
            let mut graves = self.graves.lock();
            match place {
                Some(place) => {
                    for other in graves.iter_mut().filter(|other| **other == grave) {
                        other.note.place.clone_from(&place);
                        other.state = State::Due;
                    }
                }
                None => graves.retain(|other| *other != grave),
            }
        }
    }

    /// Puts dead mounts at the places of what is lost, where these lie in mounts of this daemon; for an ordinary user also elsewhere, and what was
    /// dead already wherever it is.
    pub(crate) fn bury(&self, pools: &Pools) {
        self.prune(pools);
        let mut graves = outermost(self.graves.lock().clone());
        graves.retain(|grave| grave.state != State::Dug);
        if graves.is_empty() {
            return;
        }
        let (rows, mounts, is_root) = (rows(), pools.mounts(), rustix::process::geteuid().is_root());
        for Grave { note, state, .. } in graves {
            let around = mounts.iter().filter(|(_, at)| is_inside(&note.place, Path::new(at))).max_by_key(|(_, at)| at.len());
            let within = around.map(|(name, _)| name.clone());
            let may_be_ours = within.is_some() || !is_root && !pools.absent.contains(pool_of(&note.name));
            if is_in_table(&rows, &note) {
                self.set_buried(&note, within);
            } else if state == State::Due || state == State::Noted && may_be_ours {
                self.bury_at(&note, &note.place);
                self.set_buried(&note, within);
            }
        }
    }

    /// Does [`Losses::bury`] also for what is away, where what it was in is there, or is not any more at all: whatever it was taken away for is over.
    pub(crate) fn restore(&self, pools: &Pools) {
        if self.graves.lock().is_empty() {
            return;
        }
        let mounts = pools.mounts();
        let is_there = |name: &str| mounts.iter().any(|(own, _)| own == name) || is_no_more(pools, name);
        self.wake(pools, &|grave| grave.within.as_deref().is_none_or(is_there));
        self.bury(pools);
    }

    fn set_buried(&self, note: &Note, within: Option<String>) {
        for grave in self.graves.lock().iter_mut().filter(|grave| grave.note == *note) {
            grave.state = State::Buried;
            grave.within.clone_from(&within);
        }
    }

    /// Notes of what is lost and is meant.
    fn notes(&self, is_meant: impl Fn(&Grave) -> bool) -> Vec<Note> {
        self.graves.lock().iter().filter(|grave| is_meant(grave)).map(|grave| grave.note.clone()).collect()
    }

    /// Takes graves away; what lies in one goes with it.
    fn dig(&self, notes: &[Note]) {
        let mut graves = self.graves.lock();
        let buried: Vec<Grave> = graves.iter().filter(|grave| grave.state == State::Buried).cloned().collect();
        for grave in graves.iter_mut().filter(|grave| notes.contains(&grave.note)) {
            if grave.within.is_none() {
                let around = buried.iter().find(|around| is_inside(&grave.note.place, &around.note.place));
                grave.within = around.and_then(|around| around.within.clone());
            }
            grave.state = State::Dug;
        }
        drop(graves);
        notes.iter().for_each(|note| self.clear(note));
    }

    /// Takes away what is dead in the mounts of a dataset and of what is below it, so that they can be unmounted, and what is dead of these where
    /// they go, or get another place with another name; with it, the directory that is meant ([`Directory`]).
    pub(crate) fn dig_up(&self, pools: &Pools, name: &str, directory: Directory) {
        let mut mounts = pools.mounts();
        mounts.retain(|(own, _)| is_within(own, name));
        let is_in = |note: &Note| mounts.iter().any(|(_, at)| is_inside(&note.place, Path::new(at)));
        let goes = |note: &Note| match directory {
            Directory::Keep => false,
            Directory::Moves => follows(pools, note),
            Directory::Remove | Directory::RemoveMade => true,
        };
        let mut notes = self.notes(|grave| grave.state != State::Dug);
        notes.retain(|note| is_in(note) || is_within(&note.name, name) && goes(note));
        self.dig_with(pools, &notes, directory);
    }

    /// Takes away what is dead of one dataset, which gets another place.
    pub(crate) fn dig_own(&self, pools: &Pools, name: &str) {
        let notes = self.notes(|grave| grave.note.name == name && grave.state != State::Dug);
        self.dig_with(pools, &notes, Directory::Moves);
    }

    fn dig_with(&self, pools: &Pools, notes: &[Note], directory: Directory) {
        let is_over = matches!(directory, Directory::Moves | Directory::Remove) && !pools.has_suspended();
        let goes = |note: &&Note| is_over && !note.by_hand && follows(pools, note);
        let left: Vec<PathBuf> = notes.iter().filter(goes).map(|note| note.place.clone()).collect();
        self.dig(notes);
        if !left.is_empty() {
            // Fails where anything is in it: then it is not ours alone.
            fuse::apart(&self.exec, (), move || left.iter().for_each(|place| drop(std::fs::remove_dir(place))));
        }
    }

    /// Takes away what is dead inside of a place, where something is about to be mounted that would hide it: it is dead again in that.
    pub(crate) fn lift(&self, place: &Path) {
        let mut lifted = Vec::new();
        for grave in self.graves.lock().iter_mut().filter(|grave| grave.state == State::Buried && is_inside(&grave.note.place, place)) {
            grave.state = State::Due;
            lifted.push(grave.note.clone());
        }
        lifted.iter().for_each(|note| self.clear(note));
    }

    /// Forgets a dataset, what is below it, and what lies in its place: somebody unmounted it. True when there was one.
    pub(crate) fn forget(&self, name: &str) -> bool {
        !self.forget_all(&|grave| is_within(&grave.note.name, name)).is_empty()
    }

    /// Forgets a dataset that was unmounted, and what went along: all but what lay in their mounts, and is dead again in these. Returns what it was.
    pub(crate) fn forget_besides(&self, name: &str) -> Vec<Note> {
        let lay_in = |grave: &Grave| grave.state == State::Dug && grave.within.as_deref().is_some_and(|within| is_within(within, name));
        self.forget_all(&|grave| goes_along(&grave.note.name, name) && !lay_in(grave))
    }

    fn forget_all(&self, is_meant: &dyn Fn(&Grave) -> bool) -> Vec<Note> {
        let gone = self.notes(is_meant);
        self.dig(&gone);
        self.graves.lock().retain(|grave| !gone.iter().any(|note| grave.note.place.starts_with(&note.place)));
        gone
    }

    /// True when a dataset itself is lost, or something below it is dead in its place.
    pub(crate) fn has(&self, name: &str) -> bool {
        let is_it = |grave: &Grave| grave.note.name == name || is_within(&grave.note.name, name) && grave.state != State::Dug;
        self.graves.lock().iter().any(is_it)
    }

    /// Name of what is dead in a row of the table of mounts.
    pub(crate) fn name_of(&self, row: &MountRow) -> Option<String> {
        self.graves.lock().iter().find(|grave| grave.state != State::Dug && grave.note.is_row(row)).map(|grave| grave.note.name.clone())
    }

    /// Forgets what is lost at a place, and what lies in that: somebody unmounted it. True when there was one.
    pub(crate) fn forget_at(&self, place: &Path) -> bool {
        let mut graves = self.graves.lock();
        let found = graves.iter().find(|grave| grave.note.place == place).map(|grave| grave.note.clone());
        if found.is_some() {
            graves.retain(|grave| !grave.note.place.starts_with(place));
        }
        drop(graves);
        found.iter().for_each(|note| self.clear(note));
        found.is_some()
    }

    fn clear(&self, note: &Note) {
        if is_in_table(&rows(), note) {
            let place = note.place.clone();
            fuse::apart(&self.exec, false, move || fuse::clear_dead_mount(&place));
        }
    }

    /// Forgets what is mounted again, gone, or unmounted by umount(8); what went with what it was in is away.
    pub(crate) fn prune(&self, pools: &Pools) {
        let graves = self.graves.lock().clone();
        if graves.is_empty() {
            return;
        }
        let (rows, mounts) = (rows(), pools.mounts());
        let is_gone = |grave: &Grave| grave.state == State::Buried && !is_in_table(&rows, &grave.note);
        let is_mounted = |name: &str| mounts.iter().any(|(own, _)| own == name);
        let (went, unmounted): (Vec<&Grave>, Vec<&Grave>) =
            graves.iter().filter(|grave| is_gone(grave)).partition(|grave| grave.within.as_deref().is_some_and(|name| !is_mounted(name)));
        let lies_in = |grave: &Grave, list: &[&Grave]| {
            list.iter().any(|other| *other == grave || grave.state != State::Buried && is_inside(&grave.note.place, &other.note.place))
        };
        for grave in &graves {
            let is_over = has_ended(pools, grave);
            if is_over || lies_in(grave, &unmounted) {
                let is_ours = self.remove(grave);
                let name = &grave.note.name;
                let is_served = || pools.get(pool_of(name)).is_some_and(|pool| pool.mounts.is_there_at(name, &grave.note.place));
                // Somebody may be giving it another name.
                if is_over && is_ours && !is_served() {
                    self.clear(&grave.note);
                }
            }
        }
        let away: Vec<Note> = graves.iter().filter(|grave| lies_in(grave, &went)).map(|grave| grave.note.clone()).collect();
        if !away.is_empty() {
            self.dig(&away);
        }
    }

    /// Forgets a grave, if it is as it was; true then.
    fn remove(&self, grave: &Grave) -> bool {
        let mut graves = self.graves.lock();
        let before = graves.len();
        graves.retain(|other| other != grave);
        graves.len() < before
    }
}

/// True when a dataset is not there any more, or its pool is not.
fn is_no_more(pools: &Pools, name: &str) -> bool {
    pools.get(pool_of(name)).is_none_or(|pool| matches!(pool.dsl().hold(name), Err(DslError::NotFound)))
}

/// Place of something by its properties, and whether that follows from its name; None where nobody knows.
fn said_place(pools: &Pools, note: &Note) -> Option<(PathBuf, bool)> {
    let pool = pools.get(pool_of(&note.name))?;
    let handle = pool.dsl().hold(&note.name).ok()?;
    let (place, follows) = place_of(&pool, &handle).ok()?;
    Some((PathBuf::from(place), follows))
}

/// True when the place of something follows from its name.
fn follows(pools: &Pools, note: &Note) -> bool {
    said_place(pools, note).is_some_and(|(_, follows)| follows)
}

/// Place that is to be kept of something from now on; None when its properties have none for it any more.
fn place_now(pools: &Pools, note: &Note) -> Option<PathBuf> {
    match said_place(pools, note).filter(|_| !note.by_hand) {
        Some((place, _)) => Some(place).filter(|place| place.has_root()),
        None => Some(note.place.clone()),
    }
}

/// True when a place is nobody's to be kept any more.
fn has_ended(pools: &Pools, grave: &Grave) -> bool {
    let Note { name, place, .. } = &grave.note;
    let Some(pool) = pools.get(pool_of(name)) else { return !pools.absent.contains(pool_of(name)) };
    match pool.dsl().hold(name) {
        Ok(_) => pool.mounts.is_there_at(name, place),
        // Somebody may be giving it another name, which is noted before the bar falls.
        Err(error) => matches!(error, DslError::NotFound) && !pool.mounts.is_taken(name),
    }
}

/// True for what goes along when `root` is unmounted: itself and what is below it. A snapshot of one of them is a mount of whoever mounted it.
pub(crate) fn goes_along(name: &str, root: &str) -> bool {
    is_within(name, root) && (name == root || !name.contains('@'))
}

/// Name of the pool of a dataset.
pub(crate) fn pool_of(name: &str) -> &str {
    name.split(['/', '@']).next().unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn losses(notes: &[(&str, &str)]) -> Losses {
        let exec: Exec = Arc::new(exec::Pool::new(1));
        let losses = Losses::new(&exec);
        let note = |(name, place): &(&str, &str)| Note {
            name: (*name).to_string(),
            place: PathBuf::from("/no/such/place").join(place),
            by_hand: false,
            options: Vec::new(),
        };
        losses.note(notes.iter().map(note).collect());
        losses
    }

    /// If this fails, `zfs unmount` of a file system takes a snapshot of it away from whoever looks at it elsewhere.
    #[test]
    fn snapshots_are_mounts_of_their_own() {
        let along = ["p/a", "p/a/b", "p/a@s", "p/a/b@s", "p/ab", "p"].map(|name| goes_along(name, "p/a"));
        assert_eq!(along, [true, true, false, false, false, false]);
        assert!(goes_along("p/a@s", "p/a@s"), "it is what is meant");
        let losses = losses(&[("p/a", "a"), ("p/a/b", "a/b"), ("p/a@s", "seen")]);
        let mut gone: Vec<String> = losses.forget_besides("p/a").into_iter().map(|note| note.name).collect();
        gone.sort();
        assert_eq!((gone, losses.has("p/a@s")), (vec!["p/a".to_string(), "p/a/b".to_string()], true));
    }

    /// If this fails, what lies in a file system that is locked is mounted where nobody sees it, or that one leads to the one around it.
    #[test]
    fn one_grave_keeps_everything_in_it() {
        let (root, losses) = (Path::new("/no/such/place"), losses(&[("p", "p"), ("p/c", "p/c"), ("p/c/d", "p/c/d"), ("p/e", "p/e")]));
        let is_filled = |place: &Path| place == root.join("p") || place == root.join("p/e");
        let names: Vec<String> = losses.to_bury(&root.join("p"), &is_filled).into_iter().map(|note| note.name).collect();
        assert_eq!(names, ["p/c"]);
        let waits = ["p", "p/c", "p/c/d", "p/e", "p/e/f"].map(|place| losses.encloses(&root.join(place), &is_filled));
        assert_eq!(waits, [false, false, true, false, false]);
    }

    /// If this fails, a rename has the place of a locked file system lead to the one around it, where what was meant for it is stored in the clear.
    #[test]
    fn what_is_lost_follows_its_names_and_is_away_with_what_it_lay_in() {
        let losses = losses(&[("p/par/enc", "par/enc"), ("p/par/enc/d", "par/enc/d"), ("p/part", "part")]);
        let pools = Pools::default();
        let names = |losses: &Losses| losses.kept().into_iter().map(|note| note.name).collect::<Vec<_>>();
        losses.set_buried(&losses.all()[0], Some("p/par".to_string()));
        losses.renamed("p/par", "p/new");
        assert_eq!(names(&losses), ["p/new/enc", "p/new/enc/d", "p/part"]);
        let row = |source: &str| MountRow {
            id: 1,
            parent: 0,
            device: (0, 1),
            is_whole: true,
            place: PathBuf::from("/no/such/place/par/enc"),
            kind: KINDS[0].to_string(),
            source: source.to_string(),
        };
        assert_eq!(losses.name_of(&row("p/par/enc")), Some("p/new/enc".to_string()), "the table has the name of before");
        assert_eq!(losses.name_of(&row("other/enc")), None);
        losses.dig(&losses.all()[..2]);
        assert_eq!(names(&losses), ["p/part"]);
        assert!(losses.away().iter().all(|(within, _)| within.as_deref() == Some("p/new")));
        losses.wake(&pools, &|grave| grave.within.as_deref() == Some("p/other"));
        assert_eq!(names(&losses), ["p/part"], "what it lay in is not there");
        losses.wake(&pools, &|grave| grave.within.as_deref() == Some("p/new"));
        assert_eq!(names(&losses), ["p/new/enc", "p/new/enc/d", "p/part"]);
    }

    /// If this fails, what was unmounted is kept dead for ever, or what was in it comes back over the directories of others.
    #[test]
    fn what_is_unmounted_or_comes_back_is_forgotten() {
        let (root, losses) = (Path::new("/no/such/place"), losses(&[("p", "p"), ("p/c", "p/c"), ("q/d", "p/c/d"), ("p/e", "p/e")]));
        losses.came_back("p", &root.join("p"), false);
        assert!(losses.forget("p/c") && !losses.forget("p/c"));
        assert_eq!(losses.all().into_iter().map(|note| note.name).collect::<Vec<_>>(), ["p/e"]);
        assert_eq!(losses.name_at(&root.join("p/e")), Some("p/e".to_string()));
    }
}
