//! Forced end of any number of mounts, within one deadline for all: each is asked to leave, and nobody waits for one before the next is asked.
//!
//! What left its place and does not end is in another mount namespace: it is cut off a while later, each while the others have theirs.

use crate::mount::patience::Patience;
use exec::{Condvar, Exec, Mutex};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Nanoseconds without progress (a path leads through a server that does not answer) after which everything is cut off at once.
const STALL_NS: u64 = 2_000_000_000;
/// Longest time in nanoseconds for the forced end of mounts without one of them ending: a thousand take longer, on a busy machine. Below
/// the patience of whoever waits for a suspended pool, so that who waits is told of the mounts.
const FORCED_NS: u64 = 8_000_000_000;
/// Nanoseconds since the command began after which everything is cut off at once, however well it goes.
const ASKING_NS: u64 = 25_000_000_000;
/// Nanoseconds since the command began after which it answers, whatever has not ended: below the deadline of commands (docs/deadlines.md), as pools
/// are closed after that.
const ALL_NS: u64 = 40_000_000_000;

const STEP: Duration = Duration::from_millis(20);
/// Nanoseconds between looks at mounts that have requests under way.
const LOOK_NS: u64 = 100_000_000;

/// Answer of a mount that was asked to leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// Gone from the place that was meant; it goes on at others.
    GoesOn,
    /// Gone from all places that this process sees: it ends, unless another mount namespace has it.
    Left,
    /// Cut off.
    Cut,
}

/// Mount that is to leave by force.
pub(crate) trait Outgoing: Clone + Send + 'static {
    /// Path at which it is, or was last.
    fn place(&self) -> PathBuf;
    /// True when it is mounted at this path.
    fn is_at(&self, place: &Path) -> bool;
    /// Has it leave, or cuts it off; its server is asked nothing once `is_hard`.
    fn ask(&self, is_hard: &AtomicBool) -> Asked;
    /// True while the kernel keeps it for somebody.
    fn is_alive(&self) -> bool;
    /// Cuts it off.
    fn cut(&self);
    /// True when its last request is answered.
    fn has_ended(&self) -> bool;
    /// Waits for that, some nanoseconds long.
    fn wait_end(&self, patience_ns: u64);
    /// Takes it away, which was cut and has ended, from the place where it is still.
    fn detach_dead(&self);
    /// Notes that somebody goes on to wait for its end; true when somebody else does already.
    fn is_awaited(&self) -> bool;
}

#[derive(Default)]
struct Progress {
    /// Number of times that something came of it.
    steps: usize,
    /// Indices of the mounts that have not left.
    left: BTreeSet<usize>,
    /// Time since when paths are asked that may lead through a server that does not answer; none while nothing is asked.
    asking_since_ns: Option<u64>,
    /// True when nobody waits for them any more.
    is_over: bool,
}

/// State of the forced end of some mounts.
#[derive(Default)]
struct Forced {
    progress: Mutex<Progress>,
    changed: Condvar,
    /// True when nothing is asked of the servers any more.
    is_hard: AtomicBool,
    /// True when one that had left was there all the same until it was cut off.
    was_held: AtomicBool,
}

/// Mounts that are forced to leave, in this order.
///
/// What was cut stays in its place, dead, until its last request is answered, and what is around it stays as it is: were it detached before, and its
/// command said that it did not leave, programs would write beneath it what the next mount hides.
struct Forcing<M> {
    exec: Exec,
    rest: BTreeMap<usize, M>,
    /// Mounts that were asked to leave, with the time when they are cut off if they are there still; none of those that are.
    tried: BTreeMap<usize, Option<u64>>,
    /// Nanoseconds from the one to the other.
    grace_ns: u64,
    told: Arc<Forced>,
}

impl<M: Outgoing> Forcing<M> {
    /// Has them leave one after the other, and waits for those that have requests under way, also when the command does not any more.
    fn run(mut self) {
        let mut is_alone = false;
        loop {
            for index in self.rest.keys().copied().collect::<Vec<usize>>() {
                self.step(index);
            }
            if !is_alone && self.told.progress.lock().is_over {
                is_alone = true;
                // What the command did not come to goes on.
                self.rest.retain(|index, _| self.tried.contains_key(index));
                // Somebody waits for all of them already: one who repeats the command adds nothing.
                if self.rest.values().filter(|mount| !mount.is_awaited()).count() == 0 {
                    return;
                }
            }
            let Some((_, first)) = self.rest.first_key_value() else { return };
            first.wait_end(LOOK_NS);
        }
    }

    /// Has one leave, unless another one that has not lies in it, and takes it away when it has come to its end.
    fn step(&mut self, index: usize) {
        let Some(mount) = self.rest.get(&index).cloned() else { return };
        let place = mount.place();
        let is_inside = |(_, other): (&usize, &M)| {
            let inner = other.place();
            inner.starts_with(&place) && other.is_at(&inner)
        };
        if self.rest.range(..index).any(is_inside) {
            return;
        }
        let is_done = self.ask(index, &mount) || self.look_after(index, &mount);
        // It lets go of its dataset before anybody hears that it has left.
        drop(mount);
        if is_done {
            drop(self.rest.remove(&index));
        }
        let mut progress = self.told.progress.lock();
        let has_asked = progress.asking_since_ns.take().is_some();
        progress.steps += usize::from(is_done || has_asked);
        if is_done {
            progress.left.remove(&index);
        }
        drop(progress);
        self.told.changed.notify_all();
    }

    /// Asks one to leave, once; true when it goes on elsewhere.
    fn ask(&mut self, index: usize, mount: &M) -> bool {
        if self.tried.contains_key(&index) {
            return false;
        }
        self.begin_asking();
        let asked = mount.ask(&self.told.is_hard);
        let until = (asked == Asked::Left).then(|| self.exec.now_ns().saturating_add(self.grace_ns));
        self.tried.insert(index, until);
        asked == Asked::GoesOn
    }

    /// Takes one away that has ended, and cuts it off when it is there still and had its time; true for the former.
    fn look_after(&mut self, index: usize, mount: &M) -> bool {
        if mount.has_ended() {
            self.begin_asking();
            mount.detach_dead();
            return true;
        }
        let until = self.tried.get(&index).copied().flatten();
        if until.is_some_and(|until| self.exec.now_ns() >= until) {
            self.tried.insert(index, None);
            // Else the kernel has let go of it: only its last requests are to be answered.
            if mount.is_alive() {
                self.told.was_held.store(true, Ordering::Release);
                mount.cut();
            }
        }
        false
    }

    fn begin_asking(&self) {
        self.told.progress.lock().asking_since_ns = Some(self.exec.now_ns());
    }
}

/// Has mounts leave in this order, whatever has files open there, each within [`FORCED_NS`] of the one before and all within the command's deadline;
/// what is left of them did not come to its end: it is dead, stays where it is, and goes by itself when it has.
pub(crate) fn force<M: Outgoing>(exec: &Exec, list: Vec<M>, patience: &Patience) -> Vec<M> {
    let rest: BTreeMap<usize, M> = list.iter().cloned().enumerate().collect();
    let progress = Mutex::new(Progress { left: rest.keys().copied().collect(), ..Progress::default() });
    let told = Arc::new(Forced { progress, ..Forced::default() });
    let forcing = Forcing { exec: exec.clone(), rest, tried: BTreeMap::new(), grace_ns: patience.grace_ns(), told: told.clone() };
    let begun = exec.now_ns();
    let mut last = (0, begun);
    drop(exec.spawn_operation("z-unmount", Box::new(move || forcing.run())));
    let left = loop {
        let (now, age) = (exec.now_ns(), patience.age_ns());
        let mut progress = told.progress.lock();
        if progress.steps > last.0 {
            last = (progress.steps, now);
        }
        // What is forced last has a little time all the same.
        let is_late = age > ALL_NS && now.saturating_sub(begun) > STALL_NS;
        if progress.left.is_empty() || now.saturating_sub(last.1) > FORCED_NS || is_late {
            progress.is_over = true;
            break progress.left.clone();
        }
        let is_stalled = progress.asking_since_ns.is_some_and(|since| now.saturating_sub(since) > STALL_NS);
        if (is_stalled || age > ASKING_NS) && !told.is_hard.swap(true, Ordering::AcqRel) {
            let left = progress.left.clone();
            drop(progress);
            list.iter().enumerate().filter(|(index, _)| left.contains(index)).for_each(|(_, mount)| mount.cut());
            continue;
        }
        told.changed.wait_for(&mut progress, STEP);
    };
    if told.was_held.load(Ordering::Acquire) {
        patience.has_waited();
    }
    list.into_iter().enumerate().filter(|(index, _)| left.contains(index)).map(|(_, mount)| mount).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use exec::Lockstep;

    const SECOND_NS: u64 = 1_000_000_000;
    /// Nanoseconds from the moment when the kernel lets go of a mount to its end.
    const ENDING_NS: u64 = 1_000_000;

    #[derive(Default)]
    struct State {
        was_asked: bool,
        cuts: usize,
        ends_at_ns: Option<u64>,
    }

    /// Model of a mount: the kernel lets go of it when it leaves, unless it `is_held` by another mount namespace, or when it is cut off.
    #[derive(Clone)]
    struct Model {
        exec: Exec,
        place: PathBuf,
        is_held: bool,
        /// Nanoseconds that it takes to leave.
        leaving_ns: u64,
        state: Arc<Mutex<State>>,
    }

    impl Outgoing for Model {
        fn place(&self) -> PathBuf {
            self.place.clone()
        }
        fn is_at(&self, _: &Path) -> bool {
            !self.state.lock().was_asked
        }
        fn ask(&self, is_hard: &AtomicBool) -> Asked {
            let is_hard = is_hard.load(Ordering::Acquire);
            if is_hard {
                self.cut();
            } else {
                self.exec.sleep_ns(self.leaving_ns);
            }
            let mut state = self.state.lock();
            state.was_asked = true;
            if !self.is_held && state.ends_at_ns.is_none() {
                state.ends_at_ns = Some(self.exec.now_ns() + ENDING_NS);
            }
            if is_hard { Asked::Cut } else { Asked::Left }
        }
        fn is_alive(&self) -> bool {
            self.state.lock().ends_at_ns.is_none()
        }
        fn cut(&self) {
            let now = self.exec.now_ns();
            let mut state = self.state.lock();
            state.cuts += 1;
            state.ends_at_ns.get_or_insert(now + ENDING_NS);
        }
        fn has_ended(&self) -> bool {
            let ends_at = self.state.lock().ends_at_ns;
            ends_at.is_some_and(|at| at <= self.exec.now_ns())
        }
        fn wait_end(&self, patience_ns: u64) {
            let ends_at = self.state.lock().ends_at_ns;
            let left = ends_at.map_or(u64::MAX, |at| at.saturating_sub(self.exec.now_ns()));
            self.exec.sleep_ns(left.min(patience_ns));
        }
        fn detach_dead(&self) {}
        fn is_awaited(&self) -> bool {
            false
        }
    }

    fn models(exec: &Exec, count: usize, is_held: bool, leaving_ns: u64) -> Vec<Model> {
        let model = |index: usize| {
            let place = PathBuf::from(format!("/tank/{index}"));
            Model { exec: exec.clone(), place, is_held, leaving_ns, state: Arc::default() }
        };
        let mut list: Vec<Model> = (0..count).map(model).collect();
        // What all of them lie in leaves last.
        list.push(Model { place: PathBuf::from("/tank"), ..model(count) });
        list
    }

    fn cuts(list: &[Model]) -> Vec<usize> {
        list.iter().map(|model| model.state.lock().cuts).collect()
    }

    /// If this fails, `zfs destroy -rf`, `zpool export -f` and the end of the daemon take minutes where a container has copied the mounts.
    #[test]
    fn what_other_namespaces_have_is_waited_for_at_once() {
        const COUNT: usize = 300;
        let (took_ns, second_ns) = Lockstep::run_calmly(1, |exec| {
            let patience = Patience::new(exec);
            let list = models(exec, COUNT, true, 0);
            assert!(force(exec, list.clone(), &patience).is_empty());
            assert_eq!(cuts(&list), vec![1; COUNT + 1]);
            let took_ns = patience.age_ns();
            // The next tree of the same command does not wait once more.
            assert_eq!(patience.grace_ns(), 0);
            let list = models(exec, 1, true, 0);
            assert!(force(exec, list.clone(), &patience).is_empty());
            assert_eq!(cuts(&list), [1, 1]);
            (took_ns, patience.age_ns() - took_ns)
        });
        assert!(took_ns < 2 * SECOND_NS, "{took_ns} ns");
        assert!(second_ns < SECOND_NS, "{second_ns} ns");
    }

    /// If this fails, file systems that nobody else has are cut off, and programs lose what was just being answered.
    #[test]
    fn what_the_kernel_has_let_go_of_is_not_cut_off() {
        Lockstep::run_calmly(2, |exec| {
            let patience = Patience::new(exec);
            let list = models(exec, 50, false, 0);
            assert!(force(exec, list.clone(), &patience).is_empty());
            patience.has_waited();
            let late = models(exec, 50, false, 0);
            assert!(force(exec, late.clone(), &patience).is_empty());
            assert_eq!((cuts(&list), cuts(&late)), (vec![0; 51], vec![0; 51]));
        });
    }

    /// If this fails, a forced command has no deadline: each file system that is slow to leave, and not slow enough to be given up, adds its time.
    #[test]
    fn slow_ones_share_the_deadline_of_the_command() {
        let took_ns = Lockstep::run_calmly(3, |exec| {
            let patience = Patience::new(exec);
            let list = models(exec, 100, false, STALL_NS - SECOND_NS / 10);
            assert!(force(exec, list.clone(), &patience).is_empty());
            assert!(cuts(&list).iter().any(|cuts| *cuts > 0));
            patience.age_ns()
        });
        assert!(took_ns < 60 * SECOND_NS, "{took_ns} ns");
    }
}
