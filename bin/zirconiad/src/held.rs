//! What the keeper has of a daemon that lives, so that mounts outlive one that dies: connections of mounts and arenas of pools, each with notes on
//! it, and the lock of the state directory (docs/adr/0018).
//!
//! Invariant: what waits was held when a daemon died, and no daemon since has said that it goes on with it, or that it has ended.

use crate::keeper::DEADLINE;
use crate::line::Word;
use rustix::fd::OwnedFd;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

/// Number of daemons that may crash on the way to go on with what one left, before all of it is cut off.
const CRASHES_MAX: u32 = 2;
/// Time that a daemon has to live after it went on with everything: what it was sent again may be what crashes it.
const SURVIVAL: Duration = Duration::from_secs(2);

/// Kind of a daemon's death.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Death {
    /// Somebody killed it, a person or the system that has no memory left: nothing that it was asked did.
    Killed,
    /// Something that the daemon did itself ended it: whoever is asked the same may end so too.
    Crashed,
}

impl Death {
    /// Kind of an end.
    pub fn of(status: ExitStatus) -> Death {
        if status.signal() == Some(SIGKILL) { Death::Killed } else { Death::Crashed }
    }
}

/// Number of the signal that nobody sends to himself.
const SIGKILL: i32 = 9;

/// Something held: notes on it, and its descriptor.
struct Thing {
    notes: OwnedFd,
    descriptor: OwnedFd,
}

/// Wait of what is held for the daemon that goes on with it.
struct Waiting {
    /// Time since which not everything was served.
    since: Instant,
    numbers: BTreeSet<u32>,
    /// Number of daemons that crashed in a row, each on the way or just after it.
    crashes: u32,
    /// Time since which nothing waits.
    over: Option<Instant>,
}

/// Things that outlive a daemon that dies, by their numbers.
#[derive(Default)]
pub struct Held {
    things: BTreeMap<u32, Thing>,
    lock: Option<OwnedFd>,
    waiting: Option<Waiting>,
}

impl Held {
    /// Holds something; what had its number goes.
    pub fn hold(&mut self, number: u32, notes: OwnedFd, descriptor: OwnedFd) {
        self.things.insert(number, Thing { notes, descriptor });
        self.goes_on(number);
    }

    /// Lets go of what has ended.
    pub fn let_go(&mut self, number: u32) {
        self.things.remove(&number);
        self.goes_on(number);
    }

    /// Holds the lock of the state directory.
    pub fn hold_lock(&mut self, lock: OwnedFd) {
        self.lock = Some(lock);
    }

    fn goes_on(&mut self, number: u32) {
        if let Some(waiting) = &mut self.waiting {
            waiting.numbers.remove(&number);
            if waiting.numbers.is_empty() && waiting.over.is_none() {
                waiting.over = Some(Instant::now());
                tracing::info!("the daemon goes on with all that the one before left: nothing waits");
            }
        }
    }

    /// Lets go of all.
    pub fn clear(&mut self) {
        *self = Held::default();
    }

    /// Lets go of what no daemon has gone on with: it is cut off.
    pub fn clear_waiting(&mut self) {
        let Some(waiting) = &mut self.waiting else { return };
        for number in std::mem::take(&mut waiting.numbers) {
            self.things.remove(&number);
        }
        waiting.over.get_or_insert_with(Instant::now);
    }

    /// Notes that the daemon has died: what it had waits for the next. Nothing does after too many crashes on the way: a request that crashes every
    /// daemon which gets it would keep all mounts from being used. Of those that were killed none counts, however soon it was: programs
    /// wait as long as the deadline lets them, from the first death on after which no daemon went on with everything.
    pub fn died(&mut self, death: Death, now: Instant) {
        let before = self.waiting.take();
        let on_the_way = |waiting: &&Waiting| waiting.over.is_none_or(|over| now.saturating_duration_since(over) < SURVIVAL);
        let crashes = before.as_ref().filter(on_the_way).map_or(0, |waiting| waiting.crashes) + u32::from(death == Death::Crashed);
        if self.things.is_empty() || crashes > CRASHES_MAX {
            if !self.things.is_empty() {
                tracing::error!("{crashes} daemons crashed one after the other: the mounts are cut off");
            }
            return self.clear();
        }
        let since = before.filter(|waiting| waiting.over.is_none()).map_or(now, |waiting| waiting.since);
        self.waiting = Some(Waiting { since, numbers: self.things.keys().copied().collect(), crashes, over: None });
    }

    /// True while something waits for the next daemon.
    pub fn is_waiting(&self) -> bool {
        self.waiting.as_ref().is_some_and(|waiting| waiting.over.is_none())
    }

    /// True when anything is held.
    pub fn has_any(&self) -> bool {
        !self.things.is_empty()
    }

    /// True when the lock of the state directory is held.
    pub fn has_lock(&self) -> bool {
        self.lock.is_some()
    }

    /// Time at which what waits is cut off.
    pub fn deadline(&self) -> Option<Instant> {
        self.waiting.as_ref().filter(|waiting| waiting.over.is_none()).map(|waiting| waiting.since + DEADLINE)
    }

    /// Words for a daemon that begins.
    pub fn words(&self) -> io::Result<Vec<Word>> {
        let mut words = Vec::new();
        if let Some(lock) = &self.lock {
            words.push(Word::Lock(lock.try_clone()?));
        }
        for (number, thing) in &self.things {
            words.push(Word::Held(*number, thing.notes.try_clone()?, thing.descriptor.try_clone()?));
        }
        Ok(words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nothing() -> OwnedFd {
        std::fs::File::open("/dev/null").expect("there").into()
    }

    fn with(numbers: &[u32]) -> Held {
        let mut held = Held::default();
        numbers.iter().for_each(|number| held.hold(*number, nothing(), nothing()));
        held
    }

    fn numbers(held: &Held) -> Vec<u32> {
        let number = |word: Word| if let Word::Held(number, ..) = word { Some(number) } else { None };
        held.words().expect("words").into_iter().filter_map(number).collect()
    }

    /// If this fails, a mount that was unmounted comes back to the next daemon, or one that is in use is lost with the daemon.
    #[test]
    fn what_a_daemon_had_when_it_died_is_the_next_ones() {
        let mut held = with(&[1, 2, 3]);
        held.let_go(2);
        assert!(!held.is_waiting() && held.deadline().is_none());
        let now = Instant::now();
        held.died(Death::Killed, now);
        assert_eq!((numbers(&held), held.deadline()), (vec![1, 3], Some(now + DEADLINE)));
        held.hold(1, nothing(), nothing());
        assert!(held.is_waiting());
        held.let_go(3);
        assert!(!held.is_waiting() && held.deadline().is_none(), "one goes on, the other has ended");
        assert_eq!(numbers(&held), [1]);
        Held::default().died(Death::Killed, now);
    }

    /// If this fails, programs wait for ever for a mount whose pool does not come back, or are cut off from one that is served.
    #[test]
    fn only_what_was_not_gone_on_with_is_cut_off() {
        let mut held = with(&[1, 2]);
        held.died(Death::Killed, Instant::now());
        held.hold(1, nothing(), nothing());
        held.clear_waiting();
        assert_eq!((numbers(&held), held.is_waiting()), (vec![1], false));
        held.clear_waiting();
        assert_eq!(numbers(&held), [1]);
    }

    /// Has a daemon go on with everything at that time.
    fn go_on(held: &mut Held, at: Instant) {
        held.hold(1, nothing(), nothing());
        held.waiting.iter_mut().for_each(|waiting| waiting.over = Some(at));
    }

    /// If this fails, a request that crashes every daemon which gets it keeps all mounts from being used, for ever.
    #[test]
    fn daemons_that_crash_on_the_way_are_counted_others_are_not() {
        let now = Instant::now();
        let mut held = with(&[1]);
        for death in 0..20_u32 {
            held.died(Death::Crashed, now + death * 10 * SURVIVAL);
            assert!(held.is_waiting(), "each went on, and lived for a while");
            go_on(&mut held, now + death * 10 * SURVIVAL);
        }
        held.died(Death::Crashed, now + 1000 * SURVIVAL);
        held.died(Death::Crashed, now + 1001 * SURVIVAL);
        assert!(held.is_waiting(), "one crashed before it went on");
        assert_eq!(held.deadline(), Some(now + 1000 * SURVIVAL + DEADLINE), "programs wait since the first");
        go_on(&mut held, now + 1002 * SURVIVAL);
        held.died(Death::Crashed, now + 1002 * SURVIVAL + SURVIVAL / 2);
        assert!(!held.is_waiting() && numbers(&held).is_empty(), "the next at once after that");
    }

    /// If this fails, mounts that a person or the system kills the daemon of again and again are taken from programs that could go on.
    #[test]
    fn daemons_that_are_killed_one_soon_after_the_other_leave_their_mounts() {
        let mut now = Instant::now();
        let mut held = with(&[1]);
        for death in 0..1000_u32 {
            held.died(Death::Killed, now);
            assert_eq!(held.deadline(), Some(now + DEADLINE), "the one before went on with everything");
            go_on(&mut held, now + Duration::from_millis(50));
            now += Duration::from_millis(100 + u64::from(death % 7) * 300);
        }
        let first = now;
        for death in 0..100_u32 {
            held.died(Death::Killed, first + death * Duration::from_millis(100));
            assert_eq!(held.deadline(), Some(first + DEADLINE), "nobody goes on: programs wait since the first");
        }
    }

    /// If this fails, a daemon that is killed between two crashes makes the second one the first.
    #[test]
    fn a_kill_between_crashes_takes_none_of_them_back() {
        let now = Instant::now();
        let mut held = with(&[1]);
        for death in [Death::Crashed, Death::Killed, Death::Crashed, Death::Killed] {
            held.died(death, now);
            assert!(held.is_waiting());
            go_on(&mut held, now);
        }
        held.died(Death::Crashed, now);
        assert!(!held.is_waiting() && numbers(&held).is_empty());
        let status = ExitStatus::from_raw;
        assert_eq!([9, 6, 11, 1].map(|signal| Death::of(status(signal))), [Death::Killed, Death::Crashed, Death::Crashed, Death::Crashed]);
    }
}
