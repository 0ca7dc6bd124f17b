//! One case from its pool to the judgement of what is left.

use super::deadlines::{CHANGE, Deadline, FORCE, LOOK, OPEN, READ};
use super::pulled::Pulled;
use super::writer::{Writer, check_file};
use super::{Case, Disturbance};
use crate::world::{Failure, Ran, Running, VDEV_BYTES, World};
use std::time::{Duration, Instant};

/// Time within which the daemon does what it does by itself.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time for work on the whole pool: scrubs, resilvers.
const WORK: Duration = Duration::from_secs(180);
const STEP: Duration = Duration::from_millis(50);
/// Number of words of the file that is there from the beginning.
const BASE_WORDS: u32 = 4 << 20;
/// Number of cases of which one is judged by zdb.
const JUDGED: usize = 3;
/// Milliseconds that an I/O takes on a device that hangs.
const HANG_MS: u64 = 40_000;
/// Number of I/Os that hang at a time: with fewer lanes those that come later would wait for those before them.
const HANG_LANES: u64 = 256;
/// Parameters by which what hangs is soon given up.
const DEADMAN: [(&str, &str); 3] =
    [("zfs_deadman_failmode", "continue"), ("zfs_deadman_ziotime_ms", "1000"), ("zfs_deadman_checktime_ms", "500")];

/// Command that came closest to its deadline.
struct Slowest {
    line: String,
    took: Duration,
    of: Duration,
}

/// Case that runs.
struct Run<'a> {
    world: &'a World,
    case: &'a Case,
    base: Vec<u8>,
    slowest: Slowest,
    pulled: Option<Pulled>,
}

/// Runs a case; returns which command was slowest.
pub fn run(world: &World, case: &Case, seed: u64) -> Result<String, Failure> {
    let base = (0..BASE_WORDS).flat_map(|word| word.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    let slowest = Slowest { line: String::new(), took: Duration::ZERO, of: LOOK.time() };
    let mut run = Run { world, case, base, slowest, pulled: None };
    let done = run.run(seed);
    if done.is_err()
        && let Ok(log) = std::fs::read_to_string(world.path("state/zirconiad.log"))
    {
        println!("--- the daemon's log\n{log}");
    }
    done?;
    let Slowest { line, took, of } = run.slowest;
    Ok(format!("slowest: {line} {:.1} s of {}", took.as_secs_f64(), of.as_secs()))
}

impl Run<'_> {
    fn run(&mut self, seed: u64) -> Result<(), Failure> {
        let operation = self.case.operation;
        self.prepare()?;
        let mut load = operation.load.then(|| Writer::start(self.world.path("mnt/tank/load"), seed));
        if let Some(load) = &load {
            self.until("the load begins", |_| Ok(load.promised() >= 3))?;
        }
        self.set_parameters(true)?;
        let deadline = if operation.name == "import" { OPEN } else { CHANGE };
        let running = self.world.start(operation.begin, deadline.time())?;
        self.under_way(seed)?;
        self.disturb()?;
        // The daemon that was killed took them along.
        if self.case.disturbance != Disturbance::Kill {
            self.set_parameters(false)?;
        }
        self.probe()?;
        if self.case.disturbance == Disturbance::HangAll {
            self.calm()?;
            self.note_end(running, deadline)?;
        } else {
            self.note_end(running, deadline)?;
            self.calm()?;
        }
        self.settle(load.as_mut())?;
        self.judge(load.as_ref())
    }

    /// Makes the pool, with a file in it.
    fn prepare(&mut self) -> Result<(), Failure> {
        let operation = self.case.operation;
        self.world.vdevs(&["a", "b", "c", "d", "x", "y"])?;
        if self.case.disturbance == Disturbance::Pull {
            self.pulled = Some(Pulled::put_over(self.world, operation.hit)?);
        }
        let mode = if self.case.disturbance == Disturbance::Continue { "continue" } else { "wait" };
        self.ok(&format!("zpool create -f -o failmode={mode} -m {{mnt}}/tank -O compression=off tank {}", operation.layout), CHANGE)?;
        std::fs::create_dir(self.world.path("mnt/tank/load"))?;
        std::fs::write(self.world.path("mnt/tank/base"), &self.base)?;
        self.ok("zpool sync tank", CHANGE)?;
        operation.before.iter().try_for_each(|line| self.ok(line, CHANGE).map(drop))
    }

    fn set_parameters(&self, held: bool) -> Result<(), Failure> {
        for (name, until, then) in self.case.operation.hold {
            self.set_parameter(name, if held { until } else { then })?;
        }
        Ok(())
    }

    fn set_parameter(&self, name: &str, value: &str) -> Result<(), Failure> {
        Ok(std::fs::write(self.world.path(&format!("state/sys/module/zfs/parameters/{name}")), value)?)
    }

    /// Waits until the operation can be seen, or for a moment that follows from the seed.
    fn under_way(&mut self, seed: u64) -> Result<(), Failure> {
        match self.case.operation.seen {
            Some((line, text)) => self.until(&format!("'{text}'"), |run| Ok(run.ok(line, LOOK)?.out.contains(text))),
            None => {
                let moment = (seed.wrapping_mul(0x9E37_79B9).wrapping_add(self.case.index as u64 * 7919)) % 40;
                std::thread::sleep(Duration::from_millis(moment));
                Ok(())
            }
        }
    }

    /// Names of the devices that the pool has now.
    fn devices(&self) -> Vec<&'static str> {
        let named = |name: &&'static str| self.case.operation.layout.contains(&format!("/{name}"));
        let mut devices: Vec<&str> = ["a", "b", "c", "d", "x", "y"].into_iter().filter(named).collect();
        if self.case.operation.begin.contains("/x") && !devices.contains(&"x") {
            devices.push("x");
        }
        devices
    }

    fn disturb(&mut self) -> Result<(), Failure> {
        let hit = self.case.operation.hit;
        let place = self.world.path(&format!("vdevs/{hit}"));
        match self.case.disturbance {
            Disturbance::Kill => {
                self.world.ok(&format!("kill -9 {}", self.world.daemon()?))?;
            }
            Disturbance::Unplug => {
                // The order in which a kernel does it: I/O fails, then the name goes.
                self.any(&format!("zinject -d {{vdevs}}/{hit} -e nxio -T all -f 100 tank"), CHANGE)?;
                std::fs::rename(&place, self.world.path("away"))?;
            }
            Disturbance::Pull => self.pulled.as_ref().map_or(Ok(()), Pulled::pull)?,
            Disturbance::Empty => std::fs::OpenOptions::new().write(true).open(&place)?.set_len(0)?,
            Disturbance::Errors => {
                self.any(&format!("zinject -d {{vdevs}}/{hit} -e io -T all -f 100 tank"), CHANGE)?;
            }
            Disturbance::Hang => {
                for (name, value) in DEADMAN {
                    self.set_parameter(name, value)?;
                }
                self.any(&format!("zinject -d {{vdevs}}/{hit} -D {HANG_MS}:{HANG_LANES} tank"), CHANGE)?;
            }
            Disturbance::HangAll => {
                for device in self.devices() {
                    self.any(&format!("zinject -d {{vdevs}}/{device} -D {HANG_MS}:{HANG_LANES} tank"), CHANGE)?;
                }
            }
            Disturbance::Suspend | Disturbance::Continue | Disturbance::GiveUp => {
                for device in self.devices() {
                    self.any(&format!("zinject -d {{vdevs}}/{device} -e io -T all -f 100 tank"), CHANGE)?;
                }
            }
        }
        // A forced export may have been faster.
        if self.case.disturbance.suspends() && self.case.operation.name != "export-f" {
            self.until("the pool is suspended", |run| Ok(run.ok("zpool list -H -o health tank", LOOK)?.out.contains("SUSPENDED")))?;
        }
        Ok(())
    }

    /// Runs every kind of command while the case is at its worst.
    fn probe(&mut self) -> Result<(), Failure> {
        if self.case.disturbance == Disturbance::Kill {
            self.any("zpool list", OPEN)?;
        }
        for line in ["zpool status tank", "zpool list -v", "zpool get all tank", "zpool iostat -v tank", "zpool events -H"] {
            self.any(line, LOOK)?;
        }
        if self.case.disturbance == Disturbance::HangAll {
            return Ok(());
        }
        for line in ["zfs list", "zfs get all tank", "zpool history -i tank", "zpool status -v tank"] {
            self.any(line, READ)?;
        }
        for line in ["zpool set comment=disturbed tank", "zfs snapshot tank@disturbed", "zpool clear tank", "zpool sync tank"] {
            self.any(line, CHANGE)?;
        }
        self.any("zpool import -d {vdevs}", OPEN)?;
        Ok(())
    }

    /// Ends the disturbance.
    fn calm(&mut self) -> Result<(), Failure> {
        let place = self.world.path(&format!("vdevs/{}", self.case.operation.hit));
        if matches!(self.case.disturbance, Disturbance::GiveUp | Disturbance::HangAll) && self.is_imported()? {
            self.ok("zpool export -f tank", FORCE)?;
            if self.is_imported()? {
                return Err("      the pool is still there after a forced export".into());
            }
        }
        match self.case.disturbance {
            Disturbance::Kill => {}
            Disturbance::Unplug => std::fs::rename(self.world.path("away"), &place)?,
            Disturbance::Pull => self.pulled.as_ref().map_or(Ok(()), Pulled::put_back)?,
            Disturbance::Empty => std::fs::OpenOptions::new().write(true).open(&place)?.set_len(VDEV_BYTES)?,
            _ => {}
        }
        self.ok("zinject -c all", CHANGE).map(drop)
    }

    fn is_imported(&mut self) -> Result<bool, Failure> {
        Ok(self.ok("zpool list -H -o name", OPEN)?.out.lines().any(|name| name == "tank"))
    }

    /// Uses the pool again, and waits until everything that goes on ends.
    fn settle(&mut self, load: Option<&mut Writer>) -> Result<(), Failure> {
        if !self.is_imported()? {
            // As soon as devices that hung have answered what the pool that was given up had asked them.
            match self.case.disturbance {
                Disturbance::Hang | Disturbance::HangAll => self.until_ok("zpool import -d {vdevs} tank", OPEN)?,
                _ => self.ok("zpool import -d {vdevs} tank", OPEN)?,
            };
        }
        self.ok("zpool clear tank", CHANGE)?;
        if let Some(load) = load {
            load.finish(PATIENCE)?;
        }
        for line in self.case.operation.after {
            self.any(line, CHANGE)?;
        }
        let hit = self.case.operation.hit;
        let begun = Instant::now();
        loop {
            self.world.start("zpool wait tank", WORK)?.finish()?;
            let status = self.ok("zpool status tank", LOOK)?;
            if status.out.contains("state: ONLINE") && !status.out.contains("UNAVAIL") {
                break;
            }
            if begun.elapsed() > PATIENCE {
                return Err(status.fault("the pool does not become whole again"));
            }
            if self.case.disturbance == Disturbance::Empty {
                self.any(&format!("zpool replace -f tank {{vdevs}}/{hit}"), CHANGE)?;
            }
            self.ok("zpool clear tank", CHANGE)?;
            std::thread::sleep(STEP);
        }
        Ok(())
    }

    /// Checks that nothing that was promised is lost, here and after an import; zdb agrees.
    fn judge(&mut self, load: Option<&Writer>) -> Result<(), Failure> {
        self.check_files(load, "when it is over")?;
        // An entry of the error log, of what could not be read for a while, goes with the second scrub.
        for _ in 0..2 {
            self.scrub()?;
        }
        self.ok("zpool status -v tank", READ)?.shows("errors: No known data errors")?;
        self.ok("zpool export tank", CHANGE)?;
        self.ok("zpool import -d {vdevs} tank", OPEN)?;
        self.check_files(load, "after an import")?;
        self.ok("zpool export tank", CHANGE)?;
        if self.case.index.is_multiple_of(JUDGED) {
            let zdb = crate::world::judge("campaign: OpenZFS's judgement")?;
            self.world.clean(&zdb, "-e -p {vdevs} -bcch tank")?;
        }
        Ok(())
    }

    /// Scrubs the pool. A spare may just have come for a device in which the scrub before found too much wrong: what it gets ends first, and it goes
    /// when the device that it stood in for, which has everything again, is cleared.
    fn scrub(&mut self) -> Result<(), Failure> {
        let begun = Instant::now();
        loop {
            let (scrub, _) = self.world.start("zpool scrub -w tank", WORK)?.finish()?;
            if scrub.code == 0 {
                return Ok(());
            }
            if !scrub.err.contains("currently resilvering") || begun.elapsed() > PATIENCE {
                return Err(scrub.fault("it should succeed"));
            }
            self.world.start("zpool wait tank", WORK)?.finish()?;
            self.ok("zpool clear tank", CHANGE)?;
        }
    }

    fn check_files(&self, load: Option<&Writer>, when: &str) -> Result<(), Failure> {
        check_file(&self.world.path("mnt/tank/base"), &self.base, when)?;
        load.map_or(Ok(()), |load| load.check(when))
    }

    /// Runs a command that may fail, but not be late.
    fn any(&mut self, line: &str, deadline: Deadline) -> Result<Ran, Failure> {
        let (ran, took) = self.world.start(line, deadline.time())?.finish()?;
        self.note(&ran, took, deadline);
        Ok(ran)
    }

    /// Runs a command that must succeed.
    fn ok(&mut self, line: &str, deadline: Deadline) -> Result<Ran, Failure> {
        let ran = self.any(line, deadline)?;
        if ran.code == 0 { Ok(ran) } else { Err(ran.fault("it should succeed")) }
    }

    /// Runs a command again and again until it succeeds.
    fn until_ok(&mut self, line: &str, deadline: Deadline) -> Result<Ran, Failure> {
        let begun = Instant::now();
        loop {
            let ran = self.any(line, deadline)?;
            if ran.code == 0 {
                return Ok(ran);
            }
            if begun.elapsed() > PATIENCE {
                return Err(ran.fault("it should succeed in the end"));
            }
            std::thread::sleep(STEP);
        }
    }

    fn note_end(&mut self, running: Running, deadline: Deadline) -> Result<(), Failure> {
        let (ran, took) = running.finish()?;
        self.note(&ran, took, deadline);
        Ok(())
    }

    fn note(&mut self, ran: &Ran, took: Duration, deadline: Deadline) {
        let of = deadline.time();
        if took.as_secs_f64() / of.as_secs_f64() > self.slowest.took.as_secs_f64() / self.slowest.of.as_secs_f64() {
            let line = ran.line().replace(&format!("{}/", self.world.at("vdevs")), "");
            self.slowest = Slowest { line, took, of };
        }
    }

    fn until(&mut self, what: &str, mut is_so: impl FnMut(&mut Self) -> Result<bool, Failure>) -> Result<(), Failure> {
        let begun = Instant::now();
        while !is_so(self)? {
            if begun.elapsed() > PATIENCE {
                return Err(format!("      {what}: does not come").into());
            }
            std::thread::sleep(STEP);
        }
        Ok(())
    }
}
