//! The `zdb` program: shows what lies on the devices of a pool, in the shape of OpenZFS's `zdb`. It opens pools read-only by itself, never
//! through the daemon, and writes nothing.
//!
//! `-l` works on a device alone, with no pool, and so on damaged ones too. The exit status is 0, 1 when something cannot be shown or the
//! command line is wrong, 2 when counts contradict each other.
#![forbid(unsafe_code)]
// `println!` panics when its reader is gone: see `cli::print`.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod datasets;
mod dump;
mod import;
mod label;
mod object;
mod objset;
mod stats;
mod tree;
mod viewer;
mod znode;

use clap::Parser;
use dump::Dump;
use exec::Exec;
use objset::Range;
use ondisk::ObjectId;
use pool::Pool;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use zap::Zap;

const USAGE: &str = "Usage:\tzdb [-CdLPuv] [-e [-p <path> ...]] [-U <cache>]
\t\t[<poolname>[/<dataset | objset id>] [<object | range> ...]]
\tzdb -C [-U <cache>] [<poolname>]
\tzdb -l [-qu] <device>

    -C --config        configuration (of all pools in the cache file without <poolname>)
    -d --datasets      datasets; twice: objects; four times: their contents; five times: their blocks
    -e --exported      look for the pool's devices instead of asking the cache file
    -l --label         labels of a device
    -L --disable-leak-tracking   accepted: leaks are not looked for
    -p --path          where to look with -e
    -P --parseable     exact numbers
    -q --skip-label    with -l: no output
    -u --uberblock     the uberblock
    -U --cachefile     the cache file
    -v --verbose       every other option as if given once more
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
    target: Option<String>,
    #[arg(allow_hyphen_values = true)]
    objects: Vec<String>,
}

fn usage() -> ExitCode {
    cli::err!("{USAGE}");
    ExitCode::from(1)
}

fn main() -> ExitCode {
    let Ok(mut arguments) = Arguments::try_parse() else { return usage() };
    if arguments.exported == 0 && !arguments.paths.is_empty() {
        cli::errln!("-p option requires use of -e");
        return usage();
    }
    let shows_all = arguments.labels == 0 && arguments.uberblocks == 0 && arguments.config == 0 && arguments.datasets == 0;
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

/// Without a pool `-C` shows the configurations of all that are in the cache file.
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
    let exec: Exec = Arc::new(exec::Pool::new(1));
    let pool = match import::open(&exec, name, &paths) {
        Ok(pool) => pool,
        Err(error) => return fatal(target, &error),
    };
    let mut out = std::io::BufWriter::new(cli::print::Output);
    let mut dump = Dump::new(&mut out, arguments.datasets.into(), arguments.parseable > 0);
    dump.has_projects = pool.features().iter().any(|(name, _, count)| name == "project_quota" && count.is_some());
    dump_open(arguments, target, &ranges, &pool, &mut dump)
}

fn dump_open(arguments: &Arguments, target: &str, ranges: &[Range], pool: &Pool, dump: &mut Dump<'_>) -> ExitCode {
    let mut status = 0;
    let is_pool = !target.contains(['/', '@']);
    if !is_pool {
        match datasets::by_name(pool, target.trim_end_matches('/')) {
            Ok(subject) => datasets::show(dump, pool.mos(), &subject, ranges),
            Err(dsl::DslError::NotFound) => {
                cli::errln!("failed to hold dataset '{target}': No such file or directory");
                return fatal(target, &"No such file or directory");
            }
            Err(error) => return fatal(target, &error),
        }
    } else if !ranges.is_empty() {
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
    }
    ExitCode::from(if status == 0 { u8::from(dump.damaged > 0) } else { status })
}

/// The configuration in the meta object set (OpenZFS: `dump_config`).
fn dump_config(dump: &mut Dump<'_>, pool: &Pool) {
    const DIRECTORY: ObjectId = ObjectId(1);
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
