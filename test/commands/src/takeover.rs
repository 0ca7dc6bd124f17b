//! `zirconia-commands takeover [N] [--seed S]`: a pool with `multihost=on` goes from one host to another N times, under an initiator of iSCSI.
//!
//! Two daemons with ids of their own reach the same devices (`ZIRCONIA_SHARED_DEVICES`). In each round the one without the pool is refused it, by force
//! too; then the other one is killed, or stands still, at a random moment, and the first one has the pool within half a minute, with every dataset whose
//! creation was answered. The initiator goes on there: it finds all that was acknowledged, its reservation holds, and nothing comes back that it
//! overwrote since. Who was killed comes back and is refused; who stood still goes on, with requests of the initiator in its hands, and writes nothing.
//! In the end `zdb` finds no leak.

use crate::initiator::{INITIATOR, PATIENCE, Session, WRITE_EXCLUSIVE, free_port, moving};
use crate::kills::Chance;
use crate::mounts::kill_both;
use crate::multihost::{Side, shared_pool};
use crate::waiting::until;
use crate::world::{Failure, Options, World, judge, same};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const ROUNDS: u64 = 50;
/// Number of rounds of one pool.
const ROUNDS_OF_A_POOL: u64 = 5;
/// Milliseconds between heartbeats after the first round: what is waited for becomes shorter.
const INTERVAL_MS: &str = "500";
/// Another initiator, which the reservation of the first one keeps from writing.
const RIVAL: &str = "iqn.2026-11.example:b";
/// Key of the reservation, and SCSI's status of a command that it keeps off.
const KEY: u64 = 0x7A69_7263_6F6E;
const RESERVATION_CONFLICT: u8 = 0x18;
/// Bytes of a cell, the blocks of the disk that it takes, and the number of cells.
const CELL: usize = 4096;
const CELL_BLOCKS: u32 = 8;
const CELLS: u64 = 512;
/// Time after which the initiator takes its target for dead, and its pause between two tries.
const DEAD: Duration = Duration::from_secs(2);
const AGAIN: Duration = Duration::from_millis(50);

fn cell(number: u64) -> Vec<u8> {
    number.to_le_bytes().repeat(CELL / 8)
}

/// Number of a cell, if it is one as a whole.
fn number_of(bytes: &[u8]) -> Option<u64> {
    let first: [u8; 8] = bytes.get(..8)?.try_into().ok()?;
    bytes.chunks(8).all(|word| word == first).then(|| u64::from_le_bytes(first))
}

/// Writes of the initiator, by their place.
#[derive(Default)]
struct Told {
    /// Number of the newest one.
    last: u64,
    /// Number of those that were acknowledged.
    count: u64,
    acknowledged: BTreeMap<u64, u64>,
    /// Newer ones, of which nobody knows.
    tried: BTreeMap<u64, Vec<u64>>,
}

impl Told {
    /// Notes that the next cell is about to be written; gives its place and its number.
    fn begin(&mut self) -> (u64, u64) {
        self.last += 1;
        let place = self.last % CELLS;
        self.tried.entry(place).or_default().push(self.last);
        (place, self.last)
    }

    fn acknowledge(&mut self, (place, number): (u64, u64)) {
        self.count += 1;
        self.acknowledged.insert(place, number);
        self.tried.remove(&place);
    }

    fn may_have(&self, place: u64, number: u64) -> bool {
        number == self.acknowledged.get(&place).copied().unwrap_or(0) || self.tried.get(&place).is_some_and(|tried| tried.contains(&number))
    }
}

/// Initiator that writes cells to whichever host has the disk.
struct Initiator {
    ports: [u16; 2],
    told: Arc<Mutex<Told>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Initiator {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
    }
}

fn lock(told: &Mutex<Told>) -> MutexGuard<'_, Told> {
    told.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Initiator {
    fn new(ports: [u16; 2]) -> Initiator {
        Initiator { ports, told: Arc::default(), stop: Arc::default(), thread: None }
    }

    fn start(&mut self) {
        self.stop = Arc::default();
        let (ports, told, stop) = (self.ports, self.told.clone(), self.stop.clone());
        let work = move || {
            let mut session: Option<Session> = None;
            for port in ports.into_iter().cycle() {
                // As long as a session lasts: then the other host, in turn.
                while let Some(open) = &mut session {
                    if stop.load(Ordering::Acquire) {
                        return;
                    }
                    let next = lock(&told).begin();
                    match open.write(next.0 as u32 * CELL_BLOCKS, &cell(next.1)) {
                        Ok(()) => lock(&told).acknowledge(next),
                        Err(_) => session = None,
                    }
                }
                if stop.load(Ordering::Acquire) {
                    return;
                }
                session = Session::of(INITIATOR, port, DEAD).ok();
                if session.is_none() {
                    std::thread::sleep(AGAIN);
                }
            }
        };
        self.thread = Some(std::thread::spawn(work));
    }

    /// Waits until something is acknowledged that was not before.
    fn goes_on(&self) -> Result<(), Failure> {
        let before = lock(&self.told).count;
        // One may have been acknowledged by the host before.
        until("the initiator goes on", || Ok(lock(&self.told).count > before + 1))
    }

    fn finish(&mut self) -> Result<(), Failure> {
        self.stop.store(true, Ordering::Release);
        let Some(thread) = self.thread.take() else { return Ok(()) };
        until("the initiator comes back from its last command", || Ok(thread.is_finished()))?;
        thread.join().map_err(|_| "      the initiator failed".into())
    }

    /// Checks, while nothing is written, that the disk at this port has what was acknowledged, and whose reservation it is.
    fn check(&self, port: u16, when: &str) -> Result<(), Failure> {
        let mut session = Session::new(port)?;
        let told = lock(&self.told);
        for place in 0..CELLS {
            let found = number_of(&session.read(place as u32 * CELL_BLOCKS, CELL)?);
            if !found.is_some_and(|number| told.may_have(place, number)) {
                let (acknowledged, tried) = (told.acknowledged.get(&place), told.tried.get(&place));
                return Err(
                    format!("      {when}: place {place} has {found:?}: acknowledged {acknowledged:?}, tried since {tried:?}").into()
                );
            }
        }
        let mut rival = Session::of(RIVAL, port, PATIENCE)?;
        same(&format!("{when}: reservations"), rival.reservations()?, (vec![KEY], Some((KEY, WRITE_EXCLUSIVE))))?;
        let kept_off = rival.command(&moving(0x2A, 0, 0, 512), &[0xFF; 512], 0)?.0;
        same(&format!("{when}: a write of who has no reservation"), kept_off, RESERVATION_CONFLICT)
    }
}

/// A host that serves its pools' volumes.
struct Host<'a> {
    side: Side<'a>,
    port: u16,
}

impl Host<'_> {
    fn variables(&self) -> String {
        format!("ZIRCONIA_ISCSI={}", self.port)
    }

    fn begin(&self) -> Result<(), Failure> {
        self.side.begin_with(&self.variables())?;
        for initiator in [INITIATOR, RIVAL] {
            self.side.world.ok(&format!("zirconia target allow tank/vol {initiator}"))?;
        }
        Ok(())
    }
}

/// End of a host's time with the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Killed,
    StandsStill,
}

/// The initiator, what was answered, and where the devices are.
struct Work {
    initiator: Initiator,
    answered: Vec<String>,
    vdevs: String,
}

/// One round: `owner` ends so, at a moment that `chance` gives, and `other` has the pool.
fn round(owner: &Host<'_>, other: &Host<'_>, work: &mut Work, (end, chance): (End, &mut Chance)) -> Result<(), Failure> {
    let Work { initiator, answered, vdevs } = work;
    initiator.goes_on()?;
    for _ in 0..3 {
        let name = format!("tank/d{}", answered.len());
        owner.side.world.ok(&format!("zfs create -o canmount=off {name}"))?;
        answered.push(name);
    }
    other.side.is_refused(vdevs)?;
    initiator.goes_on()?;
    let daemon = owner.side.world.daemon()?;
    std::thread::sleep(Duration::from_millis(chance.below(1200)));
    if end == End::Killed {
        kill_both(owner.side.world)?;
    } else {
        owner.side.world.ok(&format!("kill -STOP {daemon}"))?;
    }
    let taken = other.side.take(vdevs, Instant::now()).and_then(|()| initiator.goes_on());
    if end == End::StandsStill {
        owner.side.world.ok(&format!("kill -CONT {daemon}"))?;
    }
    taken?;
    match end {
        End::Killed => owner.side.comes_back(vdevs, &owner.variables())?,
        End::StandsStill => owner.side.goes_on()?,
    }
    other.side.has_all(answered)?;
    initiator.goes_on()?;
    initiator.finish()?;
    initiator.check(other.port, &format!("{end:?}"))?;
    initiator.start();
    Ok(())
}

/// Runs some rounds of one pool, and the judgement; in a `hurry` also the first one is short. Gives the number of acknowledged writes.
fn pool(world: &World, (rounds, seed): (u64, u64), hurry: bool) -> Result<u64, Failure> {
    let zdb = judge("take-overs: OpenZFS's judgement")?;
    let elsewhere = World::new(world.options())?;
    let mut chance = Chance(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let ports = [free_port()?, free_port()?];
    let mut owner = Host { side: Side { world, id: "0x11" }, port: ports[0] };
    let mut other = Host { side: Side { world: &elsewhere, id: "0x12" }, port: ports[1] };
    owner.begin()?;
    other.begin()?;
    let vdevs = shared_pool(&owner.side)?;
    if hurry {
        owner.side.hurry(INTERVAL_MS);
    }
    world.ok("zfs create -V 16m tank/vol")?;
    world.ok("zfs set zirconia:share.iscsi=on tank/vol")?;
    let mut work = Work { initiator: Initiator::new(ports), answered: Vec::new(), vdevs };
    let mut session = None;
    until("the first login", || {
        session = Session::new(ports[0]).ok();
        Ok(session.is_some())
    })?;
    session.ok_or("      no session")?.reserve(KEY)?;
    work.initiator.start();
    for number in 0..rounds {
        let end = if (number + seed).is_multiple_of(2) { End::StandsStill } else { End::Killed };
        round(&owner, &other, &mut work, (end, &mut chance)).map_err(|error| format!("      round {number}, {end:?}:\n{error}"))?;
        std::mem::swap(&mut owner, &mut other);
        owner.side.hurry(INTERVAL_MS);
    }
    work.initiator.finish()?;
    // A session that ended a moment ago may have the volume still.
    until("the pool's last export", || Ok(owner.side.world.run("zpool export tank")?.code == 0))?;
    other.side.world.clean(&zdb, &format!("-e -p {} -bcch tank", work.vdevs))?;
    Ok(lock(&work.initiator.told).count)
}

/// Runs two rounds, one of each end, for the gate.
pub fn sample(world: &World) -> Result<(), Failure> {
    pool(world, (2, world.options().seed.unwrap_or(1)), true).map(drop)
}

/// Runs the campaign; false when something was lost, damaged or late.
pub fn main(mut words: impl Iterator<Item = String>) -> bool {
    let (mut rounds, mut first) = (ROUNDS, 1);
    while let Some(word) = words.next() {
        let (place, text) = if word == "--seed" { (&mut first, words.next().unwrap_or_default()) } else { (&mut rounds, word) };
        let Ok(number) = text.parse() else {
            eprintln!("usage: zirconia-commands takeover [N] [--seed S]");
            return false;
        };
        *place = number;
    }
    let (mut done, mut failed, mut acknowledged) = (0, 0, 0);
    for seed in first.. {
        if done >= rounds {
            break;
        }
        let now = ROUNDS_OF_A_POOL.min(rounds - done);
        done += now;
        let begun = Instant::now();
        match World::new(Options::default()).and_then(|world| pool(&world, (now, seed), false)) {
            Ok(count) => {
                acknowledged += count;
                println!("ok    {done} of {rounds} take-overs ({:.1} s); acknowledged: {count} writes", begun.elapsed().as_secs_f64());
            }
            Err(failure) => {
                println!("FAIL  take-overs up to {done}\n{failure}\n      again: cargo xtask takeover {now} --seed {seed}");
                failed += 1;
            }
        }
    }
    println!("{done} take-overs, {failed} pools failed; {acknowledged} writes were acknowledged");
    failed == 0 && done > 0
}
