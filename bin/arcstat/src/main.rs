//! `arcstat`: how the cache of the daemon's pools does, as columns of rates and sizes; options and columns of OpenZFS's script.
//! It reads the statistics from the files in the state directory, as other tools do.
#![forbid(unsafe_code)]
// `println!` panics when its reader is gone: see `cli::print`.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod columns;

use clap::{CommandFactory, Parser};
use cli::kstat::failed;
use columns::{Column, Look, complete};
use control_api::Failure;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

/// Number of lines after which headings come again.
const HEADING_LINES: u64 = 20;
const USUAL: &str = "time,read,ddread,ddh%,dmread,dmh%,pread,ph%,size,c,avail";
const EXTENDED: &str = "time,mfu,mru,mfug,mrug,unc,eskip,mtxmis,dread,pread,read";
const ZFETCH: &str = "time,ztotal,zhits,zahead,zpast,zmisses,zmax,zfuture,zstride,zissued,zactive";

/// Statistics of the cache, once or at intervals.
#[derive(Debug, Parser)]
#[command(name = "arcstat", version, disable_help_flag = true)]
struct Arguments {
    /// Every column.
    #[arg(short = 'a', long = "all")]
    all: bool,
    /// Columns of lists and evictions.
    #[arg(short = 'x', long = "extended")]
    extended: bool,
    /// Columns of the prefetcher.
    #[arg(short = 'z', long = "zfetch")]
    zfetch: bool,
    /// Explain the columns.
    #[arg(short = 'v', long = "verbose")]
    explain: bool,
    /// Print this.
    #[arg(short = 'h', long = "help")]
    help: bool,
    /// Numbers in full.
    #[arg(short = 'p', long = "parsable")]
    parsable: bool,
    /// Columns, separated by commas.
    #[arg(short = 'f', long = "columns", value_name = "fields")]
    fields: Option<String>,
    /// Write to a file.
    #[arg(short = 'o', long = "outfile", value_name = "file")]
    output: Option<String>,
    /// Between columns; two spaces.
    #[arg(short = 's', long = "separator", value_name = "string", default_value = "  ", allow_hyphen_values = true)]
    separator: String,
    /// Seconds between lines.
    interval: Option<u32>,
    /// Number of lines.
    count: Option<u64>,
}

fn main() -> ExitCode {
    if let Some(code) = cli::refuse_bytes(1) {
        return code;
    }
    let arguments = match cli::parsed::<Arguments>(1) {
        Ok(arguments) => arguments,
        Err(code) => return code,
    };
    let chosen = [arguments.extended, arguments.zfetch, arguments.fields.is_some()].iter().filter(|chosen| **chosen).count();
    if arguments.help || chosen > 1 {
        cli::err!("{}", Arguments::command().render_help());
        return ExitCode::FAILURE;
    }
    if arguments.explain {
        cli::errln!("Columns:");
        columns::columns().iter().for_each(|column| cli::errln!("{:>11} : {}", column.name, column.about));
        return ExitCode::SUCCESS;
    }
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            cli::errln!("arcstat: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), Failure> {
    let folder = cli::kstat::folder()?;
    let mut now = look(&folder)?;
    let columns = chosen(arguments, now.get("l2_size").is_some_and(|size| *size > 0.0))?;
    let mut output: Box<dyn Write> = match &arguments.output {
        Some(path) => Box::new(std::fs::File::create(path).map_err(|error| failed(format!("{path}: {error}")))?),
        None => Box::new(cli::print::Output),
    };
    let seconds = f64::from(arguments.interval.unwrap_or(1));
    let count = arguments.count.unwrap_or(if arguments.interval.is_some() { 0 } else { 1 });
    // As OpenZFS's script: the first line is about the moment in which it started.
    let mut old = std::mem::replace(&mut now, look(&folder)?);
    let mut line = 0;
    loop {
        if line % HEADING_LINES == 0 {
            let cells = columns.iter().map(|column| if arguments.parsable { column.name.clone() } else { column.heading() });
            emit(&mut output, &arguments.separator, cells)?;
        }
        let time = cli::time::clock();
        let cells = columns.iter().map(|column| {
            let value = column.value(&now, &old, seconds.max(1.0), &time);
            if arguments.parsable { value.exact() } else { column.pretty(&value, seconds) }
        });
        emit(&mut output, &arguments.separator, cells)?;
        line += 1;
        if line == count {
            return Ok(());
        }
        std::thread::sleep(Duration::from_secs_f64(seconds));
        old = std::mem::replace(&mut now, look(&folder)?);
    }
}

/// Prints one line.
fn emit(output: &mut dyn Write, separator: &str, cells: impl Iterator<Item = String>) -> Result<(), Failure> {
    let line = cells.collect::<Vec<_>>().join(separator);
    writeln!(output, "{line}").and_then(|()| output.flush()).map_err(failed)
}

fn chosen(arguments: &Arguments, second_level: bool) -> Result<Vec<Column>, Failure> {
    let all = columns::columns();
    if arguments.all {
        return Ok(all.into_iter().filter(|column| second_level || !column.name.starts_with("l2")).collect());
    }
    let usual = if arguments.extended { EXTENDED } else { USUAL };
    let wanted = arguments.fields.as_deref().unwrap_or(if arguments.zfetch { ZFETCH } else { usual });
    let by_name: BTreeMap<&str, &Column> = all.iter().map(|column| (column.name.as_str(), column)).collect();
    let invalid: Vec<&str> = wanted.split(',').filter(|name| !by_name.contains_key(name)).collect();
    if !invalid.is_empty() {
        return Err(failed(format!("Invalid column definition! -- {invalid:?}")).advise("'arcstat -v' explains the columns"));
    }
    if let Some(name) = wanted.split(',').find(|name| name.starts_with("l2") && !second_level) {
        return Err(failed(format!("there is no second-level cache for '{name}'")));
    }
    Ok(wanted.split(',').filter_map(|name| by_name.get(name).map(|column| (*column).clone())).collect())
}

/// Reads the statistics.
fn look(folder: &Path) -> Result<Look, Failure> {
    let mut look = Look::new();
    for (file, prefix) in [("arcstats", ""), ("zfetchstats", "zfetch_")] {
        for (name, value) in cli::kstat::read(&folder.join(file))? {
            if let Ok(value) = value.parse::<f64>() {
                look.insert(format!("{prefix}{name}"), value);
            }
        }
    }
    complete(&mut look);
    Ok(look)
}
