//! What comes back after a daemon died: the file systems that were mounted, with their options, also those that nothing mounts by itself.
//!
//! The table of mounts does not tell all of it: the kernel detaches a dead mount with whatever name it finds invalid on the way to it, and
//! shows no options. So what is mounted is written down (`mounts.json` of the state directory), for this boot of the system. What is not there
//! of a pool that is written down had been unmounted, and stays so.

use crate::failure::believable;
use crate::mount::lost::{KINDS, Note, pool_of};
use crate::mount::mounting::Mounter;
use crate::mount::mounts::{Mounted, is_within};
use crate::mount::place::place_of;
use crate::mount::wish::Wish;
use crate::pool::opening::Opening;
use crate::pool::{OpenPool, Pools};
use exec::Mutex;
use serde::{Deserialize, Serialize};
use service::trust;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Path of the id that the system has for each time it runs.
const BOOT: &str = "/proc/sys/kernel/random/boot_id";
/// Folder in the state directory in which a tree of mounts is put together.
pub(crate) const STAGE: &str = "stage";

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Notes {
    boot: String,
    /// Names of the pools of which this is everything that is mounted.
    #[serde(default)]
    pools: BTreeSet<String>,
    mounts: Vec<Note>,
    /// Places that were dead and are to be so again when what they were in is mounted, with the name of that.
    #[serde(default)]
    away: Vec<(Option<String>, Note)>,
}

/// Notes of what is mounted, in a file, and the mounts that come back by them.
pub(crate) struct Returning {
    path: PathBuf,
    pools: Arc<Pools>,
    opening: Arc<Opening>,
    mounter: Arc<Mounter>,
    /// Contents of the file as this process wrote it; None before that.
    written: Mutex<Option<Notes>>,
}

fn boot() -> String {
    std::fs::read_to_string(BOOT).unwrap_or_default().trim().to_string()
}

impl Returning {
    /// Makes it, for the file at `path`.
    pub(crate) fn new(path: PathBuf, pools: &Arc<Pools>, opening: &Arc<Opening>, mounter: &Arc<Mounter>) -> Returning {
        let written = Mutex::default();
        Returning { path, pools: pools.clone(), opening: opening.clone(), mounter: mounter.clone(), written }
    }

    /// Takes away what a daemon that was killed had put together and not put in its place.
    pub(crate) fn clear_stage(&self) {
        let rows = fuse::MountTable::default().rows().unwrap_or_default();
        if self.mounter.stage.exists() || rows.iter().any(|row| row.place.starts_with(&self.mounter.stage)) {
            fuse::Stage::clear_left(&self.mounter.stage);
        }
    }

    /// Writes down what is mounted; what was noted of pools that are not open stays. Not before everything of the last time is mounted again.
    pub(crate) fn note_mounts(&self) {
        let is_early_or_late = || self.opening.is_running() || self.pools.is_stopping();
        if !is_early_or_late() {
            self.mounter.losses.prune(&self.pools);
        }
        let mut written = self.written.lock();
        if is_early_or_late() {
            return;
        }
        let pools = self.pools.all();
        let before = written.clone().unwrap_or_else(|| self.noted());
        let mut notes = Notes { boot: boot(), ..Notes::default() };
        notes.pools =
            pools.iter().map(|pool| pool.name()).chain(before.pools.into_iter().filter(|name| self.pools.absent.contains(name))).collect();
        notes.mounts = pools.iter().flat_map(|pool| notes_of(pool)).collect();
        notes.mounts.extend(before.mounts.into_iter().filter(|note| self.pools.absent.contains(pool_of(&note.name))));
        // What is kept dead meanwhile.
        let is_open = |note: &Note| pools.iter().any(|pool| pool.name() == pool_of(&note.name));
        notes.mounts.extend(self.mounter.losses.kept().into_iter().filter(is_open));
        let is_closed = |(_, note): &(Option<String>, Note)| self.pools.absent.contains(pool_of(&note.name));
        notes.away = self.mounter.losses.away().into_iter().filter(|(_, note)| is_open(note)).collect();
        notes.away.extend(before.away.into_iter().filter(is_closed));
        // Somebody may have removed it.
        let is_there = written.as_ref() == Some(&notes) && self.path.exists();
        if !is_there && self.write_notes(&notes) {
            *written = Some(notes);
        }
    }

    fn write_notes(&self, notes: &Notes) -> bool {
        let path = &self.path;
        let done = trust::replace(path, &serde_json::to_vec_pretty(notes).unwrap_or_default());
        done.inspect_err(|error| tracing::warn!("cannot write {}: {error}", path.display())).is_ok()
    }

    /// Forgets all mounts at the end of a daemon in order: it leaves none, and nothing is to come back.
    pub(crate) fn forget_mounts(&self) {
        let mut written = self.written.lock();
        let notes = Notes { boot: boot(), ..Notes::default() };
        if self.write_notes(&notes) {
            *written = Some(notes);
        }
    }

    /// Takes away what is dead in place of what did not come back: the daemon ends in order, and leaves nothing.
    pub(crate) fn clear_lost(&self) {
        for note in self.mounter.losses.all() {
            self.mounter.losses.forget(&note.name);
        }
    }

    /// Takes away what a daemon that was killed had mounted, of a pool that is let go before it was opened again: nothing else would.
    pub(crate) fn clear_dead(&self, pool: &str) {
        let rows = fuse::MountTable::default().rows().unwrap_or_default();
        let noted = self.noted();
        // What is mounted in another one comes first.
        for note in noted.mounts.iter().rev().filter(|note| pool_of(&note.name) == pool) {
            if rows.iter().any(|row| note.is_row(row)) && fuse::clear_dead_mount(&note.place) {
                tracing::info!("the dead mount of '{}' at {} is taken away with its pool", note.name, note.place.display());
            }
        }
    }

    fn noted(&self) -> Notes {
        let text = trust::read(&self.path).unwrap_or_else(|why| {
            tracing::warn!("{}", believable(&why));
            None
        });
        let notes: Notes = text.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default();
        if notes.boot == boot() { notes } else { Notes::default() }
    }

    /// Mounts, of pools that were open when the last daemon ended, what died with it; what should be mounted by itself, where it ended in
    /// order or with the system.
    pub(crate) fn mount_after_start(&self, pools: &[Arc<OpenPool>]) {
        let turn = self.mounter.turn();
        let owner = |name: &str| pools.iter().find(|pool| is_within(name, &pool.name()));
        let noted = self.noted();
        let is_lost = |note: &&Note| match owner(&note.name) {
            Some(pool) => !pool.mounts.is_there_at(&note.name, &note.place),
            None => self.pools.absent.contains(pool_of(&note.name)),
        };
        self.mounter.losses.note(noted.mounts.iter().filter(is_lost).cloned().collect());
        self.mounter.losses.note_away(noted.away.iter().filter(|(_, note)| is_lost(&note)).cloned().collect());
        self.mounter.losses.prune(&self.pools);
        // What a command that was not done was about to give another name is noted with the old one.
        let is_renamed = |note: &Note, pool: &OpenPool| is_within(&note.name, &pool.name()) && pool.dsl().hold(&note.name).is_err();
        let is_known =
            |pool: &&Arc<OpenPool>| noted.pools.contains(&pool.name()) && !noted.mounts.iter().any(|note| is_renamed(note, pool));
        let mut wishes: Vec<Wish> = pools.iter().filter(|pool| !is_known(pool)).flat_map(|pool| self.mounter.automatic(pool)).collect();
        wishes.retain(|wish| !noted.mounts.iter().any(|note| note.name == wish.name));
        for note in &noted.mounts {
            let Some(pool) = owner(&note.name).filter(|pool| !pool.mounts.is_there_at(&note.name, &note.place)) else { continue };
            // Whatever the properties say by now.
            let (place, options) = (Some(note.place.clone()), note.options.clone());
            wishes.push(Wish { place, by_hand: note.by_hand, options, again: true, ..Wish::by_itself(pool, &note.name) });
        }
        // What nobody noted: the daemon died while it mounted that. Another daemon may have a pool of the same name, and a dead mount of it is
        // no place of ours: only where the properties say. A second mount of one that comes anyway (a bind mount) stays as it is.
        let rows = fuse::MountTable::default().rows().unwrap_or_default();
        let is_ours = |row: &&fuse::MountRow| KINDS.contains(&row.kind.as_str()) && !row.place.starts_with(&self.mounter.stage);
        for row in rows.iter().filter(is_ours) {
            let is_known = wishes.iter().any(|wish| wish.name == row.source || wish.place.as_ref() == Some(&row.place));
            // Who asks what this daemon serves already waits for itself, beyond SIGKILL.
            let is_served = |pool: &Arc<OpenPool>| pool.mounts.is_there_at(&row.source, &row.place);
            let may_be_dead = |pool: &&Arc<OpenPool>| !is_known && !is_served(pool) && belongs_at(pool, &row.source, &row.place);
            let Some(pool) = owner(&row.source).filter(|pool| may_be_dead(pool) && fuse::is_dead(&row.place)) else { continue };
            wishes.push(Wish { place: Some(row.place.clone()), by_hand: true, again: true, ..Wish::by_itself(pool, &row.source) });
        }
        self.mounter.mount_wishes(&turn, wishes).iter().for_each(|failure| tracing::warn!("{failure}"));
        // The first of several places is the one that is meant when none is named.
        for note in noted.mounts.iter().rev() {
            owner(&note.name).into_iter().for_each(|pool| pool.mounts.choose(&note.name, &note.place));
        }
    }
}

/// True when this is where the properties of a file system say that it is mounted.
fn belongs_at(pool: &OpenPool, name: &str, place: &Path) -> bool {
    let said = pool.dsl().hold(name).ok().and_then(|handle| place_of(pool, &handle).ok());
    said.is_some_and(|(said, _)| Path::new(&said) == place)
}

fn notes_of(pool: &OpenPool) -> Vec<Note> {
    let notes = |mounted: Arc<Mounted>| {
        let note = |place: PathBuf| {
            let (place, by_hand) = mounted.said(&place);
            Note { name: mounted.name(), place, by_hand, options: mounted.wishes() }
        };
        pool.mounts.places_to_note(&mounted).into_iter().map(note).collect::<Vec<_>>()
    };
    pool.mounts.all().into_iter().flat_map(notes).collect()
}
