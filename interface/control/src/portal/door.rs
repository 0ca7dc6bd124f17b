//! The listener, and the targets behind it: one for each volume that the network is to see, as long as it is there.
//!
//! ```text
//! a request changed volumes, or a pool came or went ──► look: what is wanted and not shown is shown, what is shown and not wanted ends
//! ```
//! One thread looks; nobody waits long for it. A target has its volume as a standing loan: the volume is in use while an initiator has a session, and
//! else gives way to who destroys, renames or exports it. What a suspended pool shows stays, as nobody can look there.

use super::names;
use super::reservations;
use super::rights::Rights;
use super::running::{DRAIN, Running};
use super::unit::VolumeUnit;
use crate::pool::Pools;
use crate::pool::opening::Opening;
use crate::volume::IsServed;
use crate::volume::there::{self, SHARE_ISCSI};
use control_api::StateDir;
use exec::{Condvar, Exec, Mutex};
use iscsi::{Disk, Options, Target, Targets};
use ondisk::Guid;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use zpl::direct::Tunables;

/// File in the state directory with the rights.
const RIGHTS: &str = "iscsi.json";
/// Pause between looks whether a pool came or went.
const LOOK: Duration = Duration::from_secs(2);
/// Pause between looks while the pools of the last time are being opened: initiators wait for them.
const LOOK_AT_START: Duration = Duration::from_millis(50);
/// Time that a request waits for what it changed to be seen.
const FOLLOW: Duration = Duration::from_secs(2);
/// Time for sessions that are told to end; requests of theirs that wait for a suspended pool end when that does.
pub(super) const SESSIONS_END: Duration = Duration::from_secs(5);

/// Listener that serves.
pub(super) struct Open {
    pub(super) handle: Handle,
    pub(super) address: SocketAddr,
    pub(super) targets: Arc<Targets>,
}

/// Volume that is to be seen.
struct Wanted {
    volume: String,
    pool: String,
    /// Guid of the dataset, and number of the pool's opening: another one is another disk.
    which: (u64, u64),
}

/// Target that is seen.
pub(super) struct Shown {
    pub(super) target: Arc<Target>,
    pub(super) volume: String,
    pub(super) disk: Arc<Disk>,
    unit: Arc<VolumeUnit>,
    pool: String,
    which: (u64, u64),
}

impl Shown {
    fn is(&self, wanted: &Wanted) -> bool {
        self.volume == wanted.volume && self.which == wanted.which && self.unit.is_there()
    }
}

/// Looks that were asked for, and done.
#[derive(Default)]
struct Turns {
    asked: u64,
    done: u64,
    is_ending: bool,
    is_over: bool,
}

/// Door of volumes to the network.
pub(crate) struct Portal {
    exec: Exec,
    pub(super) pools: Arc<Pools>,
    opening: Arc<Opening>,
    tunables: Arc<Tunables>,
    pub(super) rights: Arc<Rights>,
    running: Mutex<Option<Running>>,
    pub(super) open: Mutex<Option<Arc<Open>>>,
    /// Targets by their names.
    pub(super) shown: Mutex<BTreeMap<String, Shown>>,
    turns: Mutex<Turns>,
    changed: Condvar,
}

impl Portal {
    /// Makes it, with rights as they were given before, and nothing served yet.
    pub(crate) fn new(
        exec: &Exec,
        state: &StateDir,
        (pools, opening): (&Arc<Pools>, &Arc<Opening>),
        tunables: &Arc<Tunables>,
    ) -> Arc<Portal> {
        Arc::new(Portal {
            exec: exec.clone(),
            pools: pools.clone(),
            opening: opening.clone(),
            tunables: tunables.clone(),
            rights: Arc::new(Rights::new(state.path().join(RIGHTS))),
            running: Mutex::default(),
            open: Mutex::default(),
            shown: Mutex::default(),
            turns: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    /// Serves volumes to whoever connects from now on.
    ///
    /// # Errors
    /// Those of the system.
    pub(crate) fn serve(self: &Arc<Self>, listener: std::net::TcpListener) -> io::Result<()> {
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let mut running = Running::new("z-iscsi")?;
        let listener = {
            let _inside = running.handle().enter();
            TcpListener::from_std(listener)?
        };
        let targets = Targets::new(self.rights.clone());
        targets.set_coming(true);
        let options = Options { drain: DRAIN, ..Options::default() };
        let stop = running.stop();
        running.serve(iscsi::serve(listener, targets.clone(), options, stop));
        let open = Arc::new(Open { handle: running.handle().clone(), address, targets });
        *self.running.lock() = Some(running);
        *self.open.lock() = Some(open.clone());
        tracing::info!("volumes are served at {address} (iSCSI)");
        let own = self.clone();
        // It is told when to end.
        drop(self.exec.spawn_operation("z-iscsi-look", Box::new(move || own.run(&open))));
        Ok(())
    }

    /// Ends the listener: initiators are asked to log out first.
    pub(crate) fn end(&self) {
        if let Some(running) = self.stop_looking() {
            running.end("initiators");
        }
    }

    /// Ends the listener at once.
    pub(crate) fn cut(&self) {
        if let Some(running) = self.stop_looking() {
            running.cut();
        }
    }

    /// Ends the thread that looks; gives what is left to be ended, once.
    fn stop_looking(&self) -> Option<Running> {
        let running = self.running.lock().take()?;
        *self.open.lock() = None;
        let mut turns = self.turns.lock();
        turns.is_ending = true;
        self.changed.notify_all();
        let until = self.exec.now_ns().saturating_add(2 * SESSIONS_END.as_nanos() as u64);
        while !turns.is_over && self.exec.now_ns() < until {
            self.changed.wait_for(&mut turns, LOOK);
        }
        Some(running)
    }

    /// Has targets follow what a request changed, and waits a while for it.
    pub(crate) fn follow(&self) {
        if self.open.lock().is_none() {
            return;
        }
        let mut turns = self.turns.lock();
        turns.asked += 1;
        let own = turns.asked;
        self.changed.notify_all();
        let until = self.exec.now_ns().saturating_add(FOLLOW.as_nanos() as u64);
        while turns.done < own && !turns.is_ending && self.exec.now_ns() < until {
            self.changed.wait_for(&mut turns, FOLLOW);
        }
    }

    fn run(&self, open: &Open) {
        let (mut seen, mut are_coming) = (None, true);
        while let Some((asked, is_asked)) = self.next_turn(if are_coming { LOOK_AT_START } else { LOOK }) {
            // Asked first: the pools are all there then.
            let are_open = self.opening.is_over();
            let now = self.pools_now();
            if is_asked || seen.as_ref() != Some(&now) {
                self.look(open);
            }
            seen = Some(now);
            if are_coming && are_open {
                are_coming = false;
                open.targets.set_coming(false);
            }
            self.turns.lock().done = asked;
            self.changed.notify_all();
        }
        let shown = std::mem::take(&mut *self.shown.lock());
        drop(shown);
        self.turns.lock().is_over = true;
        self.changed.notify_all();
    }

    /// Waits until somebody asks for a look, or a while; None at the end.
    fn next_turn(&self, pause: Duration) -> Option<(u64, bool)> {
        let mut turns = self.turns.lock();
        if turns.asked == turns.done && !turns.is_ending {
            self.changed.wait_for(&mut turns, pause);
        }
        (!turns.is_ending).then_some((turns.asked, turns.asked != turns.done))
    }

    /// Pools that are open, each with the number of its opening, and true for those that cannot be looked at.
    fn pools_now(&self) -> Vec<(String, u64, bool)> {
        self.pools.all().iter().map(|pool| (pool.name(), pool.load_guid(), pool.pool().zio().is_suspended())).collect()
    }

    /// Shows what is to be seen, and nothing else.
    fn look(&self, open: &Open) {
        if self.pools.is_stopping() {
            return;
        }
        let (mut wanted, mut unknown) = (BTreeMap::new(), BTreeSet::new());
        for pool in self.pools.all() {
            if pool.pool().zio().is_suspended() {
                unknown.insert(pool.name());
                continue;
            }
            for handle in there::shared(&pool, SHARE_ISCSI) {
                let (volume, which) = (handle.name(), (handle.guid(), pool.load_guid()));
                wanted.insert(names::target(&volume), Wanted { volume, pool: pool.name(), which });
            }
        }
        // Nothing of a pool is held from here on while sessions end.
        let is_over = |name: &str, shown: &Shown| !unknown.contains(&shown.pool) && wanted.get(name).is_none_or(|wanted| !shown.is(wanted));
        let over: Vec<String> =
            self.shown.lock().iter().filter(|(name, shown)| is_over(name, shown)).map(|(name, _)| name.clone()).collect();
        over.iter().for_each(|name| self.hide(open, name));
        for (name, wanted) in wanted {
            if self.shown.lock().contains_key(&name) {
                continue;
            }
            if let Some(shown) = self.show(open, &name, wanted) {
                self.shown.lock().insert(name, shown);
            }
        }
        self.follow_kept(open, &unknown);
    }

    /// Has reservations follow the properties that keep them, but in pools that cannot be looked at.
    fn follow_kept(&self, open: &Open, unknown: &BTreeSet<String>) {
        let disks: Vec<(String, Arc<VolumeUnit>, Arc<Disk>)> = {
            let shown = self.shown.lock();
            let known = shown.values().filter(|shown| !unknown.contains(&shown.pool));
            known.map(|shown| (shown.volume.clone(), shown.unit.clone(), shown.disk.clone())).collect()
        };
        for (volume, unit, disk) in disks {
            // Who stores them may wait for a pool that is suspended meanwhile.
            let follow = async { tokio::time::timeout(SESSIONS_END, unit.follow_kept(&disk)).await.unwrap_or(false) };
            if open.handle.block_on(follow) {
                tracing::info!("reservations of the volume '{volume}' are from now on those of its property, which somebody changed");
            }
        }
    }

    /// Takes a target away, and ends its sessions.
    fn hide(&self, open: &Open, name: &str) {
        let hidden = self.shown.lock().remove(name);
        self.remove(open, name);
        drop(hidden);
    }

    fn remove(&self, open: &Open, name: &str) {
        let removal = async { tokio::time::timeout(SESSIONS_END, open.targets.remove(name)).await.is_ok() };
        if !open.handle.block_on(removal) {
            tracing::warn!("requests of initiators of {name} do not end");
        }
    }

    /// Makes the target of a volume.
    fn show(&self, open: &Open, name: &str, wanted: Wanted) -> Option<Shown> {
        let pool = self.pools.get(&wanted.pool).filter(|pool| pool.load_guid() == wanted.which.1)?;
        let handle = pool.dsl().hold(&wanted.volume).ok()?;
        let Some(target) = open.targets.add(name) else {
            tracing::warn!("the volume '{}' is not served: {name} is too long for the name of a target", wanted.volume);
            return None;
        };
        let weak = Arc::downgrade(&target);
        let is_served: IsServed = Arc::new(move || weak.upgrade().is_some_and(|target| !target.sessions().is_empty()));
        let identity = names::identity(pool.pool().guid(), Guid(handle.guid()));
        // Without its reservations it is not served: they keep others off.
        let lent = reservations::load(&handle)
            .and_then(|kept| Ok((kept, pool.volumes.lend_standing(handle, &self.tunables, &pool.mounts, is_served)?)));
        let made = lent.map_err(|error| error.to_string()).and_then(|(kept, loan)| {
            let unit = VolumeUnit::new(&self.exec, loan, identity).ok_or_else(|| "it was taken away".to_string())?;
            Ok((Arc::new(unit), kept))
        });
        let (unit, kept) = match made {
            Ok(made) => made,
            Err(why) => {
                tracing::warn!("the volume '{}' is not served: {why}", wanted.volume);
                self.remove(open, name);
                return None;
            }
        };
        let disk = Arc::new(Disk::new(unit.clone(), unit.clone(), kept));
        target.attach(0, disk.clone());
        let Wanted { volume, pool, which } = wanted;
        Some(Shown { target, volume, disk, unit, pool, which })
    }
}
