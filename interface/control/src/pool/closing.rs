//! `zpool export` and `zpool destroy`: closing pools, whatever their devices do.
//!
//! An operation of its own closes the pool, and the request looks after it: a pool that cannot be written is let go as after a crash, at
//! once by force, after a while otherwise, when nobody else can bring it back any more; a forced export that waits for a
//! device answers without it. What then still waits lets go when the device does, or the daemon ends.

use crate::device::served::Served;
use crate::events::Events;
use crate::failure::{because, pool_failure, suspended};
use crate::inject::Injections;
use crate::mount::mounting::Mounter;
use crate::mount::mounts::Directory;
use crate::mount::returning::Returning;
use crate::mount::unmounting::Unmounter;
use crate::pool::cache_file::PoolsFile;
use crate::pool::{OpenPool, Pools};
use crate::requests::done;
use control_api::{ErrorKind, Failure, PoolTarget, Remark, Response};
use exec::{Condvar, Exec, Mutex};
use pool::{Pool, PoolError};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Nanoseconds within which a forced export answers.
const FORCED_NS: u64 = 30_000_000_000;
/// Nanoseconds that an ordinary export, and every other request, waits for a suspended pool.
pub(crate) const SUSPENDED_NS: u64 = 10_000_000_000;
/// Pause between two looks at a pool that is being closed.
const STEP: Duration = Duration::from_millis(25);

/// Last operation of a pool, which ends it.
type End = fn(Pool) -> Result<(), PoolError>;

/// State of a pool that is being closed.
#[derive(Default)]
struct Closing {
    outcome: Mutex<Option<Result<Response, Failure>>>,
    changed: Condvar,
    /// True when the request does not wait for the pool any more, and it is on no list.
    is_forsaken: AtomicBool,
}

/// Order to close a pool: which one, and how.
struct Order {
    target: PoolTarget,
    verb: &'static str,
    end: End,
}

impl Order {
    fn what(&self) -> String {
        format!("cannot {} '{}'", self.verb, self.target.pool)
    }
}

/// Failure of an order, `what`, that was given without force for a pool which is suspended, or has handlers of faults.
fn in_the_way(what: String, is_suspended: bool, is_injected: bool) -> Option<Failure> {
    const HANDLERS: &str = "remove its fault handlers first: zinject -c all";
    const SUSPENDED: &str = "bring its devices back and run 'zpool clear', or use '-f' to give up what was not written yet";
    match (is_suspended, is_injected) {
        (false, false) => None,
        (false, true) => Some(because(ErrorKind::Busy, what, "pool is busy").advise(HANDLERS)),
        (true, false) => Some(suspended(what).advise(SUSPENDED)),
        (true, true) => Some(suspended(what).advise(format!("{HANDLERS}; then {SUSPENDED}"))),
    }
}

/// Closing of pools.
pub(crate) struct Closer {
    pub exec: Exec,
    pub pools: Arc<Pools>,
    pub file: Arc<PoolsFile>,
    pub mounter: Arc<Mounter>,
    pub unmounter: Arc<Unmounter>,
    pub returning: Arc<Returning>,
    pub served: Arc<Served>,
    pub events: Arc<Events>,
    pub injections: Arc<Injections>,
}

impl Closer {
    /// Does `zpool destroy`.
    pub(crate) fn destroy(self: &Arc<Self>, target: &PoolTarget) -> Result<Response, Failure> {
        self.check_alone(target)?;
        self.close(target, "destroy", Pool::destroy)
    }

    /// Does `zpool export`.
    pub(crate) fn export(self: &Arc<Self>, target: &PoolTarget) -> Result<Response, Failure> {
        if self.pools.absent.forget(|entry| entry.name == target.pool) {
            self.returning.clear_dead(&target.pool);
            self.file.remember();
            return Ok(done());
        }
        self.check_alone(target)?;
        self.check_shared_spares(target)?;
        self.close(target, "export", if target.hard { Pool::leave } else { Pool::export })
    }

    /// Refuses to take a pool away by force while file systems of others are mounted inside of its own, unless it waits for devices: nothing else ends
    /// that.
    fn check_alone(&self, target: &PoolTarget) -> Result<(), Failure> {
        let open = self.pools.open_pool(&target.pool)?;
        if !target.force || open.pool().zio().is_suspended() {
            return Ok(());
        }
        self.unmounter.check_alone(&open)
    }

    /// Refuses while a spare stands in here that another pool has on its list: it would be taken once nobody knows that it is in use (OpenZFS:
    /// `spa_has_active_shared_spare`).
    fn check_shared_spares(&self, target: &PoolTarget) -> Result<(), Failure> {
        let name = &target.pool;
        let open = self.pools.open_pool(name)?;
        let spares = open.pool().spares();
        let others: Vec<Arc<OpenPool>> = self.pools.all().into_iter().filter(|other| !Arc::ptr_eq(other, &open)).collect();
        let is_listed = |guid| others.iter().any(|other| other.pool().spares().iter().any(|spare| spare.guid == guid));
        if target.force || !spares.iter().any(|spare| spare.in_use && is_listed(spare.guid)) {
            return Ok(());
        }
        let why = format!("'{name}' has an active shared spare which could be used by other pools once '{name}' is exported.");
        Err(because(ErrorKind::Busy, format!("cannot export '{name}'"), why).advise("detach the spare first, or use '-f'"))
    }

    /// Lets a pool go that can't go on, as `zpool export -f` would.
    pub(crate) fn give_up(self: &Arc<Self>, name: &str) {
        let target = PoolTarget { pool: name.to_string(), force: true, hard: false };
        if let Err(failure) = self.close(&target, "export", Pool::export) {
            tracing::error!("{failure}");
        }
    }

    pub(crate) fn close(self: &Arc<Self>, target: &PoolTarget, verb: &'static str, end: End) -> Result<Response, Failure> {
        let order = Order { target: target.clone(), verb, end };
        let open = self.pools.open_pool(&target.pool)?;
        self.served.check_nothing_rests_on(&target.pool, &order.what())?;
        let zio = open.pool().zio().clone();
        if target.force {
            self.injections.remove_handlers(|report| report.pool == target.pool && report.pool_delay.is_none());
            if zio.is_suspended() {
                zio.abandon();
            }
        } else if let Some(failure) = in_the_way(order.what(), zio.is_suspended(), self.injections.is_injected(&target.pool)) {
            return Err(failure);
        }
        drop(open);
        let closing = Arc::new(Closing::default());
        let (own, told) = (self.clone(), closing.clone());
        let departure = self.pools.leaving.begin(&target.pool);
        let work = move || {
            let outcome = own.close_now(&order, &told);
            // Others' places that were dead in its file systems.
            own.mounter.restore_others();
            drop(departure);
            *told.outcome.lock() = Some(outcome);
            told.changed.notify_all();
        };
        drop(self.exec.spawn_operation("z-close", Box::new(work)));
        self.look_after(target, verb, &zio, &closing)
    }

    /// Waits for the end of a pool, as long as that makes sense.
    fn look_after(&self, target: &PoolTarget, verb: &str, zio: &zio::Zio, closing: &Arc<Closing>) -> Result<Response, Failure> {
        let begun = self.exec.now_ns();
        let mut suspended_at = None;
        loop {
            {
                let mut outcome = closing.outcome.lock();
                if outcome.is_none() {
                    closing.changed.wait_for(&mut outcome, STEP);
                }
                if let Some(outcome) = outcome.take() {
                    return outcome;
                }
            }
            let what = || format!("cannot {verb} '{}'", target.pool);
            if Arc::strong_count(closing) == 1 {
                return Err(because(ErrorKind::Internal, what(), "a defect in the daemon ended it"));
            }
            let now = self.exec.now_ns();
            if zio.is_suspended() {
                let waited = now - *suspended_at.get_or_insert(now);
                if target.force || (waited > SUSPENDED_NS && !self.pools.contains(&target.pool)) {
                    zio.abandon();
                } else if waited > SUSPENDED_NS {
                    return Err(suspended(what()));
                }
            } else {
                suspended_at = None;
            }
            if target.force && now - begun > FORCED_NS {
                return Ok(self.forsake(&target.pool, zio, closing));
            }
        }
    }

    /// Takes a pool off the list whose devices do not answer.
    fn forsake(&self, name: &str, zio: &zio::Zio, closing: &Closing) -> Response {
        let open = self.pools.remove_after(name, || closing.is_forsaken.store(true, Ordering::Release));
        zio.abandon();
        self.file.remember();
        if let Some(open) = open {
            self.pools.past.add(open.pool().cache());
            // Commands that wait for a txg get their answer.
            open.pool().txgs().give_up();
            // Letting go of it waits for the device.
            drop(self.exec.spawn_operation("z-close", Box::new(move || drop(open))));
        }
        let remark = format!("warning: a device of pool '{name}' does not answer; the pool is given up");
        Response::Done { remarks: vec![Remark::Warning(remark)] }
    }

    fn close_now(&self, order: &Order, closing: &Closing) -> Result<Response, Failure> {
        let Order { target, verb, end } = order;
        let began_ns = self.exec.now_ns();
        let open = self.pools.open_pool(&target.pool)?;
        let mounts = open.mounts.clone();
        self.end_streams(order, &open)?;
        // Who gives a pool up does not wait for whoever waits for its devices.
        let bar = mounts.bar(&open.name(), if *verb == "destroy" { "destroyed" } else { "exported" }, target.force)?;
        let _away = open.volumes.leave(&self.exec, &open.name(), order.what(), target.force)?;
        if target.force {
            mounts.stored.cut_all();
        }
        let turn = self.mounter.turn();
        let unmounted = self.unmounter.unmount_tree(&turn, &open, &open.name(), target.force, Directory::RemoveMade).map(drop);
        drop(turn);
        let left = match unmounted {
            Err(failure) if target.force => Some(Remark::Warning(format!("warning: {failure}"))),
            unmounted => unmounted.map(|()| None)?,
        };
        mounts.remove_made_directories();
        drop(open);
        self.injections.injected_delay(&target.pool, false, began_ns);
        let Some(open) = self.file.take_out(&target.pool, target.hard) else {
            return Err(because(ErrorKind::NotFound, order.what(), "no such pool"));
        };
        let pool = match self.sole_owner(open, target.force) {
            Ok(pool) => pool,
            Err(open) => {
                let is_forsaken = || {
                    drop(bar);
                    closing.is_forsaken.load(Ordering::Acquire)
                };
                self.pools.insert_unless(&target.pool, open, is_forsaken);
                let busy = because(ErrorKind::Busy, order.what(), "another command still works on the pool");
                return Err(busy.advise("wait for it, then try again"));
            }
        };
        // Handlers that came since would hold up what is written now, out of anybody's reach.
        for late in self.injections.remove_handlers(|report| report.pool == target.pool && report.pool_delay.is_none()) {
            pool.zio().clear_injection(late.id);
        }
        let guid = pool.guid();
        let is_kept = *verb == "destroy" && !pool.is_writeable();
        let remarks = match self.ended(pool, if is_kept { Pool::export } else { *end }) {
            // As in OpenZFS, where nobody is told (`spa_export_common`).
            Ok(()) if is_kept => {
                let name = &target.pool;
                Ok(vec![Remark::Warning(format!(
                    "warning: '{name}' was imported read-only: it is closed now, and still on its devices; import it to destroy it"
                ))])
            }
            Ok(()) => Ok(Vec::new()),
            Err(_) if target.force && *verb == "destroy" => {
                let why = "its devices can't be written, so that it is still on them";
                Err(because(ErrorKind::Io, order.what(), why).advise("it is not open any more; import and destroy it when they are back"))
            }
            Err(_) if target.force => {
                let name = &target.pool;
                Ok(vec![Remark::Warning(format!("warning: pool '{name}' could not be written; what was not synced is lost"))])
            }
            Err(error) => Err(pool_failure(order.what(), &error)),
        };
        if remarks.is_ok() {
            let class = if *verb == "destroy" { "sysevent.fs.zfs.pool_destroy" } else { "sysevent.fs.zfs.pool_export" };
            self.events.tell(class, &target.pool, guid);
            self.events.tell("sysevent.fs.zfs.config_sync", &target.pool, guid);
        }
        self.file.remember();
        remarks.map(|remarks| Response::Done { remarks: left.into_iter().chain(remarks).collect() })
    }

    /// Ends a pool; its counters go on in those of the process.
    fn ended(&self, pool: Pool, end: End) -> Result<(), PoolError> {
        let cache = pool.cache().clone();
        let ended = end(pool);
        self.pools.past.add(&cache);
        ended
    }

    /// Waits for streams that are just ending, and refuses while there are others; by force they end.
    fn end_streams(&self, order: &Order, open: &OpenPool) -> Result<(), Failure> {
        if order.target.force {
            open.streams.cut();
            return Ok(());
        }
        let left = open.streams.settle(&self.exec);
        if left.is_empty() {
            return Ok(());
        }
        let busy = because(ErrorKind::Busy, order.what(), format!("pool is busy: {}", left.join(", ")));
        Err(busy.advise(format!("wait until that is through, end its command, or use '-f', with which 'zpool {}' ends it", order.verb)))
    }

    /// Waits a while for other requests to let go of the pool; by force also for streams that began meanwhile, which end.
    fn sole_owner(&self, mut open: Arc<OpenPool>, force: bool) -> Result<Pool, Arc<OpenPool>> {
        const TRIES: u32 = 200;
        for _ in 0..TRIES {
            if force {
                open.streams.cut();
            }
            match Arc::try_unwrap(open) {
                Ok(open) => return Ok(open.into_pool()),
                Err(shared) => open = shared,
            }
            self.exec.sleep_ns(25_000_000);
        }
        Err(open)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, whoever exports a suspended pool removes the handlers of its faults, and is refused again for what nobody told.
    #[test]
    fn a_suspended_pool_with_handlers_is_told_to_be_both() {
        let said = |is_suspended, is_injected| {
            in_the_way("cannot export 'tank'".to_string(), is_suspended, is_injected).map(|failure| failure.to_string())
        };
        assert_eq!(said(false, false), None);
        let [busy, suspended, both] = [(false, true), (true, false), (true, true)].map(|(one, other)| said(one, other).unwrap_or_default());
        assert!(busy.contains("pool is busy") && busy.contains("zinject -c all") && !busy.contains("zpool clear"), "{busy}");
        assert!(suspended.contains("pool I/O is currently suspended") && !suspended.contains("zinject"), "{suspended}");
        assert!(both.contains("pool I/O is currently suspended") && both.contains("zinject -c all; then"), "{both}");
        assert!(both.contains("'zpool clear'") && both.contains("'-f'"), "{both}");
    }
}
