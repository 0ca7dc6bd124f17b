//! `zirconia-commands [--seed N] [--steps N] [NAME…]`: the programs as users run them; `zirconia-commands campaign`: the same, disturbed;
//! `zirconia-commands kills`: the daemon killed under programs that write.
//!
//! Every scenario gets a daemon, a state directory and file vdevs of its own, runs the built commands and looks at what users
//! see: exit codes, messages, tables, JSON, files through the mount, and what is left after a kill. No engine code is linked.
//! The programs are looked for beside this one, or in `ZIRCONIA_BIN`. Scenarios that mount are skipped, and said so, where
//! there is no `/dev/fuse`.

mod campaign;
mod coherency;
mod daemon;
mod datasets;
mod devices;
mod durable;
mod faults;
mod files;
mod hidden;
mod imports;
mod kills;
mod lifecycle;
mod mapped;
mod memory;
mod mounts;
mod output;
mod owners;
mod parameters;
mod pools;
mod posix;
mod providers;
mod recovery;
mod sparse;
mod sweeps;
mod users;
mod vendors;
mod volumes;
mod words;
mod world;

use std::process::ExitCode;
use std::time::Instant;
use world::{Failure, Options, World};

/// A scenario: its name, whether it needs mounts, what it does.
struct Scenario {
    name: &'static str,
    mounts: bool,
    run: fn(&World) -> Result<(), Failure>,
}

const SCENARIOS: &[Scenario] = &[
    Scenario { name: "pool: create, list, export, import", mounts: false, run: pools::life },
    Scenario { name: "pool: creation refused, and why", mounts: false, run: pools::refusals },
    Scenario { name: "parameters: effects", mounts: true, run: parameters::effects },
    Scenario { name: "parameters: messages and txgs", mounts: true, run: parameters::records },
    Scenario { name: "pool: a sync that is forced", mounts: false, run: parameters::forced_sync },
    Scenario { name: "pool: directories that were made for it", mounts: true, run: parameters::made_directories },
    Scenario { name: "vdevs: properties", mounts: true, run: parameters::vdev_properties },
    Scenario { name: "pool: draid", mounts: false, run: pools::draid },
    Scenario { name: "pool: import by name, id, new name, altroot, read-only", mounts: true, run: pools::imports },
    Scenario { name: "pool: what an import says", mounts: false, run: imports::listing },
    Scenario { name: "pool: where an import looks", mounts: false, run: imports::places },
    Scenario { name: "pool: versions before features", mounts: false, run: imports::versions },
    Scenario { name: "pool: an alternate root", mounts: false, run: imports::altroot },
    Scenario { name: "pool: a scrub looks for devices", mounts: false, run: imports::scrub_looks },
    Scenario { name: "pool: found below /dev/shm", mounts: false, run: pools::found_in_memory },
    Scenario { name: "pool: labels cleared", mounts: false, run: pools::labelclear },
    Scenario { name: "pool: the dataset to boot from", mounts: false, run: pools::bootfs },
    Scenario { name: "dataset: create, list, destroy", mounts: false, run: datasets::life },
    Scenario { name: "dataset: properties, inheritance, refusals", mounts: false, run: datasets::properties },
    Scenario { name: "dataset: volumes", mounts: false, run: volumes::life },
    Scenario { name: "dataset: snapshots", mounts: true, run: datasets::snapshots },
    Scenario { name: "dataset: mount directories follow", mounts: true, run: datasets::directories },
    Scenario { name: "mounts: what is forced ends", mounts: true, run: mounts::forced_ends },
    Scenario { name: "mounts: places, notices, options", mounts: true, run: mounts::places },
    Scenario { name: "mounts: renamed in use", mounts: true, run: mounts::renamed },
    Scenario { name: "mounts: dead ones come back", mounts: true, run: mounts::revival },
    Scenario { name: "mounts: after a kill as they were", mounts: true, run: mounts::as_it_was },
    Scenario { name: "mounts: coming and going at once", mounts: true, run: hidden::at_once },
    Scenario { name: "mounts: hidden ones, stacked ones", mounts: true, run: hidden::stacked },
    Scenario { name: "mounts: in another namespace too", mounts: true, run: hidden::elsewhere },
    Scenario { name: "mounts: unmounted before a kill", mounts: true, run: hidden::stays_unmounted },
    Scenario { name: "mounts: killed while it waits for itself", mounts: true, run: mounts::waits_for_itself },
    Scenario { name: "files: written, listed, read after import", mounts: true, run: files::round_trip },
    Scenario { name: "files: quota", mounts: true, run: files::quota },
    Scenario { name: "files: fsync survives kill -9 of the daemon", mounts: true, run: files::kill },
    Scenario { name: "files: direct-mmap: every way to the same bytes", mounts: true, run: coherency::coherency },
    Scenario { name: "files: on disk after syncfs, umount", mounts: true, run: durable::forwarded },
    Scenario { name: "files: read-only where syncfs is forwarded", mounts: true, run: durable::read_only },
    Scenario { name: "files: on disk by themselves", mounts: true, run: durable::by_itself },
    Scenario { name: "files: sparse copies of mapped files", mounts: true, run: sparse::copies },
    Scenario { name: "posix: access times (generic/003)", mounts: true, run: posix::access_times },
    Scenario { name: "posix: files without a name (generic/004)", mounts: true, run: posix::nameless },
    Scenario { name: "posix: loops of links (generic/005)", mounts: true, run: posix::loops },
    Scenario { name: "posix: synced directories after a crash (generic/034)", mounts: true, run: posix::synced_directories },
    Scenario { name: "posix: room that is promised (generic/213)", mounts: true, run: posix::room },
    Scenario { name: "posix: direct writes beside readers (generic/451)", mounts: true, run: posix::direct_beside_readers },
    Scenario { name: "files: an ordinary user's pool", mounts: true, run: files::ordinary_user },
    Scenario { name: "recovery: damaged device, scrub, clear", mounts: true, run: recovery::scrub },
    Scenario { name: "recovery: scans paused, stopped, of errors", mounts: true, run: recovery::scans },
    Scenario { name: "recovery: missing device, missing vdev", mounts: true, run: recovery::missing },
    Scenario { name: "recovery: offline, online, resilver", mounts: true, run: recovery::offline },
    Scenario { name: "recovery: attach, replace, detach", mounts: true, run: recovery::replace },
    Scenario { name: "recovery: resilvers that wait", mounts: true, run: recovery::deferred },
    Scenario { name: "recovery: sequential rebuild", mounts: true, run: sweeps::rebuild },
    Scenario { name: "life: add, remove", mounts: true, run: lifecycle::add_and_remove },
    Scenario { name: "life: log devices that fail or are away", mounts: true, run: lifecycle::logs },
    Scenario { name: "life: spares", mounts: true, run: lifecycle::spares },
    Scenario { name: "life: failing devices, suspended pools", mounts: true, run: lifecycle::failing },
    Scenario { name: "life: memory, in a control group and given back", mounts: true, run: memory::life },
    Scenario { name: "life: devices grow and come back", mounts: true, run: lifecycle::grow },
    Scenario { name: "devices: initialize, trim", mounts: true, run: sweeps::free_space },
    Scenario { name: "devices: what others have on them", mounts: false, run: devices::foreign },
    Scenario { name: "devices: pools that are not there", mounts: false, run: devices::absent },
    Scenario { name: "devices: guids and leaving", mounts: false, run: devices::identity },
    Scenario { name: "devices: verbs, cache files, room", mounts: false, run: devices::verbs },
    Scenario { name: "pool: what has no effect says so", mounts: false, run: devices::without_effect },
    Scenario { name: "devices: in a file system of the same daemon", mounts: true, run: devices::on_itself },
    Scenario { name: "recovery: labels of other things", mounts: false, run: recovery::wrong_devices },
    Scenario { name: "faults: zinject", mounts: true, run: faults::inject },
    Scenario { name: "faults: metadata that cannot be read", mounts: true, run: faults::unreadable },
    Scenario { name: "faults: scheduler and its parameters", mounts: true, run: faults::scheduler },
    Scenario { name: "faults: programs run on events", mounts: false, run: faults::hooks },
    Scenario { name: "campaign: a sample", mounts: true, run: campaign::sample },
    Scenario { name: "kills: a sample", mounts: true, run: kills::sample },
    Scenario { name: "providers: listed, chosen, used, let go", mounts: true, run: providers::life },
    Scenario { name: "providers: one in C, built, tried, broken", mounts: false, run: providers::in_c },
    Scenario { name: "providers: a liar in C", mounts: true, run: providers::liar },
    Scenario { name: "providers: a GPU, missing and emulated", mounts: true, run: providers::cuda },
    Scenario { name: "providers: a target, killed and there again", mounts: true, run: providers::target },
    Scenario { name: "providers: libraries that crash and hang", mounts: true, run: vendors::harmful },
    Scenario { name: "daemon: takes nothing over", mounts: false, run: daemon::takes_nothing_over },
    Scenario { name: "daemon: believes nobody else", mounts: false, run: daemon::believes_nobody_else },
    Scenario { name: "daemon: out of descriptors", mounts: false, run: daemon::out_of_descriptors },
    Scenario { name: "output: JSON", mounts: false, run: output::json },
    Scenario { name: "output: scripted, columns, usage", mounts: false, run: output::scripted },
    Scenario { name: "output: history, wait, iostat, version", mounts: false, run: output::others },
    Scenario { name: "words: properties, paths, what is lacking", mounts: true, run: words::properties },
    Scenario { name: "users: quotas and who uses how much", mounts: true, run: owners::quotas },
    Scenario { name: "users: readers that go away, zones", mounts: false, run: users::output },
    Scenario { name: "users: strangers look and change nothing", mounts: true, run: users::strangers },
];

/// Names, and the options of scenarios that can be made longer.
fn arguments() -> Option<(Vec<String>, Options)> {
    let (mut wanted, mut options) = (Vec::new(), Options::default());
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--seed" => options.seed = Some(words.next()?.parse().ok()?),
            "--steps" => options.steps = Some(words.next()?.parse().ok()?),
            _ => wanted.push(word),
        }
    }
    Some((wanted, options))
}

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let long: Option<fn(_) -> bool> = match words.next().as_deref() {
        Some("campaign") => Some(campaign::main),
        Some("kills") => Some(kills::main),
        _ => None,
    };
    if let Some(long) = long {
        return if long(words) { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let Some((wanted, options)) = arguments() else {
        eprintln!("usage: zirconia-commands [--seed N] [--steps N] [NAME…]");
        return ExitCode::from(2);
    };
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    let can_mount = std::path::Path::new("/dev/fuse").exists();
    for scenario in SCENARIOS.iter().filter(|one| wanted.is_empty() || wanted.iter().any(|word| one.name.contains(word.as_str()))) {
        if scenario.mounts && !can_mount {
            println!("skip  {} (no /dev/fuse)", scenario.name);
            skipped += 1;
            continue;
        }
        let start = Instant::now();
        match World::new(options).and_then(|world| (scenario.run)(&world)) {
            Ok(()) => {
                println!("ok    {} ({:.1} s)", scenario.name, start.elapsed().as_secs_f64());
                passed += 1;
            }
            Err(failure) => {
                println!("FAIL  {}\n{failure}", scenario.name);
                failed += 1;
            }
        }
    }
    println!("{passed} passed, {failed} failed, {skipped} skipped");
    if failed == 0 && passed + skipped > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
