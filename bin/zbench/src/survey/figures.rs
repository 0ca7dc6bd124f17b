//! Single figures of the survey for those who print no survey: bare stripes, pools, devices that stand out, all in virtual time.

use super::args::Args;
use super::line::Row;
use super::load::{self, Point};
use super::rates::{Order, drives};
use super::stand::{self, User};
use super::{BARE_BYTES, DIRECTIONS};
use crate::files::DATA_START;
use crate::layout::Layout;
use crate::measure::text;
use clap::Parser;

/// Side of the drives that is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Writes
    Written,
    /// Reads
    Read,
}

/// Order in which drives are taken.
fn order(is_aware: bool) -> Order {
    if is_aware { Order::Aware } else { Order::Naive }
}

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    args: Args,
}

/// Parameters as a command line of the survey has them.
pub fn parse(line: &str) -> Result<Args, String> {
    let words = std::iter::once("survey").chain(line.split_whitespace());
    let args = Cli::try_parse_from(words).map_err(text)?.args;
    args.check()?;
    if args.on.is_some() {
        return Err("files have no virtual time".to_string());
    }
    Ok(args)
}

fn first_layout(args: &Args) -> Result<Layout, String> {
    args.layouts().first().copied().ok_or_else(|| "no number of devices".to_string())
}

fn first_point(args: &Args) -> Result<Point, String> {
    super::points(args).first().copied().ok_or_else(|| "no pair of objects and threads".to_string())
}

/// Rates in MiB/s at which bare devices as a stripe write, and read, from both controllers in turn or as they are counted: the first number of
/// devices, of sizes and of jobs.
pub fn bare(args: &Args, is_aware: bool) -> Result<[f64; 2], String> {
    let (count, point) = (first_layout(args)?.devices, first_point(args)?);
    let bytes = BARE_BYTES.max(2 * DATA_START + point.request);
    stand::with(args, &drives(count, order(is_aware)), bytes, User::Stripe, |stand| {
        Ok(super::stripe(args, stand, point.request, point.threads).map(super::mib))
    })
}

/// Row of a pool: the first layer, layout, configuration and point that the parameters name.
pub fn pool(args: &Args) -> Result<Row, String> {
    let (layout, point) = (first_layout(args)?, first_point(args)?);
    let layer = args.layers.first().copied().ok_or("no layer")?;
    let setup = super::setups(args, layer, layout).into_iter().next().ok_or("no configuration of the dataset")?;
    let (bytes, mut rows) = (super::pool_bytes(&[point], layout.devices), Vec::new());
    stand::with(args, &drives(layout.devices, Order::Aware), bytes, User::Pool, |stand| {
        load::run(stand, &setup, &[point], &mut |row| rows.push(row.clone()))
    })?;
    rows.pop().ok_or_else(|| "no row".to_string())
}

/// Rates in MiB/s at which the devices that hold data write, and read, if nothing but the drives limits them.
pub fn data_devices(args: &Args) -> Result<[f64; 2], String> {
    let count = first_layout(args)?.data_devices() as f64;
    Ok(DIRECTIONS.map(|direction| count * super::mib(args.rates().drive(direction) as f64)))
}

/// Names of the devices that are slow or err among so many, as the survey finds them with each alone.
pub fn standing_out(args: &Args) -> Result<Vec<String>, String> {
    let count = first_layout(args)?.devices;
    stand::with(args, &drives(count, Order::Naive), BARE_BYTES, User::Alone, |stand| {
        for index in 0..count {
            for direction in DIRECTIONS {
                super::judge(stand, index, direction, args.qualify_ios);
            }
        }
        let mut names: Vec<String> = stand.defects().into_iter().map(|(device, ..)| device).collect();
        names.sort_unstable();
        names.dedup();
        Ok(names)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, what others show as the survey's figures is not what it prints.
    #[test]
    fn pools_with_parity_have_the_rates_of_their_data_devices() {
        let args = parse("--layers library --layout raidz1:3 --size 16 --nobjlo 2 --nobjhi 2 --thrlo 8 --thrhi 8").expect("parameters");
        let [write, read] = data_devices(&args).expect("limits");
        let row = pool(&args).expect("ran");
        let rate = |name: &str| row.tests.iter().find(|test| test.name == name).map_or(f64::NAN, |test| test.rate);
        assert!(rate("rewrite") > 0.2 * write && rate("rewrite") < 1.6 * write, "{}", row.line());
        assert!(rate("cold") > 0.2 * read && rate("cold") < 1.6 * read, "{}", row.line());
        assert!(row.tests.iter().any(|test| test.name == "rewrite" && test.device_bytes > 1.4), "{}", row.line());
        assert!(parse("--devices 25").is_err() && parse("--on /nowhere").is_err());
    }

    /// If this fails, requests below a record cost the devices more than they ask for, or go through memory and wait for syncs: the talk's 32K on 1M.
    #[test]
    fn small_requests_in_sequence_go_as_whole_records_do() {
        let row = |request: u64| {
            let point = format!("--size 48 --nobjlo 2 --nobjhi 2 --thrlo 8 --thrhi 8 --rszlo {request} --rszhi {request}");
            pool(&parse(&format!("--layers library --devices 1 --record-kib 1024 {point}")).expect("parameters")).expect("ran")
        };
        let (whole, small) = (row(1024), row(32));
        let of = |row: &Row, name: &str| row.tests.iter().find(|test| test.name == name).cloned().unwrap_or_default();
        let lines = format!("{}\n{}", whole.line(), small.line());
        for name in ["write", "rewrite"] {
            assert!(of(&small, name).direct.is_some_and(|percent| percent >= 90.0), "{name}\n{lines}");
        }
        let synced = |row: &Row| of(row, "write").synced.unwrap_or(f64::NAN);
        assert!(synced(&small) >= 0.8 * synced(&whole), "{lines}");
        assert!(of(&small, "write").device_bytes <= 1.1, "{lines}");
        let cold = of(&small, "cold");
        assert!(cold.device_bytes <= 1.1 && cold.direct.is_some_and(|percent| percent >= 99.0), "{lines}");
    }
}
