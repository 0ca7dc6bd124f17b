//! Where a mounted file system is: at the place that its properties say, at others at which it was mounted by hand, and wherever else somebody
//! shows it (bind mounts).

use crate::mount::mounts::{MountPlan, Mounted, Mounts, Prepared};
use fuse::MountRow;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Path below another one; no slash comes at its end.
fn below(above: &Path, rest: &Path) -> PathBuf {
    above.components().chain(rest.components()).collect()
}

/// Path with its links resolved, as far as it is there.
pub(crate) fn resolved(path: &Path) -> PathBuf {
    let found = path.ancestors().find_map(|above| Some((above, std::fs::canonicalize(above).ok()?)));
    found.map_or_else(|| path.to_path_buf(), |(above, real)| below(&real, path.strip_prefix(above).unwrap_or(Path::new(""))))
}

/// Link on the way to a place that is not this user's: whoever owns a folder on the way would say where the mount goes (as of links in /tmp, Linux:
/// `fs.protected_symlinks`).
pub(crate) fn foreign_link(place: &Path, uid: u32) -> Option<&Path> {
    let is_foreign = |facts: Metadata| facts.is_symlink() && facts.uid() != uid;
    place.ancestors().find(|above| std::fs::symlink_metadata(above).is_ok_and(is_foreign))
}

/// Place of a mount, or why it has none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Mounted at this place.
    Mounted(PathBuf),
    /// Mounted nowhere that this process sees, but files of it are open: somebody detached it, or it is in another mount namespace.
    Detached,
    /// Last requests are being served.
    Leaving,
    /// Mount has ended.
    Gone,
}

/// Place at which a file system was mounted because its properties said so.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Own {
    /// Path in the table of mounts.
    pub place: PathBuf,
    /// Path as the properties say it; links may be on it.
    said: PathBuf,
    /// True when it follows from the dataset's name, so that the directory may go with it.
    pub follows: bool,
    /// True when the directory was made for the mount.
    pub made: bool,
}

/// Places at which a file system was asked to be mounted; it need not be there any more.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Asked {
    pub own: Option<Own>,
    by_hand: BTreeSet<PathBuf>,
}

impl Asked {
    /// Adds the place of a plan.
    pub(crate) fn add(&mut self, plan: &MountPlan, prepared: Prepared) {
        let Prepared { made, real } = prepared;
        if plan.by_hand {
            self.own.take_if(|own| own.place == real);
            self.by_hand.insert(real);
        } else {
            self.by_hand.remove(&real);
            self.own = Some(Own { place: real, said: PathBuf::from(&plan.mountpoint), follows: plan.made_for_it, made });
        }
    }

    /// True for a place at which it was asked to be mounted.
    pub(crate) fn has(&self, place: &Path) -> bool {
        self.by_hand.contains(place) || self.own.as_ref().is_some_and(|own| own.place == place)
    }

    /// Path in the table of mounts of a place that was said.
    fn real<'a>(&'a self, said: &'a Path) -> &'a Path {
        self.own.as_ref().filter(|own| own.said == said).map_or(said, |own| &own.place)
    }

    /// Number that is the lower, the likelier this row is the one that is meant.
    fn rank(&self, row: &MountRow) -> usize {
        let is_own = self.own.as_ref().is_some_and(|own| own.place == row.place);
        [is_own, self.by_hand.contains(&row.place), row.is_whole].iter().position(|is_it| *is_it).unwrap_or(usize::MAX)
    }
}

impl Mounted {
    /// True when it is mounted at this place, alone or with others.
    pub(crate) fn is_at(&self, rows: &[MountRow], place: &Path) -> bool {
        let asked = self.asked.lock();
        let real = asked.real(place);
        self.rows(rows).any(|row| row.place == real)
    }

    /// Rows of all its mounts in the table of mounts.
    fn rows<'a>(&self, rows: &'a [MountRow]) -> impl Iterator<Item = &'a MountRow> {
        let number = self.session.number();
        rows.iter().filter(move |row| row.device == number)
    }

    /// Row of the mount in the table of mounts.
    pub(crate) fn row<'a>(&self, rows: &'a [MountRow]) -> Option<&'a MountRow> {
        let place = self.session.mountpoint();
        rows.iter().rfind(|row| row.device == self.session.number() && row.place == place)
    }

    /// True when its place was said by hand, not by the properties.
    pub(crate) fn is_by_hand(&self) -> bool {
        let place = self.session.mountpoint();
        self.asked.lock().by_hand.contains(&place)
    }

    fn move_to(&self, place: &Path) {
        let real = self.asked.lock().real(place).to_path_buf();
        self.session.moved(&real);
    }

    /// Path by which this place was asked for, and whether that was by hand.
    pub(crate) fn said(&self, place: &Path) -> (PathBuf, bool) {
        let asked = self.asked.lock();
        let own = asked.own.as_ref().filter(|own| own.place == place);
        (own.map_or(place, |own| &own.said).to_path_buf(), asked.by_hand.contains(place))
    }
}

impl Mounts {
    fn rows(&self) -> Option<Arc<[MountRow]>> {
        self.table.lock().rows()
    }

    /// Place of a mount, looked up now.
    pub(crate) fn standing(&self, mounted: &Mounted) -> Standing {
        if mounted.session.has_ended() {
            return Standing::Gone;
        }
        // Rows are its own when it is alive after they were read: else somebody else may have its number in them.
        let rows = self.rows();
        if mounted.leaving.load(Ordering::Acquire) || !mounted.session.is_alive() {
            return Standing::Leaving;
        }
        let recorded = mounted.session.mountpoint();
        let Some(rows) = rows else { return Standing::Mounted(recorded) };
        if mounted.rows(&rows).any(|row| row.place == recorded) {
            return Standing::Mounted(recorded);
        }
        let asked = mounted.asked.lock();
        match mounted.rows(&rows).min_by_key(|row| asked.rank(row)) {
            Some(row) => {
                mounted.session.moved(&row.place);
                Standing::Mounted(row.place.clone())
            }
            None => Standing::Detached,
        }
    }

    /// True when `mounted` is mounted at this place, alone or with others.
    pub(crate) fn is_at(&self, mounted: &Mounted, place: &Path) -> bool {
        self.rows().is_some_and(|rows| mounted.is_at(&rows, place))
    }

    /// True when it goes on anywhere that this process sees, whether or not a path leads to it. What has its number and is there when its
    /// connection is over may be somebody else's.
    pub(crate) fn is_anywhere(&self, mounted: &Mounted) -> bool {
        self.rows().is_some_and(|rows| mounted.rows(&rows).next().is_some()) && mounted.session.is_alive()
    }

    /// Places at which it is mounted, wherever a path leads to it.
    pub(crate) fn places(&self, mounted: &Mounted) -> Vec<PathBuf> {
        let Some(rows) = self.rows() else { return vec![mounted.session.mountpoint()] };
        mounted.rows(&rows).filter(|row| fuse::covers(&rows, row).is_empty()).map(|row| row.place.clone()).collect()
    }

    /// Places at which a file system, or also those below it, are shown besides the one that they leave first: bind mounts, and others that
    /// somebody asked for.
    pub(crate) fn shown_besides(&self, name: &str, and_below: bool) -> Vec<PathBuf> {
        let besides = |mounted: &Arc<Mounted>| match (self.standing(mounted), self.rows()) {
            (Standing::Mounted(first), Some(rows)) => {
                mounted.rows(&rows).filter(|row| row.place != first).map(|row| row.place.clone()).collect::<Vec<PathBuf>>()
            }
            _ => Vec::new(),
        };
        self.below(name).iter().filter(|mounted| and_below || mounted.name() == name).flat_map(besides).collect()
    }

    /// Place at which all of it is to be seen.
    pub(crate) fn shown(&self, mounted: &Mounted) -> Option<PathBuf> {
        let rows = self.rows()?;
        mounted.rows(&rows).find(|row| row.is_whole && fuse::covers(&rows, row).is_empty()).map(|row| row.place.clone())
    }

    /// Place at which a directory or file of it is shown, and not all of it.
    pub(crate) fn part(&self, mounted: &Mounted) -> Option<PathBuf> {
        let rows = self.rows()?;
        mounted.rows(&rows).find(|row| !row.is_whole).map(|row| row.place.clone())
    }

    /// Places that are its again after the death of the daemon: the one that is meant when none is named, and all others at which it was asked
    /// to be mounted.
    pub(crate) fn places_to_note(&self, mounted: &Mounted) -> Vec<PathBuf> {
        let Standing::Mounted(first) = self.standing(mounted) else { return Vec::new() };
        let Some(rows) = self.rows() else { return vec![first] };
        let asked = mounted.asked.lock();
        let others = asked.own.iter().map(|own| &own.place).chain(&asked.by_hand).filter(|place| **place != first);
        let is_whole_at = |place: &&PathBuf| mounted.rows(&rows).any(|row| row.is_whole && row.place == **place);
        Some(&first).into_iter().chain(others).filter(is_whole_at).cloned().collect()
    }

    /// True when this is one of several places of a mount, and not the one that is meant when none is named.
    pub(crate) fn is_beside(&self, mounted: &Mounted, place: &Path) -> bool {
        matches!(self.standing(mounted), Standing::Mounted(first) if first != place) && self.is_at(mounted, place)
    }

    /// True when this dataset is mounted at this place, alone or with others.
    pub(crate) fn is_there_at(&self, name: &str, place: &Path) -> bool {
        self.there(name).is_some_and(|mounted| self.is_at(&mounted, place))
    }

    /// Makes this one of several places of a mount the one that is meant.
    pub(crate) fn choose(&self, name: &str, place: &Path) {
        if let Some(mounted) = self.there(name).filter(|mounted| self.is_at(mounted, place)) {
            mounted.move_to(place);
        }
    }

    /// Makes the place that properties said the one that is meant, where it is mounted there.
    pub(crate) fn choose_own(&self, name: &str) {
        let own = self.there(name).and_then(|mounted| mounted.asked.lock().own.clone());
        own.iter().for_each(|own| self.choose(name, &own.place));
    }

    /// Notes that a mount that was put together elsewhere is in its place now.
    pub(crate) fn moved(&self, name: &str, place: &Path) {
        if let Some(mounted) = self.there(name) {
            mounted.move_to(place);
            self.choose_own(name);
        }
    }

    /// True when the path of a mount leads to something else, which was mounted over it.
    pub(crate) fn is_covered(&self, mounted: &Mounted) -> bool {
        let Some(rows) = self.rows() else { return false };
        mounted.row(&rows).is_some_and(|row| !fuse::covers(&rows, row).is_empty())
    }

    /// Mountpoint of a dataset.
    pub fn mountpoint(&self, name: &str) -> Option<String> {
        self.there(name).and_then(|mounted| self.place_of(&mounted))
    }

    /// True when a dataset is mounted, also when it was cut off and its mount is dead until its last request is answered.
    pub(crate) fn is_in_table(&self, name: &str) -> bool {
        let Some(mounted) = self.there(name) else { return false };
        let is_there = || self.rows().is_some_and(|rows| mounted.rows(&rows).next().is_some());
        self.place_of(&mounted).is_some() || mounted.leaving.load(Ordering::Acquire) && is_there()
    }

    /// Name and place of every mount, also of those that were cut off and are dead in their places until their last requests are answered.
    pub(crate) fn in_table(&self) -> Vec<(String, String)> {
        let dead = |mounted: &Mounted| {
            let rows = self.rows().filter(|_| mounted.leaving.load(Ordering::Acquire))?;
            let place = mounted.rows(&rows).next()?.place.to_string_lossy().into_owned();
            Some(place)
        };
        let shown = |mounted: Arc<Mounted>| Some((mounted.name(), self.place_of(&mounted).or_else(|| dead(&mounted))?));
        self.all().into_iter().filter_map(shown).collect()
    }

    pub(crate) fn place_of(&self, mounted: &Mounted) -> Option<String> {
        match self.standing(mounted) {
            Standing::Mounted(place) => Some(place.to_string_lossy().into_owned()),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, a user who may make file systems in one that is the user's own has the next daemon mount one over any folder (`/etc`).
    #[test]
    fn links_of_others_on_the_way_are_found() {
        let folder = std::env::temp_dir().join(format!("z-links-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let link = folder.join("link");
        std::os::unix::fs::symlink("/", &link).expect("a link");
        let own = std::fs::symlink_metadata(&link).expect("facts").uid();
        for place in [link.clone(), link.join("etc"), link.join("no/such/place")] {
            assert_eq!(foreign_link(&place, own + 1), Some(link.as_path()));
        }
        assert_eq!(foreign_link(&folder, own + 1).filter(|found| found.starts_with(&folder)), None);
        assert_ne!(foreign_link(&link.join("etc"), own), Some(link.as_path()));
        std::fs::remove_dir_all(folder).expect("removed");
    }
}
