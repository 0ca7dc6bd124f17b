//! The `zdb` program: shows what lies on the devices of a pool, in the shape of OpenZFS's `zdb`. It opens pools read-only by itself, never
//! through the daemon, and writes nothing.
//!
//! `-l` works on a device alone, with no pool, and so on damaged ones too. The exit status is 0, 1 when something cannot be shown or the
//! command line is wrong, 2 when counts contradict each other.
#![forbid(unsafe_code)]
// `println!` panics when its reader is gone: see `cli::print`.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod backup;
mod block_spec;
mod cache_device;
mod checks;
mod datasets;
mod dump;
mod extract;
mod guess;
mod import;
mod label;
mod object;
mod objset;
mod place;
mod read_block;
mod removal;
mod stats;
mod tree;
mod viewer;
mod znode;

use clap::Parser;
use dsl::{DatasetHandle, DslError};
use dump::{DIRECTORY, Dump};
use exec::Exec;
use objset::Range;
use ondisk::ObjectId;
use pool::Pool;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use zap::Zap;

const USAGE: &str = "Usage:\tzdb [-AbcCdDFGhikLMNPsuvXYyZ] [-e [-p <path> ...]] [-U <cache>] [-K <key>]
\t\t[<poolname>[/<dataset | objset id>] [<object | range> ...]]
\tzdb -B [-e [-p <path> ...]] [-U <cache>] [-K <key>] <poolname>/<objset id> [<backupflags>]
\tzdb -C [-U <cache>] [<poolname>]
\tzdb -l [-Aqu] <device>
\tzdb -m [-AFLPXY] [-e [-p <path> ...]] [-U <cache>] <poolname>
\tzdb -O [-v] [-e [-p <path> ...]] [-U <cache>] [-K <key>] <dataset> <path>
\tzdb -r [-e [-p <path> ...]] [-U <cache>] [-K <key>] <dataset> <path> <destination>
\tzdb -R [-e [-p <path> ...]] [-U <cache>] <poolname> <vdev>:<offset>:[<lsize>/]<psize>[:<flags>] ...

    -A --ignore-assertions   accepted: nothing is asserted here
    -b --block-stats   every block: counts, and whether the space maps agree; six times: block pointers are shown whole
    -B --backup        a dataset as a stream, by the number of its object set; flags are e, c, L and w, as of zfs send
    -c --checksum      the same, and reads metadata; twice: everything
    -C --config        configuration (of all pools in the cache file without <poolname>)
    -d --datasets      datasets; twice: objects; four times: their contents; five times: their blocks
    -D --dedup-stats   deduplication tables
    -e --exported      look for the pool's devices instead of asking the cache file
    -F --automatic-rewind   accepted: only what opens without a rewind is shown
    -G --dump-debug-msg     accepted: there are no debugging messages
    -h --history       the pool's history
    -i --intent-logs   accepted: intent logs are shown with the datasets
    -k --checkpointed-state the pool in the state that its checkpoint keeps
    -K --key           the key of the encrypted dataset that is named
    -l --label         labels of a device
    -L --disable-leak-tracking   with -b and -c: leaks are not looked for
    -m --metaslabs     the metaslabs and their free space; twice its fragmentation
    -M --metaslab-groups   the same, and the fragmentation of the vdevs' and the pool's free space
    -N --object-sets   the same as -d, and what follows the pool's name is an object set's number
    -O --object-lookups     the object at a path of a dataset; with -v its contents, twice its blocks
    -p --path          where to look with -e
    -P --parseable     exact numbers
    -q --skip-label    with -l: no output
    -r --copy-object   copy a file out of a dataset
    -R --read-block    blocks by their places
    -s --io-stats      what was read
    -u --uberblock     the uberblock
    -U --cachefile     the cache file
    -v --verbose       every other option as if given once more
    -X --extreme-rewind     accepted, as -F
    -y --livelist      accepted: livelists are not checked by themselves
    -Y --all-reconstruction accepted: blocks are reconstructed in all ways anyway
    -Z --zstd-headers  behind pointers to blocks of zstd: their size, and the version and level of the compressor
";

/// Shows what lies on the devices of a pool.
#[derive(Parser)]
#[command(name = "zdb", disable_version_flag = true, disable_help_flag = true)]
struct Arguments {
    #[arg(short = 'l', long = "label", action = clap::ArgAction::Count)]
    labels: u8,
    #[arg(short = 'u', long = "uberblock", action = clap::ArgAction::Count)]
    uberblocks: u8,
    #[arg(short = 'q', long = "skip-label")]
    quiet: bool,
    #[arg(short = 'C', long = "config", action = clap::ArgAction::Count)]
    config: u8,
    #[arg(short = 'd', long = "datasets", action = clap::ArgAction::Count)]
    datasets: u8,
    #[arg(short = 'e', long = "exported", action = clap::ArgAction::Count)]
    exported: u8,
    #[arg(short = 'p', long = "path")]
    paths: Vec<PathBuf>,
    #[arg(short = 'P', long = "parseable", action = clap::ArgAction::Count)]
    parseable: u8,
    #[arg(short = 'L', long = "disable-leak-tracking", action = clap::ArgAction::Count)]
    no_leaks: u8,
    #[arg(short = 'U', long = "cachefile")]
    cache_file: Option<PathBuf>,
    #[arg(short = 'v', long = "verbose", action = clap::ArgAction::Count)]
    verbose: u8,
    #[command(flatten)]
    more: More,
    target: Option<String>,
    #[arg(allow_hyphen_values = true)]
    objects: Vec<String>,
}

/// Number of times that an option was given.
type Count = u8;

#[derive(clap::Args)]
struct More {
    #[arg(short = 'A', long = "ignore-assertions", action = clap::ArgAction::Count)]
    _assertions: Count,
    #[arg(short = 'b', long = "block-stats", action = clap::ArgAction::Count)]
    blocks: Count,
    #[arg(short = 'B', long = "backup", action = clap::ArgAction::Count)]
    backup: Count,
    #[arg(short = 'c', long = "checksum", action = clap::ArgAction::Count)]
    checksums: Count,
    #[arg(short = 'D', long = "dedup-stats", action = clap::ArgAction::Count)]
    dedup: Count,
    #[arg(short = 'F', long = "automatic-rewind", action = clap::ArgAction::Count)]
    _rewind: Count,
    #[arg(short = 'G', long = "dump-debug-msg", action = clap::ArgAction::Count)]
    _messages: Count,
    #[arg(short = 'h', long = "history", action = clap::ArgAction::Count)]
    history: Count,
    #[arg(short = 'i', long = "intent-logs", action = clap::ArgAction::Count)]
    logs: Count,
    #[arg(short = 'k', long = "checkpointed-state", action = clap::ArgAction::Count)]
    checkpointed: Count,
    #[arg(short = 'K', long = "key")]
    key: Option<String>,
    #[arg(short = 'm', long = "metaslabs", action = clap::ArgAction::Count)]
    metaslabs: Count,
    #[arg(short = 'M', long = "metaslab-groups", action = clap::ArgAction::Count)]
    groups: Count,
    #[arg(short = 'N', long = "object-sets", action = clap::ArgAction::Count)]
    object_sets: Count,
    #[arg(short = 'O', long = "object-lookups", action = clap::ArgAction::Count)]
    lookups: Count,
    #[arg(short = 'r', long = "copy-object", action = clap::ArgAction::Count)]
    copy: Count,
    #[arg(short = 'R', long = "read-block", action = clap::ArgAction::Count)]
    read_block: Count,
    #[arg(short = 's', long = "io-stats", action = clap::ArgAction::Count)]
    statistics: Count,
    #[arg(short = 'X', long = "extreme-rewind", action = clap::ArgAction::Count)]
    _extreme: Count,
    #[arg(short = 'y', long = "livelist", action = clap::ArgAction::Count)]
    livelists: Count,
    #[arg(short = 'Y', long = "all-reconstruction", action = clap::ArgAction::Count)]
    _reconstruction: Count,
    #[arg(short = 'Z', long = "zstd-headers", action = clap::ArgAction::Count)]
    zstd_headers: Count,
}

impl More {
    /// True when something is asked for that is not everything.
    fn is_some(&self) -> bool {
        let shown = [self.blocks, self.checksums, self.dedup, self.history, self.logs, self.metaslabs, self.groups];
        let more = [self.backup, self.copy, self.lookups, self.read_block, self.statistics, self.livelists, self.zstd_headers];
        shown.iter().chain(&more).any(|count| *count > 0)
    }
}

/// Number of `-d` that says how much `-O` shows of an object.
const LOOKUP_VERBOSITY: u32 = 3;
/// Number of `-b` from which block pointers are shown whole.
const WHOLE_POINTERS: u8 = 6;

fn usage() -> ExitCode {
    cli::err!("{USAGE}");
    ExitCode::from(1)
}

fn main() -> ExitCode {
    let Ok(mut arguments) = Arguments::try_parse() else { return cli::refuse_bytes(1).unwrap_or_else(usage) };
    if arguments.exported == 0 && !arguments.paths.is_empty() {
        cli::errln!("-p option requires use of -e");
        return usage();
    }
    arguments.datasets += arguments.more.object_sets;
    let shows_all =
        !arguments.more.is_some() && arguments.labels == 0 && arguments.uberblocks == 0 && arguments.config == 0 && arguments.datasets == 0;
    let more = arguments.verbose.max(u8::from(shows_all));
    for option in [&mut arguments.labels, &mut arguments.uberblocks, &mut arguments.config, &mut arguments.datasets] {
        // Everything but labels is shown when nothing was asked for; a number given grows with -v.
        if *option > 0 {
            *option = option.saturating_add(more);
        }
    }
    if shows_all {
        (arguments.uberblocks, arguments.config, arguments.datasets) = (more, more, more);
    }
    let Some(target) = arguments.target.clone() else {
        return if arguments.config > 0 && arguments.exported == 0 { dump_cache_file(&arguments) } else { usage() };
    };
    if arguments.labels > 0 { dump_label(&arguments, &target) } else { dump_target(&arguments, &target) }
}

fn dump_label(arguments: &Arguments, target: &str) -> ExitCode {
    let device = match label::open(target) {
        Ok(device) => device,
        Err(error) => {
            cli::outln!("cannot open '{target}': {}", cli::os_error(&error));
            return ExitCode::from(1);
        }
    };
    let options = label::Options { labels: arguments.labels, uberblocks: arguments.uberblocks, quiet: arguments.quiet };
    let (text, status) = label::dump(&device, options);
    cli::out!("{text}");
    ExitCode::from(status)
}

fn cache_file(arguments: &Arguments) -> PathBuf {
    arguments.cache_file.clone().or_else(import::cache_file).unwrap_or_else(|| PathBuf::from("/etc/zfs/zpool.cache"))
}

/// Shows the configurations of all pools that are in the cache file: `-C` without a pool.
fn dump_cache_file(arguments: &Arguments) -> ExitCode {
    let file = cache_file(arguments);
    let pools = match import::known(&file) {
        Ok(pools) => pools,
        Err(error) => {
            cli::outln!("cannot open '{}': {}", file.display(), cli::os_error(&error));
            return ExitCode::from(1);
        }
    };
    for pool in pools {
        let config = import::label_config(&pool).map_or_else(String::new, |config| config.dump(4));
        cli::out!("{}:\n{config}", pool.name);
    }
    ExitCode::SUCCESS
}

fn fatal(target: &str, error: &dyn std::fmt::Display) -> ExitCode {
    cli::errln!("zdb: can't open '{target}': {error}");
    ExitCode::from(1)
}

fn dump_target(arguments: &Arguments, target: &str) -> ExitCode {
    let name = target.split(['/', '@']).next().unwrap_or_default();
    let words = arguments.objects.len();
    if arguments.more.copy > 0 && words != 2 || arguments.more.lookups > 0 && words != 1 || arguments.more.read_block > 0 && words == 0 {
        return usage();
    }
    let mut ranges = Vec::new();
    for text in arguments.objects.iter().filter(|_| arguments.datasets > 0) {
        match Range::parse(text) {
            Ok(range) => ranges.push(range),
            Err(problem) => {
                cli::errln!("zdb: Bad object or range: '{text}': {problem}");
                return ExitCode::from(1);
            }
        }
    }
    let paths = if arguments.exported > 0 {
        let places = if arguments.paths.is_empty() { vec![PathBuf::from("/dev")] } else { arguments.paths.clone() };
        import::candidates(&places)
    } else {
        let known = import::known(&cache_file(arguments)).unwrap_or_default();
        known.into_iter().find(|pool| pool.name == name).map(|pool| pool.paths).unwrap_or_default()
    };
    let exec: Exec = match exec::Pool::start(1, 0) {
        Ok(threads) => Arc::new(threads),
        Err(error) => return fatal(target, &error),
    };
    let checkpointed = arguments.more.checkpointed > 0;
    let pool = match import::open(&exec, name, &paths, checkpointed) {
        Ok(pool) => pool,
        Err(error) => return fatal(target, &error),
    };
    // Datasets are called by the name that the pool has here.
    let target = if checkpointed { format!("{name}{}{}", import::CHECKPOINTED, &target[name.len()..]) } else { target.to_string() };
    let mut out = std::io::BufWriter::new(cli::print::Output);
    let mut dump = Dump::new(&mut out, arguments.datasets.into(), arguments.parseable > 0);
    dump.whole_pointers = arguments.more.blocks > 0 && arguments.more.blocks.saturating_add(arguments.verbose) >= WHOLE_POINTERS;
    dump.zstd_headers = arguments.more.zstd_headers > 0;
    dump.has_projects = pool.features().iter().any(|(name, _, count)| name == "project_quota" && count.is_some());
    let reopen = || import::open(&exec, name, &paths, true);
    dump_open(arguments, &target, (&ranges, &reopen), &pool, &mut dump)
}

/// Opener of the pool in the state that its checkpoint keeps.
type Reopen<'a> = &'a dyn Fn() -> Result<Pool, import::OpenError>;

fn dump_open(arguments: &Arguments, target: &str, (ranges, reopen): (&[Range], Reopen<'_>), pool: &Pool, dump: &mut Dump<'_>) -> ExitCode {
    let more = &arguments.more;
    if more.read_block > 0 {
        return read_blocks(&arguments.objects, pool, dump);
    }
    if more.backup > 0 || more.copy > 0 || more.lookups > 0 || target.contains(['/', '@']) {
        return dump_dataset(arguments, target, ranges, pool, dump);
    }
    let mut status = 0;
    if !ranges.is_empty() {
        datasets::show(dump, pool.mos(), &datasets::meta(pool), ranges);
    } else {
        if arguments.config > 0 {
            dump_config(dump, pool);
        }
        if arguments.uberblocks > 0 {
            let mut text = String::new();
            label::dump_uberblock(&mut text, &pool.uberblock(), arguments.uberblocks >= 4);
            dump.line(format_args!("\nUberblock:\n{text}"));
        }
        if arguments.datasets > 0 {
            status = datasets::dump_pool(dump, pool);
        }
        status = status.max(dump_more(arguments, pool, dump));
        if status == 0 {
            status = checks::checkpoint(dump, pool, (arguments.no_leaks == 0).then_some(reopen));
        }
    }
    ExitCode::from(if status == 0 { u8::from(dump.damaged > 0) } else { status })
}

fn read_blocks(blocks: &[String], pool: &Pool, dump: &mut Dump<'_>) -> ExitCode {
    let mut status = 0;
    for words in blocks {
        if let Err(problem) = read_block::show(dump, pool, words) {
            dump.line(format_args!("{problem}"));
            status = 1;
        }
    }
    ExitCode::from(status)
}

/// Shows, or takes out, what was asked for of a dataset.
fn dump_dataset(arguments: &Arguments, target: &str, ranges: &[Range], pool: &Pool, dump: &mut Dump<'_>) -> ExitCode {
    let (more, name) = (&arguments.more, target.trim_end_matches('/'));
    let by_number = more.object_sets > 0 || more.backup > 0;
    let found = if by_number { datasets::by_number(pool, name) } else { datasets::by_name(pool, name) };
    let dataset = match found {
        Ok(dataset) => dataset,
        Err(DslError::NotFound) if more.copy == 0 && more.lookups == 0 => {
            cli::errln!("failed to hold dataset '{target}': No such file or directory");
            return fatal(target, &"No such file or directory");
        }
        Err(error) => return fatal(target, &error),
    };
    if let Some(key) = &more.key {
        match datasets::unlock(&dataset, key) {
            // The standard output is the stream's.
            Ok(root) if more.backup > 0 => cli::errln!("Unlocked encryption root: {root}"),
            Ok(root) => dump.line(format_args!("Unlocked encryption root: {root}")),
            Err(problem) => return fatal(target, &problem),
        }
    }
    if more.backup > 0 {
        return match backup::write(dataset, arguments.objects.first().map_or("", String::as_str)) {
            Ok(()) => ExitCode::SUCCESS,
            Err(problem) => {
                cli::errln!("dump_backup: {problem}");
                ExitCode::from(1)
            }
        };
    }
    match dump_subject(arguments, pool, &dataset, ranges, dump) {
        Ok(()) => ExitCode::from(u8::from(dump.damaged > 0)),
        Err(problem) => fatal(target, &problem),
    }
}

fn dump_subject(arguments: &Arguments, pool: &Pool, dataset: &DatasetHandle, ranges: &[Range], dump: &mut Dump<'_>) -> Result<(), String> {
    let subject = datasets::subject(pool, dataset).map_err(|error| error.to_string())?;
    match arguments.objects.as_slice() {
        [path, place] if arguments.more.copy > 0 => return extract::copy(&subject.objset, path, place.as_ref()),
        [path] if arguments.more.lookups > 0 => {
            // As much as `-ddd` shows of an object, and more with each `-v` (OpenZFS: `dump_path`).
            dump.datasets = LOOKUP_VERBOSITY + u32::from(arguments.verbose);
            let object = extract::number(&subject.objset, path)?;
            datasets::show(dump, pool.mos(), &subject, &[Range::one(object)]);
        }
        _ => datasets::show(dump, pool.mos(), &subject, ranges),
    }
    Ok(())
}

/// Shows what else was asked for of a pool; returns the exit status.
fn dump_more(arguments: &Arguments, pool: &Pool, dump: &mut Dump<'_>) -> u8 {
    let more = &arguments.more;
    if more.dedup > 0 {
        checks::dedup(dump, pool, more.dedup);
    }
    if more.metaslabs > 0 || more.groups > 0 {
        checks::metaslabs(dump, pool, more.metaslabs > 1);
    }
    if more.groups > 0 {
        checks::fragmentation(dump, pool);
    }
    let mut status = 0;
    if more.blocks > 0 || more.checksums > 0 {
        status = checks::blocks(dump, pool, (more.checksums, arguments.no_leaks == 0), arguments.verbose > 0);
    }
    if more.statistics > 0 {
        checks::statistics(dump, pool);
    }
    if more.history > 0 {
        checks::history(dump, pool);
    }
    status
}

/// Shows the configuration in the meta object set (OpenZFS: `dump_config`).
fn dump_config(dump: &mut Dump<'_>, pool: &Pool) {
    let object = Zap::hold(pool.mos(), DIRECTORY).and_then(|zap| zap.lookup_u64("config")).map(ObjectId);
    let list = object.ok().and_then(|object| {
        let bonus: Arc<[u8]> = pool.mos().hold(object).ok()?.bonus().ok()?;
        viewer::read_packed(pool.mos(), object, &bonus)
    });
    match list {
        Some(list) => dump.text(format_args!("\nMOS Configuration:\n{}", list.dump(8))),
        None => dump.damage(format_args!("the configuration in the meta object set cannot be read")),
    }
}

#[cfg(test)]
mod tests {
    use super::USAGE;

    /// Users would look for an option that is not described, or try one that is not there.
    #[test]
    fn the_manual_page_has_every_option_of_the_usage() {
        let page = include_str!("../../../man/man8/zdb.8");
        let described: Vec<String> =
            page.lines().filter_map(|line| line.strip_prefix(".It Fl ")).map(|rest| rest[..1].to_string()).collect();
        let listed: Vec<String> = USAGE.lines().filter_map(|line| line.strip_prefix("    -")).map(|rest| rest[..1].to_string()).collect();
        assert!(listed.len() >= 10, "the usage lists its options: {listed:?}");
        assert_eq!(described, listed, "the options of man/man8/zdb.8 and of the usage");
    }
}
