//! Volumes of a pool that somebody has open: of each dataset one, whatever door it is used through.
//!
//! Whoever has a [`Loan`] uses the volume until it is taken away by force; it is closed with the last loan. A standing loan is for who is ready to
//! serve a volume over the network: it is a use only while somebody is served, and else gives way. The list is locked while a volume is opened,
//! which reads.

use crate::failure::because;
use crate::mount::mounts::{Mounts, is_within};
use crate::report::direct_rows;
use control_api::{ErrorKind, Failure};
use dsl::{DatasetHandle, DslError};
use exec::{Exec, Mutex};
use std::collections::BTreeMap;
use std::sync::Arc;
use zpl::direct::{Direct, Tunables};
use zvol::{Settings, Volume};

/// Nanoseconds for which a file that was closed may still count as open.
const CLOSE_NS: u64 = 1_000_000_000;
/// Nanoseconds between two looks.
const AGAIN_NS: u64 = 5_000_000;

/// Place of an open volume; empty once it was taken away.
#[derive(Default)]
struct Place(Mutex<Option<Arc<Volume>>>);

/// Answer to the question whether somebody is served through a standing loan now.
pub(crate) type IsServed = Arc<dyn Fn() -> bool + Send + Sync>;

struct Lent {
    place: Arc<Place>,
    /// Number of loans, without the standing one.
    users: usize,
    /// Standing loan, if there is one.
    standing: Option<IsServed>,
}

/// Open volumes of a pool, by the objects of their datasets.
#[derive(Default)]
pub(crate) struct Shelf {
    lent: Mutex<BTreeMap<u64, Lent>>,
    /// Names at and below which nobody stands ready to serve a volume.
    barred: Mutex<Vec<String>>,
}

/// Bar that keeps volumes at and below a name from being lent as standing loans while it lives.
pub(crate) struct Away {
    shelf: Arc<Shelf>,
    name: String,
}

impl Drop for Away {
    fn drop(&mut self) {
        let mut barred = self.shelf.barred.lock();
        if let Some(at) = barred.iter().position(|name| *name == self.name) {
            barred.swap_remove(at);
        }
    }
}

/// Right to use a volume; the last one closes it when it is dropped.
pub(crate) struct Loan {
    shelf: Arc<Shelf>,
    object: u64,
    place: Arc<Place>,
    is_standing: bool,
}

impl Loan {
    /// Loan of a volume that no shelf has.
    #[cfg(feature = "testing")]
    pub(crate) fn of(volume: Arc<Volume>) -> Loan {
        Loan { shelf: Arc::default(), object: 0, place: Arc::new(Place(Mutex::new(Some(volume)))), is_standing: false }
    }

    /// Volume that was lent; None once it was taken away.
    pub(crate) fn volume(&self) -> Option<Arc<Volume>> {
        self.place.0.lock().clone()
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        let mut lent = self.shelf.lent.lock();
        let Some(known) = lent.get_mut(&self.object).filter(|known| Arc::ptr_eq(&known.place, &self.place)) else { return };
        match self.is_standing {
            true => known.standing = None,
            false => known.users -= 1,
        }
        let closed = if known.users == 0 && known.standing.is_none() { lent.remove(&self.object) } else { None };
        drop(lent);
        drop(closed);
    }
}

impl Shelf {
    /// Lends a volume, which is opened if nobody has it; its direct I/O follows `tunables` and is counted among the pool's `mounts`.
    ///
    /// # Errors
    /// Those of opening it.
    pub(crate) fn lend(self: &Arc<Self>, dataset: DatasetHandle, tunables: &Arc<Tunables>, mounts: &Mounts) -> Result<Loan, DslError> {
        self.lend_as(dataset, tunables, mounts, None)
    }

    /// Does [`Shelf::lend`] for who serves the volume to others, one at a time: it is in use while `is_served` says so.
    ///
    /// # Errors
    /// [`DslError::Busy`] while it is about to go, those of opening it.
    pub(crate) fn lend_standing(
        self: &Arc<Self>,
        dataset: DatasetHandle,
        tunables: &Arc<Tunables>,
        mounts: &Mounts,
        is_served: IsServed,
    ) -> Result<Loan, DslError> {
        self.lend_as(dataset, tunables, mounts, Some(is_served))
    }

    fn lend_as(
        self: &Arc<Self>,
        dataset: DatasetHandle,
        tunables: &Arc<Tunables>,
        mounts: &Mounts,
        standing: Option<IsServed>,
    ) -> Result<Loan, DslError> {
        let (object, is_standing) = (dataset.object(), standing.is_some());
        let mut lent = self.lent.lock();
        // Whoever bars the name takes away afterwards what is lent here.
        if is_standing && self.barred.lock().iter().any(|name| is_within(&dataset.name(), name)) {
            return Err(DslError::Busy);
        }
        if let Some(known) = lent.get_mut(&object) {
            match standing {
                Some(is_served) => known.standing = Some(is_served),
                None => known.users += 1,
            }
            return Ok(Loan { shelf: self.clone(), object, place: known.place.clone(), is_standing });
        }
        let settings = Settings::of(&dataset)?;
        let direct = Direct { tunables: tunables.clone(), stats: mounts.direct_of(&dataset.name()) };
        let place = Arc::new(Place(Mutex::new(Some(Volume::open(dataset, settings, direct)?))));
        lent.insert(object, Lent { place: place.clone(), users: usize::from(!is_standing), standing });
        Ok(Loan { shelf: self.clone(), object, place, is_standing })
    }

    /// Volumes that are open, at and below a name.
    fn open(&self, name: &str) -> Vec<Arc<Volume>> {
        let lent = self.lent.lock();
        let volumes = lent.values().filter_map(|lent| lent.place.0.lock().clone());
        volumes.filter(|volume| is_within(&volume.dataset().name(), name)).collect()
    }

    /// Name of a volume at or below a name that somebody uses at this moment.
    fn used(&self, name: &str) -> Option<String> {
        let open: Vec<(Arc<Volume>, usize, Option<IsServed>)> = {
            let lent = self.lent.lock();
            lent.values().filter_map(|lent| Some((lent.place.0.lock().clone()?, lent.users, lent.standing.clone()))).collect()
        };
        // Not while the list is locked: who is asked may let go of what it has.
        let is_used = |users: usize, standing: Option<&IsServed>| users > 0 || standing.is_some_and(|is_served| is_served());
        let used = open.iter().filter(|(_, users, standing)| is_used(*users, standing.as_ref()));
        used.map(|(volume, ..)| volume.dataset().name()).find(|found| is_within(found, name))
    }

    /// Name of a volume, or of a snapshot of one, that is in use at or below this name; the kernel says a little later that a file was closed.
    pub(crate) fn in_use(&self, exec: &Exec, name: &str) -> Option<String> {
        let until = exec.now_ns().saturating_add(CLOSE_NS);
        loop {
            let found = self.used(name);
            if found.is_none() || exec.now_ns() >= until {
                return found;
            }
            exec.sleep_ns(AGAIN_NS);
        }
    }

    /// Makes sure that nobody uses a volume at or below this name, for a change that `what` says cannot be; by force whoever does is cut off: his
    /// requests fail from now on. Who only stands ready to serve one gives way until the change is done, and what is returned is dropped.
    ///
    /// # Errors
    /// "dataset is busy" while somebody does.
    pub(crate) fn leave(self: &Arc<Self>, exec: &Exec, name: &str, what: String, force: bool) -> Result<Away, Failure> {
        let away = Away { shelf: self.clone(), name: name.to_string() };
        self.barred.lock().push(name.to_string());
        if force {
            self.take_away(name, true);
            return Ok(away);
        }
        match self.in_use(exec, name) {
            None => {
                self.take_away(name, false);
                Ok(away)
            }
            Some(volume) => Err(because(ErrorKind::Busy, what, "dataset is busy").advise(format!(
                "close what has the volume '{volume}' open (losetup, lsof, fuser, 'zirconia target sessions'), or use '-f' to cut it off"
            ))),
        }
    }

    /// Takes volumes at and below a name away from who stands ready to serve them, and by force from whoever has them.
    fn take_away(&self, name: &str, force: bool) {
        let mut taken = Vec::new();
        self.lent.lock().retain(|_, lent| {
            let may_go = force || lent.users == 0;
            let mut place = lent.place.0.lock();
            let goes = may_go && place.as_ref().is_none_or(|volume| is_within(&volume.dataset().name(), name));
            if goes {
                taken.push(place.take());
            }
            !goes
        });
        drop(taken);
    }

    /// Takes every volume away.
    pub(crate) fn close(&self) {
        let lent = std::mem::take(&mut *self.lent.lock());
        for known in lent.into_values() {
            let volume = known.place.0.lock().take();
            drop(volume);
        }
    }

    /// Gives open volumes their properties as they are now.
    pub(crate) fn apply_settings(&self, pool: &str) {
        for volume in self.open(pool) {
            if let Ok(settings) = Settings::of(volume.dataset()) {
                volume.set_settings(settings);
            }
        }
    }

    /// Counts of what users did to each open volume of a pool.
    pub(crate) fn counts(&self, pool: &str, mounts: &Mounts, zio: &zio::Zio) -> Vec<metrics::DatasetView> {
        let view = |volume: Arc<Volume>| {
            let (name, [writes, nwritten, reads, nread]) = (volume.dataset().name(), volume.counts());
            metrics::DatasetView {
                objset: volume.objset().id().0,
                counts: [writes, nwritten, reads, nread, 0, 0],
                log: volume.log_counts(),
                direct: direct_rows::rows(
                    &mounts.direct_of(&name).snapshot(),
                    zio.changed_buffers(Some(volume.objset().id()), None),
                    volume.objset().shared_direct_reads(),
                ),
                name,
            }
        };
        self.open(pool).into_iter().filter(|volume| !volume.dataset().is_snapshot()).map(view).collect()
    }
}
