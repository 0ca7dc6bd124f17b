//! `zbench mount`: what many small files cost through the mount, beside ext4 on a loop device of the same disk and a trivial in-memory
//! file system behind the same FUSE server, which is the floor of our transport.
//!
//! The subjects take turns step by step of a whole life of files, once with clients and server on one processor and once wherever the
//! kernel puts them; medians count. A bound is a multiple of ext4's time; the floor's multiple of the same run stands beside it.

mod places;
mod steps;

use crate::files::Scratch;
use crate::machine::Machine;
use crate::measure::{Samples, Verdicts, text};
use crate::sys;
use clap::Args as ClapArgs;
use places::{Kind, Place};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;
use steps::{STEPS, Work};

/// What to measure.
#[derive(ClapArgs, Debug)]
pub struct Args {
    /// Directory for the pool's and ext4's files, and the archive
    #[arg(long, default_value = "/var/tmp")]
    dir: PathBuf,
    /// Number of files in the archive
    #[arg(long, default_value_t = 9000)]
    files: usize,
    /// Number of writes of 100 bytes
    #[arg(long, default_value_t = 40_000)]
    writes: usize,
    /// Turns; medians count
    #[arg(long, default_value_t = 3)]
    reps: usize,
    /// Only with all on one processor (1), or only wherever the kernel puts them (0); both without it
    #[arg(long)]
    pinned: Option<u8>,
    /// Our file system mounted with a write-back cache (`zfs mount -o writeback`), too
    #[arg(long)]
    writeback: bool,
    /// Option of the daemon for FUSE over io_uring: off, auto or on
    #[arg(long, default_value = "auto")]
    uring: String,
}

/// Figures of one step of one subject, per operation.
#[derive(Clone, Default)]
struct Cell {
    /// Microseconds of the wall clock.
    wall: Samples,
    /// Microseconds of the server's processors.
    cpu: Samples,
    /// Number of requests.
    requests: Samples,
}

/// Figures by subject and step.
struct Table {
    kinds: Vec<Kind>,
    cells: Vec<Vec<Cell>>,
}

impl Table {
    fn new(kinds: &[Kind]) -> Table {
        Table { kinds: kinds.to_vec(), cells: vec![vec![Cell::default(); STEPS.len()]; kinds.len()] }
    }

    /// Takes one place through all steps.
    fn fill(&mut self, subject: usize, place: &Place, work: &Work) -> Result<(), String> {
        for (step, cell) in STEPS.iter().zip(&mut self.cells[subject]) {
            (step.prepare)(work, place.root())?;
            let operations = (step.operations)(work) as f64;
            let (requests, cpu, clock) = (place.requests(), place.cpu_seconds(), Instant::now());
            if !(step.run)(work, place.root())? {
                continue;
            }
            cell.wall.push(clock.elapsed().as_secs_f64() * 1e6 / operations);
            cell.cpu.push((place.cpu_seconds() - cpu) * 1e6 / operations);
            if let Some((before, after)) = requests.zip(place.requests()) {
                cell.requests.push((after - before) as f64 / operations);
            }
            place.settle()?;
        }
        Ok(())
    }

    fn print(&self, verdicts: &mut Verdicts) {
        print!("\n{:<16} {:>9} {:>4}", "step", "ext4 µs", "±%");
        for kind in &self.kinds[1..] {
            print!(" | {:>11} µs {:>6} {:>4} {:>6} {:>5}", kind.name(), "× ext4", "±%", "CPU µs", "req.");
        }
        println!(" | bound");
        for (number, step) in STEPS.iter().enumerate() {
            let ext4 = &self.cells[0][number].wall;
            if ext4.count() == 0 {
                println!("{:<16} not measured: {}", step.name, step.needs);
                continue;
            }
            print!("{:<16} {:>9.2} {:>4.0}", step.name, ext4.median(), ext4.spread_percent());
            let mut judged = String::new();
            for (kind, cells) in self.kinds.iter().zip(&self.cells).skip(1) {
                let cell = &cells[number];
                let ratio = cell.wall.median() / ext4.median();
                print!(" | {:>14.2} {ratio:>6.2} {:>4.0}", cell.wall.median(), cell.wall.spread_percent());
                print!(" {:>6.2} {:>5.2}", cell.cpu.median(), cell.requests.median());
                if let Some(bound) = step.bound(*kind) {
                    judged.push_str(&format!(" {bound} × {}", verdicts.judge(ratio <= bound)));
                }
            }
            println!(" |{judged}");
        }
    }
}

fn measure_all(args: &Args, verdicts: &mut Verdicts) -> Result<(), String> {
    println!("{}", Machine::describe().header());
    let scratch = Scratch::new(&args.dir)?;
    let work = Work::new(&scratch.path, args.files, args.writes)?;
    println!(
        "{} files of {} KiB in {} folders, {} writes of 100 B; per operation, medians of {} turns",
        work.files(),
        work.kib(),
        work.folders(),
        args.writes,
        args.reps
    );
    let mut kinds = vec![Kind::Ext4, Kind::Memory, Kind::Ours];
    kinds.extend(args.writeback.then_some(Kind::WriteBack));
    for pinned in [true, false] {
        if args.pinned.is_some_and(|only| (only != 0) != pinned) {
            continue;
        }
        let processor = pinned.then_some(0);
        let mut table = Table::new(&kinds);
        for _ in 0..args.reps.max(1) {
            for (subject, kind) in kinds.iter().enumerate() {
                let place = Place::make(*kind, &scratch.path, work.bytes() * 6 + (768 << 20), &args.uring)?;
                place.pin(processor);
                sys::pin(0, processor);
                let filled = table.fill(subject, &place, &work);
                sys::pin(0, None);
                filled?;
            }
        }
        println!("\n{}", if pinned { "clients and server on one processor" } else { "wherever the kernel puts clients and server" });
        table.print(verdicts);
    }
    Ok(())
}

/// Runs the measurement and prints its tables; 2 when a bound was missed.
pub fn run(args: &Args) -> ExitCode {
    match ["off", "auto", "on"].contains(&args.uring.as_str()) {
        true => Verdicts::conclude("mount", |verdicts| measure_all(args, verdicts)),
        false => Verdicts::conclude("mount", |_| Err(text("--uring is off, auto or on"))),
    }
}
