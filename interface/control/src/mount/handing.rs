//! Mounts that outlive the daemon: one daemon leaves them to the next, with nothing under way and everything on disk (docs/adr/0018).
//!
//! Invariants: a mount is served by one daemon at a time, and by none between; whoever served a request of it has told the keeper before that
//! nobody else gets it any more. What cannot go on is cut off, and comes back as after a death.
//!
//! A daemon that dies leaves what the keeper holds of it ([`crate::mount::holding`]), with the arena from which its pool is brought up to what was
//! acknowledged.

use crate::device::served::Served;
use crate::failure::{because, suspended};
use crate::mount::heirs::Heirs;
use crate::mount::holding::{Holding, Thing, understood};
use crate::mount::keeping::{Heirloom, Heritage, Keeper};
use crate::mount::mounting::Mounter;
use crate::mount::mounts::{Mounted, is_within};
use crate::mount::note::Note;
use crate::mount::phase::{Phases, Refused};
use crate::mount::returning::Returning;
use crate::mount::wish::Wish;
use crate::pool::opening::Opening;
use crate::pool::{OpenPool, Pools};
use crate::settings::Settings;
use control_api::{ErrorKind, Failure};
use exec::{Exec, Mutex};
use ondisk::Guid;
use rustix::fd::OwnedFd;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// Version of the notes; those of another one are not understood.
const FORMAT: u32 = 1;
/// Nanoseconds that requests which were read have to be answered before they are read again.
const QUIET_NS: u64 = 1_500_000_000;
/// Number of times that this is tried.
const TRIES: u32 = 4;
/// Nanoseconds that programs get between two tries.
const BREATH_NS: u64 = 100_000_000;
/// Nanoseconds that the pools have to write what they were given.
const SYNC_NS: u64 = 20_000_000_000;
/// Nanoseconds after which mounts that the next daemon does not go on with are cut off.
const DEADLINE_NS: u64 = 60_000_000_000;
const STEP_NS: u64 = 2_000_000;
const WHAT: &str = "cannot replace the daemon";

#[derive(Debug, Serialize, Deserialize)]
struct Notes {
    format: u32,
    mounts: Vec<Note>,
    /// Names and values of the parameters that were set.
    #[serde(default)]
    parameters: Vec<(String, String)>,
    /// Guids of the pools that are open.
    #[serde(default)]
    pools: Vec<u64>,
}

/// Mount of the daemon before that nobody serves yet.
struct Waiting {
    note: Note,
    connection: OwnedFd,
    /// True when that daemon died.
    is_of_dead: bool,
}

/// Handing over and taking over of mounts.
pub(crate) struct Handing {
    exec: Exec,
    pools: Arc<Pools>,
    opening: Arc<Opening>,
    mounter: Arc<Mounter>,
    returning: Arc<Returning>,
    served: Arc<Served>,
    pub keeper: OnceLock<Arc<dyn Keeper>>,
    holding: Arc<Holding>,
    settings: Arc<Settings>,
    left: Mutex<Vec<Waiting>>,
    /// Guids of pools that the daemon before had open when it left its mounts to this one, until they are opened.
    handed: Mutex<Vec<u64>>,
    pub phases: Phases,
}

impl Handing {
    /// Makes it, without anybody who keeps mounts between two daemons.
    pub(crate) fn new(
        exec: &Exec,
        (pools, opening): (&Arc<Pools>, &Arc<Opening>),
        mounter: &Arc<Mounter>,
        returning: &Arc<Returning>,
        (served, holding, settings): (&Arc<Served>, &Arc<Holding>, &Arc<Settings>),
    ) -> Handing {
        Handing {
            exec: exec.clone(),
            pools: pools.clone(),
            opening: opening.clone(),
            mounter: mounter.clone(),
            returning: returning.clone(),
            served: served.clone(),
            holding: holding.clone(),
            settings: settings.clone(),
            keeper: OnceLock::new(),
            left: Mutex::default(),
            handed: Mutex::default(),
            phases: Phases::default(),
        }
    }
}

/// Refuses a program that the system cannot run: nobody would go on with the mounts.
fn check_program(program: &Path) -> Result<(), Failure> {
    let refuse = |kind, why: &str| {
        let advice = "nothing was changed; name a zirconiad that may be executed, or none for the one beside 'zirconia'";
        Err(because(kind, WHAT, format!("{}: {why}", program.display())).advise(advice))
    };
    match std::fs::metadata(program) {
        Err(error) => refuse(ErrorKind::NotFound, &error.to_string()),
        Ok(found) if !found.is_file() => refuse(ErrorKind::Invalid, "it is no regular file"),
        Ok(_) => match rustix::fs::access(program, rustix::fs::Access::EXEC_OK) {
            Ok(()) => Ok(()),
            Err(_) => refuse(ErrorKind::Permission, "it may not be executed"),
        },
    }
}

/// Failure of giving the mounts to their keeper.
fn not_kept(error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset | io::ErrorKind::NotConnected => {
            because(ErrorKind::Invalid, WHAT, "the process that keeps its mounts meanwhile, and starts it again when it dies, is gone")
                .advise("the daemon goes on; 'zirconia stop' and 'zirconia start' replace both, with the mounts away in between")
        }
        _ => because(ErrorKind::Io, WHAT, error),
    }
}

fn busy(why: &str) -> Failure {
    because(ErrorKind::Busy, WHAT, why)
}

/// Runs `is_done` until it is so, as long as `patience_ns`; false when it is not.
fn wait(exec: &Exec, patience_ns: u64, is_done: impl Fn() -> bool) -> bool {
    let until = exec.now_ns().saturating_add(patience_ns);
    while !is_done() {
        if exec.now_ns() >= until {
            return false;
        }
        exec.sleep_ns(STEP_NS);
    }
    true
}

/// Mounts whose requests are not read; they are again when this is dropped.
struct Paused(Vec<Arc<Mounted>>);

impl Paused {
    fn stop(mounts: &[Arc<Mounted>]) -> Paused {
        mounts.iter().for_each(|mounted| mounted.session.pause());
        Paused(mounts.to_vec())
    }

    fn are_quiet(&self) -> bool {
        self.0.iter().all(|mounted| mounted.session.is_quiet() || !mounted.session.is_alive())
    }
}

impl Drop for Paused {
    fn drop(&mut self) {
        for mounted in &self.0 {
            if let Err(errno) = mounted.session.resume() {
                tracing::error!("the mount of '{}' is not served any more: {errno}", mounted.name());
                // Whoever waits gets an error.
                let _ = mounted.session.cut();
            }
        }
    }
}

/// Leaving.
impl Handing {
    /// Leaves all mounts to the next daemon, which runs `program`. Nothing is served any more when this is done; the daemon has to end then.
    ///
    /// # Errors
    /// Why that cannot be; everything is as it was then.
    pub(crate) fn hand_over(&self, program: &Path) -> Result<(), Failure> {
        let keeper = self.keeper.get().ok_or_else(|| {
            because(ErrorKind::Invalid, WHAT, "nobody keeps its mounts, since no command started it")
                .advise("a service manager's daemon, or one in front, is stopped and started instead")
        })?;
        check_program(program)?;
        self.check_streams(true)?;
        let leaving = self.phases.leave().map_err(|refused| match refused {
            Refused::Leaves => busy("another 'zirconia upgrade' is replacing it").advise("wait for that one; see 'zirconia status'"),
            Refused::Ends => busy("it is being stopped"),
        })?;
        self.opening.wait_for_end(&self.exec);
        if self.opening.is_running() {
            return Err(busy("pools of the last time are still being opened").advise("try again"));
        }
        let turn = self.mounter.turn();
        let pools = self.pools.all();
        let mounts: Vec<Arc<Mounted>> = pools.iter().flat_map(|pool| pool.mounts.all()).collect();
        self.check(&pools, &mounts)?;
        if let Some(volume) = pools.iter().find_map(|pool| pool.volumes.in_use(&self.exec, &pool.name())) {
            let why = format!("the volume '{volume}' is in use, and is cut off when its daemon is replaced");
            return Err(busy(&why).advise("close what has it open (losetup, lsof, fuser)"));
        }
        if let Some(dataset) = pools.iter().find_map(|pool| pool.mounts.stored.find(&|_| true)) {
            let why = format!("a program has the objects of '{dataset}', and is cut off when its daemon is replaced");
            return Err(busy(&why).advise("end that program"));
        }
        self.returning.note_mounts();
        // Most of what is to be written is, while programs go on.
        self.sync(&pools)?;
        turn.step();
        let paused = self.quiet(&mounts)?;
        turn.step();
        let heritage = self.note(&pools, &mounts)?;
        self.sync(&pools)?;
        turn.step();
        // Those that began meanwhile, too.
        self.check_streams(false)?;
        if let Err(error) = keeper.keep(heritage, program) {
            // The keeper may have let go of what it holds.
            self.holding.forget();
            self.hold();
            return Err(not_kept(&error));
        }
        tracing::info!("{} is to be the daemon: counters and events begin anew", program.display());
        self.pools.stop();
        // Nobody here reads requests, mounts or unmounts any more.
        std::mem::forget((paused, turn));
        leaving.done();
        Ok(())
    }

    /// Refuses while streams are sent or received: they would be cut off. Those that are just ending are waited for, if there is time.
    fn check_streams(&self, has_time: bool) -> Result<(), Failure> {
        let left = |open: &Arc<OpenPool>| if has_time { open.streams.settle(&self.exec) } else { open.streams.sentences() };
        let left: Vec<String> = self.pools.all().iter().flat_map(left).collect();
        if left.is_empty() {
            return Ok(());
        }
        let why = format!("{}, and is cut off when its daemon is replaced", left.join(", "));
        Err(busy(&why)
            .advise("wait until that is through, or end its command; what is received with '-s' goes on with 'zfs send -t' later"))
    }

    /// Refuses what could not go on.
    fn check(&self, pools: &[Arc<OpenPool>], mounts: &[Arc<Mounted>]) -> Result<(), Failure> {
        if pools.iter().any(|open| open.pool().zio().is_suspended() || open.pool().txgs().has_failed()) {
            return Err(suspended(WHAT.to_string()).advise("bring its devices back and run 'zpool clear' first"));
        }
        // The kernel takes rings back from a process that ends, and what came to them with it.
        if let Some(ringed) = mounts.iter().find(|mounted| mounted.session.has_rings()) {
            let why = format!("requests to the mount of '{}' come through io_uring, which ends with the daemon", ringed.name());
            return Err(busy(&why).advise("set zirconia_fuse_uring to 0 and mount it again first"));
        }
        self.served
            .check_unserved(mounts)
            .map_err(|failure| busy("devices of a pool are files in a mounted file system").advise(failure.next.unwrap_or(failure.why)))
    }

    /// Stops to read requests, and waits for those that were read. A write past the kernel's cache can wait for a read that nobody reads: then
    /// everything goes on for a while.
    fn quiet(&self, mounts: &[Arc<Mounted>]) -> Result<Paused, Failure> {
        for _ in 0..TRIES {
            let paused = Paused::stop(mounts);
            if wait(&self.exec, QUIET_NS, || paused.are_quiet()) {
                return Ok(paused);
            }
            drop(paused);
            self.exec.sleep_ns(BREATH_NS);
        }
        Err(busy("requests to its mounts are not answered in time").advise("try again; 'zpool status' shows what holds them up"))
    }

    /// Notes what the next daemon has to know.
    fn note(&self, pools: &[Arc<OpenPool>], mounts: &[Arc<Mounted>]) -> Result<Heritage, Failure> {
        let mut heritage = Heritage::default();
        let pools = pools.iter().map(|open| open.pool().guid().0).collect();
        let mut notes = Notes { format: FORMAT, mounts: Vec::new(), parameters: self.settings.set_by_hand(), pools };
        for mounted in mounts.iter().filter(|mounted| mounted.session.is_alive()) {
            let remembered = mounted.zfs().hand_over().map_err(|error| because(ErrorKind::Io, WHAT, error))?;
            let (note, connection) = Note::of(mounted, &remembered)?;
            heritage.connections.insert(note.number, connection);
            notes.mounts.push(note);
        }
        heritage.notes = serde_json::to_vec(&notes).map_err(|error| because(ErrorKind::Internal, WHAT, error))?;
        Ok(heritage)
    }

    /// Writes what the pools were given, within a while.
    fn sync(&self, pools: &[Arc<OpenPool>]) -> Result<(), Failure> {
        let (left, failed) = (Arc::new(AtomicUsize::new(pools.len())), Arc::new(AtomicUsize::new(0)));
        for open in pools {
            let (open, left, failed) = (open.clone(), left.clone(), failed.clone());
            let work = move || {
                if let Err(error) = open.pool().sync() {
                    tracing::error!("cannot sync '{}': {error}", open.name());
                    failed.fetch_add(1, Ordering::AcqRel);
                }
                drop(open);
                left.fetch_sub(1, Ordering::AcqRel);
            };
            drop(self.exec.spawn_operation("z-hand-over", Box::new(work)));
        }
        let is_done = wait(&self.exec, SYNC_NS, || left.load(Ordering::Acquire) == 0);
        if !is_done || failed.load(Ordering::Acquire) > 0 {
            return Err(busy("a pool could not write what it was given").advise("'zpool status' shows why"));
        }
        Ok(())
    }
}

/// Going on.
impl Handing {
    /// Takes what the daemon before left; what is not understood is cut off.
    pub(crate) fn inherit(self: &Arc<Self>, keeper: Arc<dyn Keeper>, heritage: Heritage) {
        let Heritage { mut connections, notes, held } = heritage;
        let last = connections.keys().chain(held.keys()).max().copied().unwrap_or_default();
        self.holding.begin(&keeper, last);
        let mut left: Vec<Waiting> = Vec::new();
        if !notes.is_empty() {
            match serde_json::from_slice(&notes) {
                Ok(Notes { format: FORMAT, mounts, parameters, pools }) => {
                    self.settings.inherit(&parameters, &self.pools);
                    *self.handed.lock() = pools;
                    let with_connection =
                        |note: Note| connections.remove(&note.number).map(|connection| Waiting { note, connection, is_of_dead: false });
                    left.extend(mounts.into_iter().filter_map(with_connection));
                }
                Ok(Notes { format, .. }) => tracing::error!("mounts are cut off: their notes are of version {format}"),
                Err(error) => tracing::error!("mounts are cut off: their notes are not understood: {error}"),
            }
        }
        for (number, Heirloom { notes, descriptor }) in held {
            match understood(&notes) {
                Some(Thing::Mount(note)) => left.push(Waiting { note: *note, connection: descriptor, is_of_dead: true }),
                Some(Thing::Arena(pool)) => self.holding.inherit_arena(pool, number, descriptor),
                None => {
                    tracing::error!("a mount is cut off: notes of a daemon that died are not understood");
                    keeper.let_go(number);
                }
            }
        }
        let has_any = !left.is_empty();
        *self.left.lock() = left;
        // Those that were not understood.
        if !has_any {
            keeper.done();
        }
        let _ = self.keeper.set(keeper);
        if has_any {
            let own = self.clone();
            let work = move || {
                own.exec.sleep_ns(DEADLINE_NS);
                own.cut_off_rest();
            };
            drop(self.exec.spawn_operation("z-heritage", Box::new(work)));
        }
    }

    /// True, once, for a pool that the daemon before had open when it left its mounts to this one: nobody else can have had it since.
    pub(crate) fn takes_over(&self, pool: Guid) -> bool {
        let mut handed = self.handed.lock();
        let before = handed.len();
        handed.retain(|guid| *guid != pool.0);
        handed.len() < before
    }

    /// Goes on with the mounts of a pool that was opened.
    pub(crate) fn adopt(&self, pool: &Arc<OpenPool>) {
        let mine: Vec<Waiting> = {
            let mut left = self.left.lock();
            let (mine, others) = std::mem::take(&mut *left).into_iter().partition(|one| is_within(&one.note.name, &pool.name()));
            *left = others;
            mine
        };
        let heirs = pool.pool().arena().filter(|_| pool.pool().has_taken_over()).map(|arena| Heirs::of(&self.exec, arena));
        let Some(keeper) = self.keeper.get().filter(|_| !mine.is_empty()) else { return };
        let turn = self.mounter.turn();
        for Waiting { note, connection, is_of_dead } in mine {
            let (number, name, place) = (note.number, note.name.clone(), Some(note.mountpoint.clone()));
            let (by_hand, options) = (note.by_hand, note.options.clone());
            if is_of_dead && heirs.is_none() {
                tracing::error!("the mount of '{name}' is cut off: nobody knows what the daemon that died had acknowledged");
                keeper.let_go(number);
                continue;
            }
            let wish = Wish { place, by_hand, options, again: true, by_itself: false, ..Wish::by_itself(pool, &name) };
            let again = note.again();
            let copy = connection.try_clone();
            let begins = || {
                if let Ok(copy) = &copy {
                    self.holding.hold_again(pool, again, copy);
                }
                keeper.taken(number);
            };
            match self.mounter.adopt(&turn, wish, note.left(connection, heirs.clone().filter(|_| is_of_dead)), begins) {
                Ok(()) => self.holding.came(number),
                Err(failure) => {
                    tracing::error!("a mount is cut off: {failure}");
                    keeper.taken(number);
                    self.holding.let_go(number);
                }
            }
            turn.step();
        }
    }

    /// Has the keeper hold what is mounted now, should this daemon die. Nothing while devices of a pool are files in these mounts.
    pub(crate) fn hold(&self) {
        // First: what comes after this is not over.
        let told = self.holding.told();
        let pools = self.pools.all();
        let mounts: Vec<Arc<Mounted>> = pools.iter().flat_map(|pool| pool.mounts.all()).collect();
        let lasts = self.served.check_unserved(&mounts).is_ok();
        self.holding.renew(&told, if lasts { &pools } else { &[] });
    }

    /// Cuts off what nobody goes on with: who uses it gets errors, and it is mounted again as after a death.
    pub(crate) fn cut_off_rest(&self) {
        self.holding.drop_left();
        let rest = std::mem::take(&mut *self.left.lock());
        if rest.is_empty() {
            return;
        }
        for waiting in &rest {
            tracing::error!("the mount of '{}' is cut off: its pool is not open", waiting.note.name);
        }
        drop(rest);
        if let Some(keeper) = self.keeper.get() {
            keeper.done();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Who is told of a broken pipe does not know what broke, nor that the daemon goes on, nor what helps.
    #[test]
    fn a_keeper_that_is_gone_is_named_with_what_helps() {
        for kind in [io::ErrorKind::BrokenPipe, io::ErrorKind::ConnectionRefused] {
            let said = not_kept(&kind.into());
            assert!(said.why.starts_with("the process that keeps its mounts") && said.next.is_some(), "{said}");
        }
        assert_eq!(not_kept(&io::Error::other("no memory")).why, "no memory");
    }
}
