//! The process is killed after each operation, killed again while the next one replays, and then the power goes off.

use crate::arena::bed::{Killed, Served, Tree, copied, difference, seen};
use crate::arena::steps::{Effect, Programs};
use sim::{CrashChoice, cuts_every};
use zil::Request;

/// Operations of which the answers are held back for a while, with what must be known of them.
struct Unanswered {
    request: Request,
    effect: (u64, u64),
    until: u64,
}

/// Run of programs, with all that they were ever shown.
struct Run {
    served: Served,
    programs: Programs,
    /// States after each operation, with the files that were open without names.
    states: Vec<(Tree, Vec<u64>)>,
    /// First state that a power cut may leave.
    durable: usize,
    /// First state that a kill may leave.
    answered: usize,
    unanswered: Vec<Unanswered>,
    gaps: u64,
}

impl Run {
    fn new(seed: u64, arena_bytes: u64, properties: &[(&str, &str)]) -> Run {
        let served = Served::new(arena_bytes, properties);
        let states = vec![(seen(&served.zfs, []), Vec::new())];
        served.pool.sync().expect("synced");
        Run { served, programs: Programs::new(seed), states, durable: 0, answered: 0, unanswered: Vec::new(), gaps: 0 }
    }

    /// One operation, answered as the server of a mount answers it.
    fn step(&mut self, number: u64) -> Result<Effect, zpl::ZplError> {
        let arena = self.served.arena();
        let request = arena.begin(number);
        let txg = self.served.pool.txg();
        let effect = self.programs.step(&self.served);
        arena.left();
        let is_synced = self.served.pool.txg() > txg;
        let nameless = self.programs.nameless(&self.served.zfs);
        self.states.push((seen(&self.served.zfs, nameless.iter().copied()), nameless));
        if arena.is_settled() {
            self.answered = self.states.len() - 1;
        } else {
            self.gaps += 1;
        }
        if is_synced && effect == Ok(None) {
            self.durable = self.states.len() - 1;
        }
        if let Ok(Some(effect)) = effect {
            self.unanswered.push(Unanswered { request, effect, until: number + number % 7 });
        }
        self.unanswered.retain(|unanswered| unanswered.until >= number);
        effect
    }

    /// Everything that was answered is there, and nothing half.
    fn check(&self, next: &Served, what: &str) {
        let is_settled = self.served.arena().is_settled();
        let tried: Vec<String> = (self.answered..self.states.len())
            .rev()
            .filter(|state| !is_settled || *state + 1 == self.states.len())
            .map_while(|state| {
                let (tree, nameless) = &self.states[state];
                let open = nameless.iter().copied().filter(|object| next.zfs.node(ondisk::ObjectId(*object)).is_ok());
                difference(tree, &seen(&next.zfs, open), true)
            })
            .collect();
        let possible = if is_settled { 1 } else { self.states.len() - self.answered };
        assert!(tried.len() < possible, "{what}, last answered {} of {}: {}", self.answered, self.states.len(), tried.join("\n"));
        if is_settled {
            for Unanswered { request, effect: (object, bytes), .. } in &self.unanswered {
                let done = next.arena().was_done(next.objset, request.unique());
                let known = done.map(|done| (if *object == 0 { 0 } else { done.object }, if *bytes == 0 { 0 } else { done.bytes }));
                assert_eq!(known, Some((*object, *bytes)), "{what}: request {}", request.unique());
            }
        }
    }
}

fn kill_after_each(seed: u64, steps: u64, arena_bytes: u64, properties: &[(&str, &str)]) -> u64 {
    let mut run = Run::new(seed, arena_bytes, properties);
    let again_every = cuts_every(23) as u64;
    for number in 1..=steps {
        let effect = run.step(number);
        let what = format!("seed {seed}, killed after step {number}, {effect:?}");
        let killed = run.served.killed();
        let next = Served::taken_over(killed.clone());
        run.check(&next, &what);
        if number % again_every == 0 {
            killed_again(&run, &killed, &next, &what);
            power_cut(&run, killed, &what);
            next.end(&what);
        }
        // As the server does before it answers.
        run.served.arena().wait_settled().expect("synced");
        run.answered = run.states.len() - 1;
    }
    let gaps = run.gaps;
    run.programs.close_all(&run.served.zfs);
    run.served.end(&format!("seed {seed}, at the end"));
    gaps
}

/// Killed at some moments of the replay: the next finds the same.
fn killed_again(run: &Run, killed: &Killed, next: &Served, what: &str) {
    let inherited = next.pool.txg();
    let recording = next.sim.take_recording();
    let stamped = copied(&*next.arena());
    recording.each_cut((cuts_every(11), 0), &mut |cut| {
        let images = cut.images(CrashChoice::Applied);
        let third = Served::taken_over(Killed { images: images.clone(), arena: copied(&stamped) });
        run.check(&third, &format!("{what}, killed again at {} with everything done", cut.events));
        // Before the txg that has everything was begun, the arena said so of none.
        let read_only = Served::opened(images.clone(), None);
        if read_only.pool.txg().0 + 2 < inherited.0 {
            let guid = third.pool.guid().0;
            let arena = copied(&killed.arena);
            let same = arena.try_clone().expect("a descriptor");
            drop(zil::Arena::adopt(same, guid, run.served.pool.txg()).expect("it is sound"));
            let fourth = Served::taken_over(Killed { images, arena });
            run.check(&fourth, &format!("{what}, killed again at {}", cut.events));
        }
    });
}

/// The power goes off while the next one takes over, or after it: the arena is gone.
fn power_cut(run: &Run, killed: Killed, what: &str) {
    let next = Served::taken_over(killed);
    let recording = next.sim.take_recording();
    recording.each_cut((cuts_every(7), 0), &mut |cut| {
        for choice in [CrashChoice::Lost, CrashChoice::Random(cut.events as u64)] {
            let found = Served::opened(cut.images(choice), None);
            let tree = seen(&found.zfs, []);
            let is_any = (run.durable..run.states.len()).rev().any(|state| {
                let wanted = run.states[state].0.iter().filter(|(path, _)| path.starts_with('/'));
                wanted.map(|(path, seen)| (path, &seen.whole)).eq(tree.iter().map(|(path, seen)| (path, &seen.whole)))
            });
            let last = difference(&run.states[run.durable].0, &tree, false);
            assert!(is_any, "{what}, {choice:?} at {}: nothing from state {} on; {last:?}", cut.events, run.durable);
        }
    });
}

#[test]
fn whoever_goes_on_finds_all_that_was_answered() {
    for seed in 1..=3 {
        let gaps = kill_after_each(seed, 160, 4 << 20, &[]);
        assert!(gaps < 40, "nearly all can be told: {gaps}");
    }
}

#[test]
fn a_file_system_that_promises_nothing_is_found_whole_too() {
    kill_after_each(11, 120, 4 << 20, &[("sync", "disabled")]);
}

#[test]
fn with_a_small_arena_answers_wait() {
    let gaps = kill_after_each(21, 120, 64 << 10, &[]);
    assert!(gaps > 5, "little has room: {gaps}");
}
