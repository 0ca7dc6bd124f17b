//! How long a dRAID takes to rebuild a device onto its distributed spare: the more children, the less each of them has to do.
//!
//! Every layout is filled alike. The devices' caps are a fraction of those of the other table, so that they decide and not the
//! processors, which stand for a whole machine's. The layouts are such that a slice is as short as it can be (16 MiB of each child): where
//! the spare's part of it lies changes with every slice, and on small devices longer ones would leave most children without a part.

use super::args::Args;
use super::disks::Disks;
use super::life::{Life, Rebuilt};
use crate::layout::Layout;
use crate::measure::{GIB, Samples, Verdicts};

/// Number by which the devices' bandwidth is divided.
const SLOWER: u64 = 5;
/// Bytes of the cache's budget: half of it may be in flight.
const CACHE_BYTES: u64 = 1 << 30;
/// Factor by which twice the children must rebuild faster.
const DOUBLED_MIN: f64 = 1.8;

/// Figures of the turns of one layout.
#[derive(Default)]
struct Figures {
    mib: Samples,
    seconds: Samples,
    rate: Samples,
    cpu: Samples,
}

impl Figures {
    fn add(&mut self, rebuilt: &Rebuilt) {
        self.mib.push((rebuilt.written >> 20) as f64);
        self.seconds.push(rebuilt.seconds);
        self.rate.push(rebuilt.written as f64 / 1e6 / rebuilt.seconds);
        self.cpu.push(rebuilt.cpu / (rebuilt.written as f64 / GIB));
    }
}

/// Measures every layout, once in each turn, and prints a row for each; a layout with twice the children of the first is judged.
pub fn measure(args: &Args, verdicts: &mut Verdicts) -> Result<(), String> {
    let count = args.rebuild_layout.iter().map(|layout| layout.devices).max().unwrap_or(1);
    let devices = Disks::create(args, count, args.rebuild_device_mib << 20, SLOWER)?;
    println!("\nsequential rebuild onto a distributed spare, {}, {} % full", devices.describe(), args.fill_percent);
    println!("{:<20} {:>8} {:>7} {:>4} {:>7} {:>9} {:>8}", "layout", "MiB", "s", "±%", "MB/s", "cpu s/GiB", "× faster");
    let mut table: Vec<(Layout, Figures)> = args.rebuild_layout.iter().map(|&layout| (layout, Figures::default())).collect();
    for _ in 0..args.turns.max(1) {
        for (layout, figures) in &mut table {
            let life = Life::begin(args, *layout, &devices, CACHE_BYTES)?;
            figures.add(&life.rebuild(&devices)?);
            life.end()?;
        }
    }
    let slow = table.first().map(|(layout, figures)| (*layout, figures.seconds.median()));
    for (layout, figures) in &table {
        print_row(*layout, figures, slow.unwrap_or((*layout, f64::NAN)), verdicts);
    }
    Ok(())
}

fn print_row(layout: Layout, figures: &Figures, (slow, seconds): (Layout, f64), verdicts: &mut Verdicts) {
    let faster = seconds / figures.seconds.median();
    let verdict = if layout.devices == 2 * slow.devices { verdicts.judge(faster >= DOUBLED_MIN) } else { "" };
    println!(
        "{:<20} {:>8.0} {:>7.2} {:>4.0} {:>7.1} {:>9.3} {faster:>8.2} {verdict}",
        layout.to_string(),
        figures.mib.median(),
        figures.seconds.median(),
        figures.seconds.spread_percent(),
        figures.rate.median(),
        figures.cpu.median(),
    );
}
