//! `zirconia-interop write|read [--all] [NAME…] | crashed [POOLS]`: the exchange with the real OpenZFS, in both directions.
//!
//! * `write`: we make pools, fill and change them; `zdb` finds no error and no leak, the real engine imports, scrubs and lists
//!   them exactly as we do, and after it wrote to them we read them again. Streams that we send (`write streams`) it receives, also
//!   those that are redacted (`write redacted`).
//! * `read`: the real engine makes pools; we list them exactly, also with devices missing or full of noise; then we write to
//!   them and the real engine finds them clean. Pools with features we lack are refused by the features' names.
//! * `crashed`: pools that OpenZFS's stress test had open when it was stopped, with intent logs: read, claimed and given up by us.
//!
//! Without `--all` a quick subset runs; names pick single pools. `ZIRCONIA_INTEROP_DIR` is where the pools' files go
//! (default `/var/tmp`), `ZIRCONIA_PEER` where the sources of `zpfix` are. Without the oracles the checks that need them are
//! skipped, and said so; with `ZIRCONIA_STRICT` they fail.

mod accelerated;
mod accounting;
mod churn;
mod crashed;
mod damage;
mod direct;
pub mod driver;
mod kernel;
mod life;
mod locked;
mod logs;
mod manifest;
mod matrix;
mod objects;
pub mod old;
pub mod oracle;
mod program;
mod providers;
mod read;
mod received;
mod redacted;
mod report;
mod shadow;
mod storm;
mod streams;
pub mod taken;
mod touch;
mod write;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Failure of any kind; it ends up as one line of the table.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Folder of this run for files; removed at its end when everything passed.
pub fn scratch() -> Result<PathBuf, Failure> {
    let base = std::env::var_os("ZIRCONIA_INTEROP_DIR").map_or_else(|| PathBuf::from("/var/tmp"), PathBuf::from);
    let folder = base.join(format!("zirconia-interop-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    Ok(folder)
}

/// Wishes of the command line.
pub struct Wanted {
    /// True for the whole matrix.
    pub all: bool,
    /// Names of the only pools to test, when there are any.
    pub names: Vec<String>,
}

impl Wanted {
    /// True when the pool is to be tested; `quick` says whether it is part of the quick subset.
    pub fn includes(&self, name: &str, quick: bool) -> bool {
        if self.names.is_empty() { self.all || quick } else { self.names.iter().any(|wanted| wanted == name) }
    }
}

/// Path of the root of the source tree.
pub fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.canonicalize().unwrap_or(root)
}

/// Runs the program: its command line says what it does.
pub fn run() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (options, words): (Vec<String>, Vec<String>) = arguments.into_iter().partition(|word| word.starts_with("--"));
    let Some((verb, names)) = words.split_first().filter(|_| options.iter().all(|option| option == "--all")) else {
        eprintln!("usage: zirconia-interop write|read [--all] [NAME…] | crashed [POOLS]");
        return ExitCode::from(2);
    };
    let wanted = Wanted { all: !options.is_empty(), names: names.to_vec() };
    let root = root();
    let oracle = match oracle::Oracle::find(&root) {
        Ok(oracle) => oracle,
        Err(missing) => {
            eprintln!("{missing}");
            return ExitCode::FAILURE;
        }
    };
    let table = report::Table::default();
    match verb.as_str() {
        "write" => {
            write::run(&oracle, &wanted, &table);
            streams::run(&oracle, &wanted, &table);
            redacted::run(&oracle, &wanted, &table);
        }
        "read" => read::run(&oracle, &root, &wanted, &table),
        "crashed" => match scratch() {
            Ok(base) => crashed::run(&oracle, &base, names.first().and_then(|count| count.parse().ok()), &table),
            Err(error) => {
                eprintln!("{error}");
                return ExitCode::FAILURE;
            }
        },
        _ => {
            eprintln!("usage: zirconia-interop write|read [--all] [NAME…] | crashed [POOLS]");
            return ExitCode::from(2);
        }
    }
    let passed = table.finish();
    if let Ok(folder) = scratch() {
        if passed {
            let _ = std::fs::remove_dir_all(folder);
        } else {
            println!("what failed is kept in {}", folder.display());
        }
    }
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
