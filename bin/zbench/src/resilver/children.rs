//! How long a dRAID takes to rebuild a device onto its distributed spare: the more children, the less each of them has to do.
//!
//! Every layout is filled alike. The devices' caps are a fraction of those of the other table, so that they decide and not the
//! processors, which stand for a whole machine's. The layouts are such that a slice is as short as it can be (16 MiB of each child): where
//! the spare's part of it lies changes with every slice, and on small devices longer ones would leave most children without a part.

use super::Args;
use super::disks::Disks;
use super::life::Life;
use crate::layout::Layout;
use crate::measure::{GIB, Verdicts};

/// The devices' bandwidth is divided by this.
const SLOWER: u64 = 5;
/// Half of it may be in flight.
const CACHE_BYTES: u64 = 1 << 30;
/// Twice the children must rebuild so many times as fast.
const DOUBLED_MIN: f64 = 1.8;

/// Measures every layout and prints a row for each; a layout with twice the children of the first is judged.
pub fn measure(args: &Args, verdicts: &mut Verdicts) -> Result<(), String> {
    let count = args.rebuild_layout.iter().map(|layout| layout.devices).max().unwrap_or(1);
    let devices = Disks::create(args, count, args.rebuild_device_mib << 20, SLOWER)?;
    println!("\nsequential rebuild onto a distributed spare, {}, {} % full", devices.describe(), args.fill_percent);
    println!("{:<20} {:>8} {:>7} {:>7} {:>9} {:>8}", "layout", "MiB", "s", "MB/s", "cpu s/GiB", "× faster");
    let mut first: Option<(Layout, f64)> = None;
    for &layout in &args.rebuild_layout {
        let life = Life::begin(args, layout, &devices, CACHE_BYTES)?;
        let rebuilt = life.rebuild(&devices)?;
        life.end()?;
        let (slow, seconds) = *first.get_or_insert((layout, rebuilt.seconds));
        let faster = seconds / rebuilt.seconds;
        let verdict = if layout.devices == 2 * slow.devices { verdicts.judge(faster >= DOUBLED_MIN) } else { "" };
        println!(
            "{:<20} {:>8} {:>7.2} {:>7.1} {:>9.3} {faster:>8.2} {verdict}",
            layout.to_string(),
            rebuilt.written >> 20,
            rebuilt.seconds,
            rebuilt.written as f64 / 1e6 / rebuilt.seconds,
            rebuilt.cpu / (rebuilt.written as f64 / GIB),
        );
    }
    Ok(())
}
