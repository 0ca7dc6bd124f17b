//! `zpool iostat`: what pools and their vdevs did, since import or between two looks at the daemon's counters.

mod columns;
#[cfg(test)]
mod tests;
mod text;

use crate::{args, scripts};
use cli::options::Output;
use cli::repeat::{Repeat, timestamp};
use cli::{Client, Stop};
use columns::Group;
use control_api::{DirectTarget, ErrorKind, Failure, IostatReport, IostatVdev, PoolNames, Request, Response, pool_name_objection};
use serde_json::{Map, Value, json};
use std::io::IsTerminal;
use std::time::Duration;
use text::{Span, Style};

/// Number of characters that numbers take of a line, for the width of names (OpenZFS: `get_namewidth_iostat`).
const STATS_WIDTH: usize = 42;
/// Number of columns of a terminal that does not say how many it has; what is no terminal has room.
const TERMINAL_COLUMNS: usize = 80;
const NAME_WIDTH_MIN: usize = 10;
/// Number of lines of a terminal that does not say how many it has: headings are repeated after so many.
const TERMINAL_LINES: u64 = 24;

/// Runs the verb.
pub fn run(client: &Client, arguments: &args::Iostat) -> Result<u8, Stop> {
    let (words, repeat) = Repeat::split(&arguments.words)?;
    if arguments.direct {
        return repeat.run(|| direct(client, arguments, &words));
    }
    if let Some(names) = &arguments.scripts {
        scripts::allow(names)?;
        if names.is_empty() {
            scripts::list("iostat");
            return Ok(0);
        }
    }
    let histograms = arguments.latency_histogram || arguments.size_histogram;
    if histograms && (arguments.latency || arguments.queues || arguments.scripts.is_some()) {
        return Err(Stop::usage("[-r|-w] isn't allowed with [-c|-l|-q]"));
    }
    if arguments.latency_histogram && arguments.size_histogram {
        return Err(Stop::usage("Only one of [-r|-w] can be passed at a time"));
    }
    let names = Names::of(arguments);
    let (pools, only) = names.sort_out(client, &words)?;
    let groups = if arguments.latency_histogram {
        vec![Group::LatencyHistogram]
    } else if arguments.size_histogram {
        vec![Group::SizeHistogram]
    } else {
        let mut groups = vec![Group::Default];
        groups.extend(arguments.latency.then_some(Group::Latency));
        groups.extend(arguments.queues.then_some(Group::Queues));
        groups
    };
    let style = Style {
        groups,
        exact: arguments.parsable,
        scripted: arguments.scripted,
        verbose: arguments.verbose || !only.is_empty(),
        only,
        name_width: 0,
        scripts: None,
    };
    Screen { client, arguments, names, pools, style, before: None, iteration: 0 }.run(repeat)
}

/// Does `--direct`: counts since the import.
fn direct(client: &Client, arguments: &args::Iostat, pools: &[String]) -> Result<u8, Stop> {
    arguments.json.check()?;
    let output = Output { scripted: arguments.scripted, parsable: arguments.parsable, json: arguments.json.clone() };
    let targets = pools.iter().map(|name| DirectTarget::Pool { name: name.clone() }).collect();
    Ok(cli::direct::print(client, targets, &output, "zpool iostat", "pools")?)
}

fn snapshot(client: &Client, pools: &[String]) -> Result<IostatReport, Failure> {
    match client.call(&Request::PoolIostat(PoolNames { pools: pools.to_vec() }))? {
        Response::Iostat(report) => Ok(report),
        other => Err(cli::unexpected("cannot show statistics", other)),
    }
}

/// Rules of how vdevs are named.
#[derive(Clone, Copy)]
struct Names {
    guids: bool,
    follow_links: bool,
    full_paths: bool,
}

impl Names {
    fn of(arguments: &args::Iostat) -> Names {
        use cli::color::is_set;
        Names {
            guids: arguments.guids || is_set("ZPOOL_VDEV_NAME_GUID"),
            follow_links: arguments.follow_links || is_set("ZPOOL_VDEV_NAME_FOLLOW_LINKS"),
            full_paths: arguments.full_paths || is_set("ZPOOL_VDEV_NAME_PATH"),
        }
    }

    /// Name that is shown: the last part of a disk's path, a file's whole path, or the group's name.
    fn shown(self, vdev: &IostatVdev) -> String {
        if self.guids && vdev.kind != "root" {
            return vdev.guid.to_string();
        }
        if !matches!(vdev.kind.as_str(), "disk" | "file") {
            return vdev.name.clone();
        }
        let real = std::fs::canonicalize(&vdev.name).ok().filter(|_| self.follow_links);
        let path = real.map_or_else(|| vdev.name.clone(), |real| real.to_string_lossy().into_owned());
        let is_short = vdev.kind == "disk" && !self.full_paths;
        if is_short { path.rsplit('/').next().unwrap_or(&path).to_string() } else { path }
    }

    /// Name, as shown, of the vdev that a word means.
    fn find(self, vdev: &IostatVdev, word: &str) -> Option<String> {
        let is_it = vdev.kind != "root"
            && (vdev.name == word
                || vdev.guid.to_string() == word
                || self.shown(vdev) == word
                || vdev.name.rsplit('/').next() == Some(word));
        if is_it { Some(self.shown(vdev)) } else { vdev.children.iter().find_map(|child| self.find(child, word)) }
    }

    /// Sorts words into pools and vdevs (OpenZFS: pools, or vdevs of any pool, or a pool and its vdevs).
    fn sort_out(self, client: &Client, words: &[String]) -> Result<(Vec<String>, Vec<String>), Stop> {
        let [first, rest @ ..] = words else { return Ok((Vec::new(), Vec::new())) };
        let all = snapshot(client, &[])?;
        let pool = |word: &String| all.pools.iter().find(|pool| pool.name == *word);
        if words.iter().all(|word| pool(word).is_some()) {
            return Ok((words.to_vec(), Vec::new()));
        }
        let anywhere = |word: &String| all.pools.iter().find_map(|pool| self.find(pool, word));
        if let Some(vdevs) = words.iter().map(anywhere).collect::<Option<Vec<_>>>() {
            return Ok((Vec::new(), vdevs));
        }
        let Some(pool) = pool(first) else {
            let failed = |why| Stop::Failed(Failure::new(ErrorKind::NotFound, "cannot show statistics", why));
            // One word that is neither is most likely a pool's name mistyped.
            return Err(if rest.is_empty() {
                let why = pool_name_objection(first).unwrap_or_else(|| "no such pool".to_string());
                Stop::Failed(Failure::new(ErrorKind::NotFound, format!("cannot open '{first}'"), why))
            } else {
                failed("Unable to parse pools/vdevs list.")
            });
        };
        match rest.iter().map(|word| self.find(pool, word).ok_or(word)).collect::<Result<Vec<_>, _>>() {
            Ok(vdevs) => Ok((vec![first.clone()], vdevs)),
            Err(word) => {
                Err(Stop::usage(format!("Expected either a list of pools, or list of vdevs in \"{first}\", but got:\n\t{word}\n")))
            }
        }
    }
}

/// State of the loop that prints.
struct Screen<'a> {
    client: &'a Client,
    arguments: &'a args::Iostat,
    names: Names,
    pools: Vec<String>,
    style: Style,
    before: Option<IostatReport>,
    iteration: u64,
}

impl Screen<'_> {
    fn run(mut self, repeat: Repeat) -> Result<u8, Stop> {
        let mut left = repeat.count;
        loop {
            let now = snapshot(self.client, &self.pools)?;
            if let Some(names) = &self.arguments.scripts {
                let reports = crate::list::reports(self.client, self.pools.clone(), false)?;
                let devices: Vec<_> = reports.iter().flat_map(|report| scripts::devices(&report.name, &report.vdevs)).collect();
                self.style.scripts = Some(std::rc::Rc::new(scripts::Columns::ask(names, &devices)));
            }
            if now.pools.is_empty() {
                cli::errln!("no pools available");
                if repeat.interval.is_none() {
                    return Ok(cli::EXIT_FAILURE);
                }
            }
            let skipped = self.arguments.skip_first && self.iteration == 0;
            if self.arguments.json.json {
                if !skipped {
                    cli::outln!("{}", self.json(&now));
                }
                self.iteration += 1;
            } else {
                cli::out!("{}", self.print(&now, skipped)?);
            }
            self.before = Some(now);
            if !skipped {
                left = left.map(|left| left - 1);
                if repeat.interval.is_none() || left == Some(0) {
                    return Ok(0);
                }
            }
            std::thread::sleep(Duration::from_secs_f64(repeat.interval.unwrap_or(0.0)));
        }
    }

    fn print(&mut self, now: &IostatReport, skipped: bool) -> Result<String, Stop> {
        self.style.name_width = self.name_width(now);
        let mut out = timestamp(self.arguments.timestamp.as_deref())?.map(|stamp| stamp + "\n").unwrap_or_default();
        self.iteration += 1;
        let terminal = std::io::stdout().is_terminal();
        let again = terminal && !self.arguments.headings_once && self.iteration.is_multiple_of(TERMINAL_LINES);
        let histogram = self.style.groups.iter().any(|group| group.is_histogram());
        let wanted = (self.iteration == 1 && !skipped) || skipped != self.arguments.verbose || again;
        if wanted && !histogram && !self.style.scripted && !now.pools.is_empty() {
            out.push_str(&self.style.header());
        }
        if skipped {
            return Ok(out);
        }
        for pool in &now.pools {
            let old = self.before.as_ref().and_then(|before| Some((before, before.pools.iter().find(|old| old.guid == pool.guid)?)));
            let elapsed_ns = old.map_or(pool.age_ns, |(before, _)| now.time_ns.saturating_sub(before.time_ns));
            let span = Span { pool: &pool.name, now: pool, old: old.map(|(_, old)| old), elapsed_ns };
            let printed = self.style.vdev(&mut out, span, &|vdev| self.names.shown(vdev), 0);
            if printed > 0 && !histogram && !self.style.scripted && self.style.verbose && self.style.only.is_empty() {
                out.push_str(&self.style.separator());
                out.push('\n');
            }
        }
        let closes = (now.pools.len() > 1 && !self.arguments.verbose && self.style.only.is_empty()) || !self.style.only.is_empty();
        if closes && !histogram && !self.style.scripted {
            out.push_str(&self.style.separator());
            out.push('\n');
        }
        Ok(out)
    }

    /// Length of the longest name in characters, as far as the line has room.
    fn name_width(&self, now: &IostatReport) -> usize {
        fn longest(vdev: &IostatVdev, depth: usize, verbose: bool, names: Names) -> usize {
            let own = depth + names.shown(vdev).chars().count();
            let children = vdev.children.iter().filter(|_| verbose).map(|child| longest(child, depth + 2, verbose, names));
            children.fold(own, usize::max)
        }
        let widest = now.pools.iter().map(|pool| longest(pool, 0, self.style.verbose, self.names)).max().unwrap_or(0);
        let columns = if std::io::stdout().is_terminal() { TERMINAL_COLUMNS } else { 999 };
        widest.min(columns - STATS_WIDTH).max(NAME_WIDTH_MIN)
    }

    /// JSON of everything that is counted, since import (OpenZFS 2.3 has no `-j` here; the shape follows `zpool status -j`).
    fn json(&self, now: &IostatReport) -> String {
        let int = self.arguments.json.json_int;
        let pools: Map<String, Value> = now.pools.iter().map(|pool| (pool.name.clone(), vdev_json(pool, self.names, int))).collect();
        cli::json::envelope("zpool iostat", "pools", pools)
    }
}

fn vdev_json(vdev: &IostatVdev, names: Names, int: bool) -> Value {
    let number = |value: u64| cli::json::number(value, int);
    let mut entry = Map::new();
    entry.insert("name".into(), json!(names.shown(vdev)));
    entry.insert("vdev_type".into(), json!(vdev.kind));
    entry.insert("guid".into(), number(vdev.guid));
    if let (Some(allocated), Some(free)) = (vdev.allocated_bytes, vdev.free_bytes) {
        entry.insert("alloc_space".into(), number(allocated));
        entry.insert("free_space".into(), number(free));
    }
    entry.insert("read_ops".into(), number(vdev.read_operations));
    entry.insert("write_ops".into(), number(vdev.write_operations));
    entry.insert("read_bytes".into(), number(vdev.read_bytes));
    entry.insert("write_bytes".into(), number(vdev.written_bytes));
    let extended = vdev.extended.iter().map(|(name, values)| {
        let value = if let [single] = values.as_slice() { number(*single) } else { values.iter().map(|value| number(*value)).collect() };
        (name.clone(), value)
    });
    entry.insert("vdev_stats_ex".into(), Value::Object(extended.collect()));
    if !vdev.children.is_empty() {
        let children = vdev.children.iter().map(|child| (names.shown(child), vdev_json(child, names, int)));
        entry.insert("vdevs".into(), Value::Object(children.collect()));
    }
    Value::Object(entry)
}
