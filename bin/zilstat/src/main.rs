//! `zilstat`: what intent logs write, as columns: of all together, or of each dataset; options and columns of OpenZFS's script.
//! It reads the statistics from the files in the state directory, as other tools do.
#![forbid(unsafe_code)]
// `println!` panics when its reader is gone: see `cli::print`.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod columns;
mod logs;

use clap::Parser;
use cli::kstat::failed;
use columns::{COLUMNS, Column, Line};
use control_api::Failure;
use logs::{Which, look};
use std::process::ExitCode;
use std::time::Duration;

/// Columns of all logs together.
const TOGETHER: &str = "time,cc,ic,idc,idb,iic,iib,imnc,imnw,imsc,imsw";
/// Columns of datasets.
const EACH: &str = "time,ds,cc,ic,idc,idb,iic,iib,imnc,imnw,imsc,imsw";
/// Exit code for options that are wrong.
const USAGE: u8 = 2;

/// Statistics of intent logs, once or at intervals.
#[derive(Debug, Parser)]
#[command(name = "zilstat", version)]
struct Arguments {
    /// Explain the columns.
    #[arg(short = 'v', long = "verbose")]
    explain: bool,
    /// A line for each dataset.
    #[arg(short = 'a', long = "all", conflicts_with_all = ["pool", "datasets"])]
    all: bool,
    /// A line for each dataset of a pool.
    #[arg(short = 'p', long = "pool", conflicts_with = "datasets")]
    pool: Option<String>,
    /// A line for each of these datasets, separated by commas.
    #[arg(short = 'd', long = "dataset", value_name = "dataset")]
    datasets: Option<String>,
    /// Columns, separated by commas.
    #[arg(short = 'f', long = "columns", value_name = "fields")]
    fields: Option<String>,
    /// After each column; two spaces.
    #[arg(short = 's', long = "separator", value_name = "string", default_value = "  ", allow_hyphen_values = true)]
    separator: String,
    /// Seconds between looks: lines tell what came to it in a second.
    #[arg(short = 'i', long = "interval", value_name = "seconds")]
    interval: Option<u32>,
}

fn main() -> ExitCode {
    if let Some(code) = cli::refuse_bytes(USAGE) {
        return code;
    }
    let arguments = match cli::parsed::<Arguments>(USAGE) {
        Ok(arguments) => arguments,
        Err(code) => return code,
    };
    if arguments.explain {
        cli::errln!("Columns:");
        COLUMNS.iter().for_each(|column| cli::errln!("{:>11} : {}", column.name, column.about()));
        return ExitCode::SUCCESS;
    }
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            cli::errln!("zilstat: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), Failure> {
    let which = Which::of(arguments.all, arguments.pool.as_deref(), arguments.datasets.as_deref());
    let usual = if which == Which::Together { TOGETHER } else { EACH };
    let columns = chosen(arguments.fields.as_deref().unwrap_or(usual))?;
    let folder = cli::kstat::folder()?;
    let mut now = look(&folder, &which)?;
    if now.is_empty() {
        cli::outln!("Error: No stats to show");
        return Ok(());
    }
    // Without an interval: all that was counted.
    let seconds = arguments.interval.filter(|seconds| *seconds > 0).map(u64::from);
    emit(columns.iter().map(|column| column.heading(seconds.is_some())), &arguments.separator);
    let Some(seconds) = seconds else {
        let time = cli::time::clock();
        now.values().for_each(|log| {
            let line = Line { log, before: None, seconds: 1, time: &time };
            emit(columns.iter().map(|column| column.cell(&line)), &arguments.separator);
        });
        return Ok(());
    };
    loop {
        std::thread::sleep(Duration::from_secs(seconds));
        let before = std::mem::replace(&mut now, look(&folder, &which)?);
        let time = cli::time::clock();
        for (key, log) in &now {
            let line = Line { log, before: before.get(key), seconds, time: &time };
            emit(columns.iter().map(|column| column.cell(&line)), &arguments.separator);
        }
    }
}

/// Prints one line: a separator stands after each column, as in OpenZFS's script.
fn emit(cells: impl Iterator<Item = String>, separator: &str) {
    let line: String = cells.map(|cell| cell + separator).collect();
    cli::outln!("{line}");
}

/// Columns of a list of names.
fn chosen(names: &str) -> Result<Vec<&'static Column>, Failure> {
    let (mut found, mut invalid) = (Vec::new(), Vec::new());
    for name in names.split(',') {
        match COLUMNS.iter().find(|column| column.name == name) {
            Some(column) => found.push(column),
            None => invalid.push(name),
        }
    }
    if !invalid.is_empty() {
        return Err(failed(format!("Invalid column definition! -- {invalid:?}")).advise("'zilstat -v' explains the columns"));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    /// If this fails, `zilstat` ends with a panic whatever it is asked, or without any column.
    #[test]
    fn options_and_usual_columns_are_right() {
        Arguments::command().debug_assert();
        assert_eq!([TOGETHER, EACH].map(|names| chosen(names).map(|columns| columns.len())), [Ok(11), Ok(12)]);
        assert!(chosen("time,zcc").is_err(), "no such column");
    }
}
