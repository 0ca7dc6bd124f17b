//! What was mounted when its daemon died, and is not mounted again: its key went with the daemon, it is damaged, its pool is not there.
//!
//! Its place must not lead to the directory beneath, which is another file system's: who opens a path there again would write with success what
//! the next mount hides, and what was to be encrypted in the clear. Where the dead mount went with the one around it, which was replaced, another
//! dead one takes its place: a mount without a server (a grave). What lies in it needs none, and is noted all the same: it comes back with it.

use crate::mount::mounts::{is_within, prepare_directory};
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
    /// The dead mount was taken away, since what it is in is unmounted.
    Dug,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Grave {
    note: Note,
    state: State,
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

fn is_in_table(rows: &[MountRow], note: &Note) -> bool {
    rows.iter().any(|row| row.place == note.place && row.source == note.name && KINDS.contains(&row.kind.as_str()))
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
                graves.push(Grave { note, state: State::Noted });
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
        graves.retain(|grave| is_inside(&grave.note.place, place) && !is_filled(&grave.note.place));
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

    /// Does [`Losses::came_back`], and [`Losses::due`] for its place, which is a new mount.
    pub(crate) fn settled(&self, name: &str, place: &Path, by_hand: bool) {
        self.came_back(name, place, by_hand);
        self.due(place);
    }

    /// Has the graves come back that were taken away inside of a place, with the next [`Losses::bury`].
    pub(crate) fn due(&self, place: &Path) {
        let mut graves = self.graves.lock();
        for grave in graves.iter_mut().filter(|grave| grave.state == State::Dug && is_inside(&grave.note.place, place)) {
            grave.state = State::Noted;
        }
    }

    /// Puts dead mounts at the places of what is lost, where these lie in mounts of this daemon; for an ordinary user also elsewhere.
    pub(crate) fn bury(&self, pools: &Pools) {
        self.prune(pools);
        let mut graves = self.graves.lock().clone();
        graves.retain(|grave| grave.state != State::Dug);
        if graves.is_empty() {
            return;
        }
        let (rows, mounts, is_root) = (rows(), pools.mounts(), rustix::process::geteuid().is_root());
        for Grave { note, state } in outermost(graves) {
            let is_ours = || mounts.iter().any(|(_, at)| is_inside(&note.place, Path::new(at)));
            if is_in_table(&rows, &note) {
                self.set(&note, State::Buried);
            } else if state == State::Noted && (is_ours() || !is_root && !pools.absent.contains(pool_of(&note.name))) {
                self.bury_at(&note, &note.place);
                self.set(&note, State::Buried);
            }
        }
    }

    /// Does [`Losses::bury`] also for what was taken away: what it was taken away for did not come to be.
    pub(crate) fn restore(&self, pools: &Pools) {
        self.due(Path::new("/"));
        self.bury(pools);
    }

    fn set(&self, note: &Note, state: State) {
        self.graves.lock().iter_mut().filter(|grave| grave.note == *note).for_each(|grave| grave.state = state);
    }

    /// Takes away the graves of a dataset and what is below it, so that what they are in can be unmounted.
    pub(crate) fn dig_up(&self, name: &str) {
        let mut graves = self.graves.lock().clone();
        graves.retain(|grave| is_within(&grave.note.name, name));
        for grave in &graves {
            self.set(&grave.note, State::Dug);
        }
        graves.iter().for_each(|grave| self.clear(&grave.note));
    }

    /// Forgets a dataset, what is below it, and what lies in its place: somebody unmounted it. True when there was one.
    pub(crate) fn forget(&self, name: &str) -> bool {
        self.dig_up(name);
        let mut graves = self.graves.lock();
        let gone: Vec<PathBuf> =
            graves.iter().filter(|grave| is_within(&grave.note.name, name)).map(|grave| grave.note.place.clone()).collect();
        graves.retain(|grave| !gone.iter().any(|place| grave.note.place.starts_with(place)));
        !gone.is_empty()
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

    /// Forgets what is mounted again, gone, unmounted by umount(8), or has another place now.
    pub(crate) fn prune(&self, pools: &Pools) {
        let graves = self.graves.lock().clone();
        if graves.is_empty() {
            return;
        }
        let rows = rows();
        let is_gone = |grave: &Grave| grave.state == State::Buried && !is_in_table(&rows, &grave.note);
        let unmounted: Vec<&Path> = graves.iter().filter(|grave| is_gone(grave)).map(|grave| &*grave.note.place).collect();
        let is_uncovered = |grave: &Grave| {
            grave.state != State::Buried && unmounted.iter().any(|place| is_inside(&grave.note.place, place)) || is_gone(grave)
        };
        for grave in &graves {
            let is_over = has_ended(pools, grave);
            if is_over || is_uncovered(grave) {
                self.graves.lock().retain(|other| other != grave);
            }
            let name = &grave.note.name;
            if is_over && !pools.get(pool_of(name)).is_some_and(|pool| pool.mounts.is_there_at(name, &grave.note.place)) {
                self.clear(&grave.note);
            }
        }
    }
}

/// True when a place is nobody's to be kept any more.
fn has_ended(pools: &Pools, grave: &Grave) -> bool {
    let Note { name, place, by_hand, .. } = &grave.note;
    let Some(pool) = pools.get(pool_of(name)) else { return !pools.absent.contains(pool_of(name)) };
    let handle = match pool.dsl().hold(name) {
        Ok(handle) => handle,
        Err(error) => return matches!(error, DslError::NotFound),
    };
    let is_elsewhere = || place_of(&pool, &handle).is_ok_and(|(said, _)| Path::new(&said) != place);
    pool.mounts.is_there_at(name, place) || grave.state == State::Dug && !by_hand && is_elsewhere()
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
