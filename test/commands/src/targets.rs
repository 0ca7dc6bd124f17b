//! `zirconia-commands targets [CUTS [KILLS]] [--seed S]`: connections of iSCSI are cut off at random bytes CUTS times, and the daemon is killed at the
//! fiftieth PDU of a session KILLS times; nothing acknowledged is lost, and nothing of what ended stays.
//!
//! Each initiator has a part of a volume for itself, and remembers of each block which values it may read there: the last one whose write was
//! answered, and those whose writes were cut off. After a death of the daemon those count that were written since the last durable one: a write past
//! the cache (FUA), or a flush behind it. In the end a hundred sessions are there at once; when they have ended the daemon has no more descriptors, no
//! session, and not much more memory than before.

use crate::initiator::{End, PATIENCE, Session, free_port, moving};
use crate::kills::Chance;
use crate::waiting::until;
use crate::world::{Failure, Options, World, same};
use std::ops::Range;
use std::path::Path;
use std::time::Instant;

const CUTS: u64 = 10_000;
const KILLS: u64 = 40;
/// PDU of a session at which the daemon dies.
const DEADLY_PDU: u64 = 50;
/// Number of kills before the daemon is started anew: the supervisor waits longer after each.
const KILLS_OF_A_SUPERVISOR: u64 = 3;
/// Number of initiators whose connections are cut off at the same time.
const INITIATORS: u32 = 8;
/// Number of sessions that are there at once in the end.
const SESSIONS: u32 = 100;
const BLOCK: usize = 512;
/// Number of blocks of one initiator.
const PART: usize = 96;
/// Descriptors that a daemon may have more than before: those of commands that ask it.
const DESCRIPTORS: usize = 8;
/// Memory in KiB that a daemon may take more than before.
const MEMORY_KIB: u64 = 64 << 10;

/// Reason why an initiator does not go on.
enum Stop {
    /// End of the connection.
    Over,
    /// Something is wrong.
    Fault(String),
}

/// Values that a block may have: number of the write, 0 for zeros.
struct Block {
    /// Values that it may have now.
    now: Vec<u32>,
    /// Values that it may have after a death of the daemon.
    later: Vec<u32>,
}

/// Blocks of one initiator.
struct Part {
    first: u32,
    blocks: Vec<Block>,
    writes: u32,
}

fn filled(block: u32, value: u32) -> Vec<u8> {
    if value == 0 { vec![0; BLOCK] } else { [block.to_le_bytes(), value.to_le_bytes()].concat().repeat(BLOCK / 8) }
}

impl Part {
    fn new(index: u32) -> Part {
        let blocks = (0..PART).map(|_| Block { now: vec![0], later: vec![0] }).collect();
        Part { first: index * PART as u32, blocks, writes: 0 }
    }

    /// A write of `value` begins: it may be there from now on.
    fn begins(&mut self, run: Range<usize>, value: u32) {
        for block in &mut self.blocks[run] {
            block.now.push(value);
            block.later.push(value);
        }
    }

    /// A write was answered.
    fn ends(&mut self, run: Range<usize>, value: u32, is_durable: bool) {
        for block in &mut self.blocks[run] {
            block.now = vec![value];
            if is_durable {
                block.later = vec![value];
            }
        }
    }

    /// A flush was answered.
    fn flushed(&mut self) {
        self.blocks.iter_mut().for_each(|block| block.later.clone_from(&block.now));
    }

    /// The daemon died.
    fn died(&mut self) {
        self.blocks.iter_mut().for_each(|block| block.now.clone_from(&block.later));
    }

    /// Takes what was read of a run of blocks; with `is_settled` nothing of it is in memory alone.
    fn read(&mut self, run: Range<usize>, bytes: &[u8], is_settled: bool) -> Result<(), Stop> {
        if bytes.len() != run.len() * BLOCK {
            return Err(Stop::Fault(format!("{} bytes of {} blocks were read", bytes.len(), run.len())));
        }
        for (index, found) in run.zip(bytes.chunks(BLOCK)) {
            let (block, number) = (&mut self.blocks[index], self.first + index as u32);
            let Some(value) = block.now.iter().copied().find(|value| filled(number, *value) == found) else {
                let began = &found[..8];
                return Err(Stop::Fault(format!("block {number} should have one of {:?} and begins with {began:?}", block.now)));
            };
            block.now = vec![value];
            if is_settled {
                block.later = vec![value];
            }
        }
        Ok(())
    }
}

/// Carries out a command that has to succeed, unless the connection ends.
fn command(session: &mut Session, cdb: &[u8], out: &[u8], expected: usize) -> Result<Vec<u8>, Stop> {
    match session.command(cdb, out, expected) {
        Ok((0, data)) => Ok(data),
        Ok((status, _)) => Err(Stop::Fault(format!("command {:#04x} ended with {status:#04x}", cdb[0]))),
        Err(error) => Err(over(&*error)),
    }
}

/// Stop for an error of a connection: one that is silent is a fault.
fn over(error: &(dyn std::error::Error + 'static)) -> Stop {
    use std::io::ErrorKind::{TimedOut, WouldBlock};
    match error.downcast_ref::<std::io::Error>() {
        Some(error) if matches!(error.kind(), WouldBlock | TimedOut) => Stop::Fault(format!("no answer in {} s", PATIENCE.as_secs())),
        _ => Stop::Over,
    }
}

/// Initiator with a part of the volume.
struct Initiator {
    port: u16,
    index: u32,
    part: Part,
    chance: Chance,
    /// True when the daemon died since the part was read as a whole.
    is_after_death: bool,
    answered: u64,
}

impl Initiator {
    fn new(port: u16, index: u32, seed: u64) -> Initiator {
        let chance = Chance((seed + u64::from(index)).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        Initiator { port, index, part: Part::new(index), chance, is_after_death: false, answered: 0 }
    }

    /// Logs in, in the place of the session before, and looks at everything.
    fn begin(&mut self, end: End) -> Result<Session, Stop> {
        let mut session = match Session::log_in_as(self.port, self.index + 1, end) {
            Ok(Ok(session)) => session,
            Ok(Err(status)) => return Err(Stop::Fault(format!("a login ended with {status:#06x}"))),
            Err(error) => return Err(over(&*error)),
        };
        // Status and news do not matter: the session is new, or took another one's place.
        session.command(&[0; 6], &[], 0).map_err(|error| over(&*error))?;
        let bytes = command(&mut session, &moving(0x28, 0, self.part.first, PART * BLOCK), &[], PART * BLOCK)?;
        self.part.read(0..PART, &bytes, self.is_after_death)?;
        self.is_after_death = false;
        Ok(session)
    }

    /// Works until the connection is over.
    fn live(&mut self, end: End) -> Result<(), Stop> {
        let mut session = self.begin(end)?;
        loop {
            self.step(&mut session)?;
            self.answered += 1;
        }
    }

    fn step(&mut self, session: &mut Session) -> Result<(), Stop> {
        let start = self.chance.below(PART as u64) as usize;
        let length = 1 + self.chance.below((PART - start) as u64) as usize;
        let (run, first) = (start..start + length, self.part.first + start as u32);
        match self.chance.below(8) {
            0..4 => {
                self.part.writes += 1;
                let (value, is_durable) = (self.part.writes, self.chance.below(2) == 0);
                let bytes: Vec<u8> = (first..first + length as u32).flat_map(|block| filled(block, value)).collect();
                self.part.begins(run.clone(), value);
                command(session, &moving(0x2A, if is_durable { 8 } else { 0 }, first, bytes.len()), &bytes, 0)?;
                self.part.ends(run, value, is_durable);
            }
            4 => {
                command(session, &moving(0x35, 0, 0, 0), &[], 0)?;
                self.part.flushed();
            }
            5 => {
                // WRITE SAME(16) without a block of data, which may unmap.
                let (place, count) = (u64::from(first).to_be_bytes(), (length as u32).to_be_bytes());
                self.part.begins(run.clone(), 0);
                command(session, &[&[0x93, 0x09][..], &place, &count, &[0; 2]].concat(), &[], 0)?;
                self.part.ends(run, 0, false);
            }
            _ => {
                let bytes = command(session, &moving(0x28, 0, first, length * BLOCK), &[], length * BLOCK)?;
                self.part.read(run, &bytes, false)?;
            }
        }
        Ok(())
    }

    /// Is cut off so many times, at random bytes: in the login, while it looks, and behind that.
    fn is_cut(&mut self, cuts: u64) -> Result<(), String> {
        for _ in 0..cuts {
            let bytes = match self.chance.below(4) {
                0 => 1 + self.chance.below(1000),
                1 => 1 + self.chance.below(60_000),
                _ => 60_000 + self.chance.below(200_000),
            };
            if let Err(Stop::Fault(why)) = self.live(End::Bytes(bytes as usize)) {
                return Err(why);
            }
        }
        self.look()
    }

    /// Looks at everything, over a connection that is not cut off.
    fn look(&mut self) -> Result<(), String> {
        match self.begin(End::Never) {
            Ok(_) => Ok(()),
            Err(Stop::Over) => Err("a connection ended that nobody cut off".into()),
            Err(Stop::Fault(why)) => Err(why),
        }
    }
}

/// Descriptors of the daemon, and its memory in KiB.
fn held(world: &World) -> Result<(usize, u64), Failure> {
    let daemon = world.daemon()?;
    let status = std::fs::read_to_string(format!("/proc/{daemon}/status"))?;
    let memory = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).and_then(|rest| rest.split_whitespace().next()?.parse().ok());
    Ok((std::fs::read_dir(format!("/proc/{daemon}/fd"))?.count(), memory.ok_or("      no VmRSS")?))
}

fn sessions(world: &World) -> Result<usize, Failure> {
    Ok(world.ok("zirconia target sessions -H")?.out.lines().count())
}

/// Waits until nothing of any session is there.
fn nothing_stays(world: &World, before: (usize, u64)) -> Result<(), Failure> {
    until("the end of all sessions", || Ok(sessions(world)? == 0))?;
    until("the end of all descriptors", || Ok(held(world)?.0 <= before.0 + DESCRIPTORS))?;
    let memory = held(world)?.1;
    let is_bounded = memory <= before.1 + MEMORY_KIB;
    if is_bounded { Ok(()) } else { Err(format!("      memory: {memory} KiB, and {} before", before.1).into()) }
}

/// Cuts connections of several initiators at the same time; returns how many commands were answered.
fn cut(initiators: &mut [Initiator], cuts: u64) -> Result<u64, Failure> {
    let each = cuts.div_ceil(initiators.len() as u64);
    let outcomes: Vec<Result<(), String>> = std::thread::scope(|scope| {
        let threads: Vec<_> = initiators.iter_mut().map(|initiator| scope.spawn(move || initiator.is_cut(each))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err("an initiator failed".into()))).collect()
    });
    outcomes.into_iter().collect::<Result<(), String>>().map_err(|why| format!("      {why}"))?;
    Ok(initiators.iter().map(|initiator| initiator.answered).sum())
}

/// Starts the daemon, or waits for the one that the supervisor starts: both have the port.
fn start(world: &World, port: u16) -> Result<(), Failure> {
    world.ok_with(("ZIRCONIA_ISCSI", Path::new(&port.to_string())), "zpool status tank")?.shows("state: ONLINE")?;
    until("the target", || Ok(Session::log_in_as(port, 0, End::Never).is_ok_and(|session| session.is_ok())))
}

/// Kills the daemon at a PDU of a session, again and again.
fn kill(world: &World, initiator: &mut Initiator, kills: u64) -> Result<(), Failure> {
    for number in 1..=kills {
        match initiator.live(End::Death(DEADLY_PDU, world.daemon()?)) {
            Ok(()) | Err(Stop::Over) => {}
            Err(Stop::Fault(why)) => return Err(format!("      kill {number}: {why}").into()),
        }
        initiator.part.died();
        initiator.is_after_death = true;
        start(world, initiator.port)?;
        if number.is_multiple_of(KILLS_OF_A_SUPERVISOR) {
            world.ok("zirconia stop")?;
            start(world, initiator.port)?;
        }
        initiator.look().map_err(|why| format!("      after kill {number}: {why}"))?;
    }
    Ok(())
}

/// Has so many sessions at once, each of which writes and reads.
fn many(world: &World, port: u16, count: u32) -> Result<(), Failure> {
    let mut open = Vec::new();
    for isid in 1000..1000 + count {
        let mut session = Session::log_in_as(port, isid, End::Never)?.map_err(|status| format!("      login {isid}: {status:#06x}"))?;
        session.command(&[0; 6], &[], 0)?;
        open.push((isid, session));
    }
    same("sessions", sessions(world)?, count as usize)?;
    for (isid, session) in &mut open {
        session.write(*isid * 8, &filled(*isid, 1))?;
    }
    for (isid, session) in &mut open {
        same("what one of many wrote", session.read(*isid * 8, BLOCK)? == filled(*isid, 1), true)?;
    }
    Ok(())
}

/// Extent of a campaign.
struct Extent {
    cuts: u64,
    kills: u64,
    initiators: u32,
    sessions: u32,
}

fn run(world: &World, extent: &Extent, seed: u64) -> Result<(), Failure> {
    let begun = Instant::now();
    let tell = |what: &str| println!("      {what} ({:.1} s)", begun.elapsed().as_secs_f64());
    world.vdevs(&["a", "log"])?;
    let port = free_port()?;
    let make = "zpool create -O mountpoint=none tank {vdevs}/a log {vdevs}/log";
    world.ok_with(("ZIRCONIA_ISCSI", Path::new(&port.to_string())), make)?;
    world.ok("zfs set zirconia:share.iscsi=on tank")?;
    world.ok("zfs create -s -V 16m tank/vol")?;
    world.ok(&format!("zirconia target allow tank/vol {}", crate::initiator::INITIATOR))?;
    start(world, port)?;
    let mut initiators: Vec<Initiator> = (0..extent.initiators).map(|index| Initiator::new(port, index, seed)).collect();
    // What is taken once is taken before anything is compared.
    cut(&mut initiators, extent.cuts / 10)?;
    until("the end of all sessions", || Ok(sessions(world)? == 0))?;
    let before = held(world)?;
    let answered = cut(&mut initiators, extent.cuts)?;
    nothing_stays(world, before)?;
    tell(&format!("{} connections cut off, {answered} commands answered", extent.cuts));
    many(world, port, extent.sessions)?;
    nothing_stays(world, before)?;
    tell(&format!("{} sessions at once", extent.sessions));
    kill(world, &mut initiators[0], extent.kills)?;
    tell(&format!("{} daemons killed", extent.kills));
    for initiator in &mut initiators[1..] {
        initiator.part.died();
        initiator.look().map_err(|why| format!("      after the kills: {why}"))?;
    }
    until("the end of all sessions", || Ok(sessions(world)? == 0))?;
    world.ok("zpool export tank")?;
    world.clean(&crate::world::judge("targets: OpenZFS's judgement")?, "-e -p {vdevs} -bcch tank").map(drop)
}

/// Runs a short campaign, for the gate.
pub fn sample(world: &World) -> Result<(), Failure> {
    run(world, &Extent { cuts: 80, kills: 2, initiators: 3, sessions: 20 }, world.options().seed.unwrap_or(1))
}

fn wish(mut words: impl Iterator<Item = String>) -> Option<(Extent, u64)> {
    let (mut numbers, mut seed): (Vec<u64>, u64) = (Vec::new(), 1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--seed" => seed = words.next()?.parse().ok()?,
            number => numbers.push(number.parse().ok()?),
        }
    }
    let number = |index: usize, usual| numbers.get(index).copied().unwrap_or(usual);
    let extent = Extent { cuts: number(0, CUTS), kills: number(1, KILLS), initiators: INITIATORS, sessions: SESSIONS };
    (numbers.len() <= 2).then_some((extent, seed))
}

/// Runs the campaign; false when something was lost, or stays.
pub fn main(words: impl Iterator<Item = String>) -> bool {
    let Some((extent, seed)) = wish(words) else {
        eprintln!("usage: zirconia-commands targets [CUTS [KILLS]] [--seed S]");
        return false;
    };
    let outcome = World::new(Options::default()).and_then(|world| {
        run(&world, &extent, seed).inspect_err(|_| {
            println!("--- log\n{}", std::fs::read_to_string(world.path("state/zirconiad.log")).unwrap_or_default());
        })
    });
    match outcome {
        Ok(()) => {
            println!("ok    targets, seed {seed}");
            true
        }
        Err(failure) => {
            println!("FAIL  targets, seed {seed}\n{failure}");
            false
        }
    }
}
