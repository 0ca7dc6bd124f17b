//! `zirconia-commands [-j JOBS] [--seed N] [--steps N] [NAME…]`: the programs as users run them; `zirconia-commands campaign`: the same, disturbed;
//! `zirconia-commands kills`: the daemon killed under programs that write; `zirconia-commands targets`: connections of iSCSI cut off at any byte;
//! `zirconia-commands takeover`: a pool that goes from host to host; `zirconia-commands cli-table`: every verb, option and property of OpenZFS's;
//! `zirconia-commands bounds`: memory, threads and waits that have a bound.
//!
//! Every scenario gets a daemon, a state directory and file vdevs of its own, runs the built commands and looks at what users
//! see: exit codes, messages, tables, JSON, files through the mount, and what is left after a kill. No engine code is linked.
//! The programs are looked for beside this one, or in `ZIRCONIA_BIN`. A scenario whose needs the machine does not meet is skipped,
//! and said so; with `ZIRCONIA_STRICT` it fails.

mod attributes;
mod beside;
mod bounds;
mod branches;
mod caches;
mod callers;
mod campaign;
mod checkpoints;
mod checksums;
mod classes;
mod cloned;
mod coherency;
mod daemon;
mod damaged;
mod datasets;
mod death;
mod delegation;
mod devices;
mod differences;
mod durable;
mod errata;
mod expansion;
mod faults;
mod fetched;
mod files;
mod guard;
mod healing;
mod hidden;
mod imports;
mod initiator;
mod iscsi;
mod kills;
mod layers;
mod lifecycle;
mod lists;
mod logs;
mod mapped;
mod memory;
mod mounts;
mod multihost;
mod nbd;
mod needs;
mod objects;
mod output;
mod owners;
mod parameters;
mod places;
mod pools;
mod posix;
mod programs;
mod providers;
mod receives;
mod recovery;
mod references;
mod removal;
mod secrets;
mod sparse;
mod strangers;
mod streams;
mod sweeps;
mod table;
mod takeover;
mod targets;
mod underway;
mod upgrade;
mod users;
mod vendors;
mod volume_files;
mod volumes;
mod waiting;
mod ways;
mod words;
mod world;

use need::Need;
use needs::{LISTS, LOOPS, MOUNTS, NOTHING, OVERLAY, QEMU, ROOT, SHM, WEB, lacks_any};
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use world::{Failure, Options, World};

/// Scenario: its name, what it needs of the machine, what it does.
struct Scenario {
    name: &'static str,
    needs: &'static [Need],
    run: fn(&World) -> Result<(), Failure>,
}

const SCENARIOS: &[Scenario] = &[
    Scenario { name: "pool: create, list, export, import", needs: NOTHING, run: pools::life },
    Scenario { name: "pool: creation refused, and why", needs: NOTHING, run: pools::refusals },
    Scenario { name: "pool: how fragmented free space is", needs: NOTHING, run: pools::fragmentation },
    Scenario { name: "parameters: effects", needs: MOUNTS, run: parameters::effects },
    Scenario { name: "parameters: trims and scrubs", needs: NOTHING, run: parameters::background },
    Scenario { name: "parameters: messages and txgs", needs: MOUNTS, run: parameters::records },
    Scenario { name: "pool: a sync that is forced", needs: NOTHING, run: parameters::forced_sync },
    Scenario { name: "pool: directories that were made for it", needs: MOUNTS, run: parameters::made_directories },
    Scenario { name: "vdevs: properties", needs: MOUNTS, run: parameters::vdev_properties },
    Scenario { name: "pool: vdevs for some blocks", needs: NOTHING, run: classes::words },
    Scenario { name: "pool: small blocks of a new pool", needs: NOTHING, run: classes::limits },
    Scenario { name: "pool: metadata and small blocks on vdevs for them", needs: MOUNTS, run: classes::places },
    Scenario { name: "pool: draid", needs: NOTHING, run: pools::draid },
    Scenario { name: "pool: import by name, id, new name, altroot, read-only", needs: MOUNTS, run: pools::imports },
    Scenario { name: "pool: what an import says", needs: NOTHING, run: imports::listing },
    Scenario { name: "import: keys", needs: MOUNTS, run: imports::keys },
    Scenario { name: "pool: where an import looks", needs: NOTHING, run: imports::places },
    Scenario { name: "pool: an older state", needs: NOTHING, run: imports::rewinds },
    Scenario { name: "pool: a checkpoint", needs: NOTHING, run: checkpoints::life },
    Scenario { name: "pool: mirrors are divided", needs: NOTHING, run: imports::splits },
    Scenario { name: "two hosts: one dies, the other takes over", needs: NOTHING, run: multihost::takes_over },
    Scenario { name: "two hosts: one stood still", needs: NOTHING, run: multihost::stood_still },
    Scenario { name: "two hosts: one comes back, without heartbeats", needs: NOTHING, run: multihost::comes_back_without_heartbeats },
    Scenario { name: "two hosts: one has no id", needs: NOTHING, run: multihost::without_id },
    Scenario { name: "two hosts: a sample of take-overs", needs: NOTHING, run: takeover::sample },
    Scenario { name: "strangers: files that have no end, or never answer", needs: NOTHING, run: strangers::endless },
    Scenario { name: "strangers: copies beside devices", needs: NOTHING, run: strangers::copies },
    Scenario { name: "strangers: lists that are damaged", needs: NOTHING, run: strangers::damaged_lists },
    Scenario { name: "strangers: cache files that are lost", needs: NOTHING, run: strangers::lost_cache_files },
    Scenario { name: "strangers: log devices that were away while they were removed", needs: NOTHING, run: strangers::removed_logs },
    Scenario { name: "strangers: all but one pool imported", needs: NOTHING, run: strangers::all_but_one },
    Scenario { name: "strangers: which snapshot", needs: NOTHING, run: strangers::which_snapshot },
    Scenario { name: "strangers: mistyped properties of pools", needs: NOTHING, run: strangers::properties },
    Scenario { name: "strangers: names that nothing can have", needs: NOTHING, run: strangers::names },
    Scenario { name: "strangers: advice that helps", needs: MOUNTS, run: strangers::advice },
    Scenario { name: "pool: features that are not enabled", needs: NOTHING, run: pools::features },
    Scenario { name: "pool: versions before features", needs: NOTHING, run: imports::versions },
    Scenario { name: "pool: upgrades of versions", needs: NOTHING, run: imports::upgrades },
    Scenario { name: "pool: an alternate root", needs: NOTHING, run: imports::altroot },
    Scenario { name: "pool: a scrub looks for devices", needs: NOTHING, run: imports::scrub_looks },
    Scenario { name: "pool: found below /dev/shm", needs: SHM, run: pools::found_in_memory },
    Scenario { name: "pool: labels cleared", needs: NOTHING, run: pools::labelclear },
    Scenario { name: "pool: the dataset to boot from", needs: NOTHING, run: pools::bootfs },
    Scenario { name: "dataset: create, list, destroy", needs: NOTHING, run: datasets::life },
    Scenario { name: "dataset: versions", needs: NOTHING, run: datasets::versions },
    Scenario { name: "dataset: files that are to be deleted", needs: MOUNTS, run: datasets::deletions },
    Scenario { name: "dataset: properties, inheritance, refusals", needs: NOTHING, run: datasets::properties },
    Scenario { name: "dataset: volumes", needs: NOTHING, run: volumes::life },
    Scenario { name: "volumes: bytes of their files", needs: MOUNTS, run: volume_files::bytes },
    Scenario { name: "volumes: sizes, names, snapshots and holes under who uses them", needs: MOUNTS, run: volume_files::changes },
    Scenario { name: "volumes: those of a suspended pool hold up no other", needs: MOUNTS, run: volume_files::suspended },
    Scenario { name: "volumes: no pool of the same daemon on one", needs: MOUNTS, run: volume_files::beneath },
    Scenario { name: "volumes: disks of iSCSI", needs: NOTHING, run: iscsi::disks },
    Scenario { name: "volumes: reservations of iSCSI", needs: NOTHING, run: iscsi::reservations },
    Scenario { name: "volumes: crowds of iSCSI", needs: NOTHING, run: iscsi::crowds },
    Scenario { name: "volumes: connections cut off, daemons killed: a sample", needs: NOTHING, run: targets::sample },
    Scenario { name: "volumes: exports of NBD", needs: NOTHING, run: nbd::exports },
    Scenario { name: "volumes: QEMU over NBD", needs: QEMU, run: nbd::qemu },
    Scenario { name: "objects: stored by programs", needs: NOTHING, run: objects::stores },
    Scenario { name: "objects: stored beside mounts", needs: MOUNTS, run: objects::beside_mounts },
    Scenario { name: "volumes: a file system over a loop device", needs: LOOPS, run: volume_files::loops },
    Scenario { name: "dataset: snapshots", needs: MOUNTS, run: datasets::snapshots },
    Scenario { name: "dataset: streams that are sent, and words about them", needs: NOTHING, run: streams::words },
    Scenario { name: "dataset: streams of several datasets, and where one broke off", needs: NOTHING, run: streams::packages },
    Scenario { name: "dataset: holds, and destruction that waits for them", needs: NOTHING, run: references::holds },
    Scenario { name: "dataset: what the history tells of snapshots", needs: NOTHING, run: references::history },
    Scenario { name: "dataset: bookmarks", needs: NOTHING, run: references::bookmarks },
    Scenario { name: "dataset: bookmarks that redact", needs: NOTHING, run: references::redaction },
    Scenario { name: "dataset: snapshots that were redacted", needs: MOUNTS, run: references::redacted_snapshots },
    Scenario { name: "dataset: holds and bookmarks beside clones and rollbacks", needs: NOTHING, run: references::beside_clones },
    Scenario { name: "dataset: clones, promoted, destroyed with what they were made from", needs: MOUNTS, run: branches::clones },
    Scenario { name: "dataset: differences of snapshots", needs: MOUNTS, run: differences::diff },
    Scenario { name: "dataset: livelists of clones, as OpenZFS counts them", needs: MOUNTS, run: branches::livelists },
    Scenario { name: "dataset: back to a snapshot", needs: MOUNTS, run: branches::rollbacks },
    Scenario { name: "dataset: encrypted file systems", needs: MOUNTS, run: secrets::encrypted },
    Scenario { name: "dataset: encrypted file systems by zdb", needs: MOUNTS, run: secrets::looked_into },
    Scenario { name: "dataset: raw copies of encrypted file systems", needs: MOUNTS, run: secrets::raw_copies },
    Scenario { name: "dataset: keys from web servers", needs: WEB, run: fetched::keys },
    Scenario { name: "errata: encrypted with keys of the first version", needs: MOUNTS, run: errata::old_keys },
    Scenario { name: "errata: encrypted snapshots without a set of IVs", needs: MOUNTS, run: errata::nameless_sets },
    Scenario { name: "dataset: streams received, refused, resumed", needs: NOTHING, run: receives::receives },
    Scenario { name: "dataset: damaged files of snapshots and clones named", needs: MOUNTS, run: damaged::shared },
    Scenario { name: "dataset: damaged blocks healed from a stream", needs: NOTHING, run: healing::healing },
    Scenario { name: "dataset: file systems sent and received", needs: MOUNTS, run: receives::file_systems },
    Scenario { name: "dataset: streams under way, and who is in their way", needs: MOUNTS, run: underway::under_way },
    Scenario { name: "dataset: mount directories follow", needs: MOUNTS, run: datasets::directories },
    Scenario { name: "mounts: what is forced ends", needs: MOUNTS, run: mounts::forced_ends },
    Scenario { name: "mounts: forced while the pool waits for a device", needs: MOUNTS, run: mounts::forced_in_vain },
    Scenario { name: "mounts: places, notices, options", needs: MOUNTS, run: mounts::places },
    Scenario { name: "mounts: keys that go with them", needs: MOUNTS, run: mounts::keys },
    Scenario { name: "mounts: renamed in use", needs: MOUNTS, run: mounts::renamed },
    Scenario { name: "mounts: dead ones come back", needs: ROOT, run: mounts::revival },
    Scenario { name: "mounts: after a kill as they were", needs: ROOT, run: mounts::as_it_was },
    Scenario { name: "mounts: locked after a kill", needs: ROOT, run: places::locked },
    Scenario { name: "mounts: locked after a kill, and renamed", needs: ROOT, run: places::locked_and_renamed },
    Scenario { name: "mounts: locked after a kill, and unmounted around", needs: ROOT, run: places::locked_and_unmounted_around },
    Scenario { name: "mounts: those of others inside", needs: ROOT, run: places::others_inside },
    Scenario { name: "mounts: coming and going at once", needs: ROOT, run: hidden::at_once },
    Scenario { name: "mounts: hidden ones, stacked ones", needs: ROOT, run: hidden::stacked },
    Scenario { name: "mounts: in another namespace too", needs: ROOT, run: hidden::elsewhere },
    Scenario { name: "mounts: in another namespace too, by force", needs: ROOT, run: hidden::elsewhere_by_force },
    Scenario { name: "mounts: refused at one of several places", needs: ROOT, run: hidden::several_places },
    Scenario { name: "mounts: at other places, by force", needs: ROOT, run: beside::forced },
    Scenario { name: "mounts: at other places, after a kill", needs: ROOT, run: beside::come_back },
    Scenario { name: "mounts: snapshots, by hand", needs: ROOT, run: beside::snapshots_by_hand },
    Scenario { name: "mounts: dead ones go with their pool", needs: MOUNTS, run: beside::dead_with_their_pool },
    Scenario { name: "mounts: of another daemon, with the same names", needs: ROOT, run: beside::of_another_daemon },
    Scenario { name: "mounts: at other places, syncs forwarded", needs: LOOPS, run: beside::forwarded },
    Scenario { name: "mounts: unmounted before a kill", needs: ROOT, run: hidden::stays_unmounted },
    Scenario { name: "mounts: killed while it waits for itself", needs: LOOPS, run: mounts::waits_for_itself },
    Scenario { name: "upgrade: under programs that go on", needs: MOUNTS, run: upgrade::under_programs },
    Scenario { name: "upgrade: refused, or to what is no daemon", needs: MOUNTS, run: upgrade::refused },
    Scenario { name: "upgrade: to what does not get on", needs: MOUNTS, run: upgrade::stuck },
    Scenario { name: "upgrade: stopped meanwhile", needs: MOUNTS, run: upgrade::stopped_meanwhile },
    Scenario { name: "upgrade: stopped as it begins", needs: MOUNTS, run: upgrade::stopped_as_it_begins },
    Scenario { name: "upgrade: stopped between deaths", needs: &[], run: upgrade::stopped_between_deaths },
    Scenario { name: "upgrade: without who keeps the mounts", needs: MOUNTS, run: upgrade::without_keeper },
    Scenario { name: "death: programs go on", needs: MOUNTS, run: death::programs_go_on },
    Scenario { name: "death: of the keeper", needs: ROOT, run: death::keeper_is_killed },
    Scenario { name: "files: written, listed, read after import", needs: MOUNTS, run: files::round_trip },
    Scenario { name: "files: quota", needs: MOUNTS, run: files::quota },
    Scenario { name: "files: equal blocks that are stored once", needs: MOUNTS, run: files::stored_once },
    Scenario { name: "files: checksums with a salt", needs: MOUNTS, run: checksums::salted },
    Scenario { name: "files: long names", needs: MOUNTS, run: checksums::long_names },
    Scenario { name: "files: fsync survives kill -9 of the daemon", needs: MOUNTS, run: files::kill },
    Scenario { name: "files: the intent log, on a device of its own", needs: MOUNTS, run: logs::survives },
    Scenario { name: "files: a log device with the log of a locked file system", needs: MOUNTS, run: logs::leaves_with_its_key },
    Scenario { name: "files: the intent log of a frozen pool", needs: MOUNTS, run: logs::replayed_after_freeze },
    Scenario { name: "files: the intent log's device is away when the daemon comes back", needs: MOUNTS, run: logs::waits_for_its_device },
    Scenario { name: "files: the intent log's device is lost", needs: MOUNTS, run: logs::goes_on_without_its_device },
    Scenario { name: "files: whiteouts and exchanged names after kill -9", needs: MOUNTS, run: layers::renames },
    Scenario { name: "files: an overlay's upper directory", needs: OVERLAY, run: layers::overlay },
    Scenario { name: "files: attributes: what changes by itself is seen", needs: MOUNTS, run: attributes::kept },
    Scenario { name: "files: direct-mmap: every way to the same bytes", needs: MOUNTS, run: coherency::coherency },
    Scenario { name: "files: on disk after syncfs, umount", needs: LOOPS, run: durable::forwarded },
    Scenario { name: "files: write-back: what the kernel keeps", needs: LOOPS, run: durable::kept_back },
    Scenario { name: "files: read-only where syncfs is forwarded", needs: LOOPS, run: durable::read_only },
    Scenario { name: "files: on disk by themselves", needs: MOUNTS, run: durable::by_itself },
    Scenario { name: "files: copies that share blocks", needs: MOUNTS, run: cloned::copies },
    Scenario { name: "files: sparse copies of mapped files", needs: MOUNTS, run: sparse::copies },
    Scenario { name: "posix: access times (generic/003)", needs: MOUNTS, run: posix::access_times },
    Scenario { name: "posix: files without a name (generic/004)", needs: MOUNTS, run: posix::nameless },
    Scenario { name: "posix: loops of links (generic/005)", needs: MOUNTS, run: posix::loops },
    Scenario { name: "posix: synced directories after a crash (generic/034)", needs: MOUNTS, run: posix::synced_directories },
    Scenario { name: "posix: room that is promised (generic/213)", needs: MOUNTS, run: posix::room },
    Scenario { name: "posix: access control lists", needs: ROOT, run: lists::posix },
    Scenario { name: "posix: access control lists of an ordinary user's mount", needs: LISTS, run: lists::ordinary_user },
    Scenario { name: "posix: direct writes beside readers (generic/451)", needs: MOUNTS, run: posix::direct_beside_readers },
    Scenario { name: "files: an ordinary user's pool", needs: MOUNTS, run: files::ordinary_user },
    Scenario { name: "recovery: damaged device, scrub, clear", needs: MOUNTS, run: recovery::scrub },
    Scenario { name: "recovery: scans paused, stopped, of errors", needs: MOUNTS, run: recovery::scans },
    Scenario { name: "recovery: missing device, missing vdev", needs: MOUNTS, run: recovery::missing },
    Scenario { name: "recovery: offline, online, resilver", needs: MOUNTS, run: recovery::offline },
    Scenario { name: "recovery: attach, replace, detach", needs: MOUNTS, run: recovery::replace },
    Scenario { name: "recovery: resilvers that wait", needs: MOUNTS, run: recovery::deferred },
    Scenario { name: "recovery: sequential rebuild", needs: MOUNTS, run: sweeps::rebuild },
    Scenario { name: "cache devices: what they serve", needs: MOUNTS, run: caches::serve },
    Scenario { name: "cache devices: failing, away, offline", needs: MOUNTS, run: caches::fail },
    Scenario { name: "cache devices: what outlives exports, moves and kills", needs: MOUNTS, run: caches::persist },
    Scenario { name: "life: add, remove", needs: MOUNTS, run: lifecycle::add_and_remove },
    Scenario { name: "life: vdevs that are removed", needs: MOUNTS, run: removal::life },
    Scenario { name: "life: RAID-Z vdevs that get devices", needs: MOUNTS, run: expansion::life },
    Scenario { name: "life: log devices that fail or are away", needs: MOUNTS, run: lifecycle::logs },
    Scenario { name: "life: pools on their way out", needs: MOUNTS, run: lifecycle::departures },
    Scenario { name: "life: spares", needs: MOUNTS, run: lifecycle::spares },
    Scenario { name: "life: failing devices, suspended pools", needs: MOUNTS, run: lifecycle::failing },
    Scenario { name: "life: memory, in a control group and given back", needs: MOUNTS, run: memory::life },
    Scenario { name: "life: devices grow and come back", needs: MOUNTS, run: lifecycle::grow },
    Scenario { name: "devices: initialize, trim", needs: MOUNTS, run: sweeps::free_space },
    Scenario { name: "devices: what others have on them", needs: NOTHING, run: devices::foreign },
    Scenario { name: "devices: all objections at once", needs: NOTHING, run: devices::objections },
    Scenario { name: "devices: objections beside what holds data", needs: NOTHING, run: devices::objections_beside },
    Scenario { name: "devices: copies of a pool that is open", needs: NOTHING, run: devices::twins },
    Scenario { name: "devices: pools that are not there", needs: NOTHING, run: devices::absent },
    Scenario { name: "devices: guids and leaving", needs: NOTHING, run: devices::identity },
    Scenario { name: "devices: verbs, cache files, room", needs: NOTHING, run: devices::verbs },
    Scenario { name: "pool: what has no effect says so", needs: NOTHING, run: devices::without_effect },
    Scenario { name: "devices: in a file system of the same daemon", needs: MOUNTS, run: devices::on_itself },
    Scenario { name: "devices: several that lead to the same bytes", needs: LOOPS, run: ways::to_the_same },
    Scenario { name: "devices: what another daemon has", needs: NOTHING, run: ways::held },
    Scenario { name: "devices: beside a mount that does not answer", needs: MOUNTS, run: ways::beside_silence },
    Scenario { name: "recovery: labels of other things", needs: NOTHING, run: recovery::wrong_devices },
    Scenario { name: "faults: zinject", needs: MOUNTS, run: faults::inject },
    Scenario { name: "faults: imports that take their time", needs: MOUNTS, run: faults::slow_imports },
    Scenario { name: "faults: what no key authenticates", needs: MOUNTS, run: faults::decryption },
    Scenario { name: "faults: metadata that cannot be read", needs: MOUNTS, run: faults::unreadable },
    Scenario { name: "faults: scheduler and its parameters", needs: MOUNTS, run: faults::scheduler },
    Scenario { name: "faults: programs run on events", needs: NOTHING, run: faults::hooks },
    Scenario { name: "campaign: a sample", needs: MOUNTS, run: campaign::sample },
    Scenario { name: "kills: a sample", needs: ROOT, run: kills::sample },
    Scenario { name: "providers: listed, chosen, used, let go", needs: MOUNTS, run: providers::life },
    Scenario { name: "providers: one in C, built, tried, broken", needs: NOTHING, run: providers::in_c },
    Scenario { name: "providers: a liar in C", needs: MOUNTS, run: providers::liar },
    Scenario { name: "providers: slower than the processors", needs: MOUNTS, run: providers::slow },
    Scenario { name: "providers: a rehearsal", needs: MOUNTS, run: providers::rehearsal },
    Scenario { name: "providers: a GPU, missing and emulated", needs: MOUNTS, run: providers::cuda },
    Scenario { name: "providers: a target, killed and there again", needs: MOUNTS, run: providers::target },
    Scenario { name: "providers: a target that may not write", needs: MOUNTS, run: providers::unallowed },
    Scenario { name: "providers: a target that hangs at the start", needs: MOUNTS, run: providers::hanging },
    Scenario { name: "providers: libraries that crash and hang", needs: MOUNTS, run: vendors::harmful },
    Scenario { name: "providers: a driver that hangs", needs: MOUNTS, run: vendors::silent_driver },
    Scenario { name: "daemon: takes nothing over", needs: NOTHING, run: daemon::takes_nothing_over },
    Scenario { name: "daemon: who starts it does not wait for it", needs: MOUNTS, run: callers::wait_for_nobody },
    Scenario { name: "daemon: its log", needs: NOTHING, run: daemon::log },
    Scenario { name: "daemon: believes nobody else", needs: NOTHING, run: daemon::believes_nobody_else },
    Scenario { name: "daemon: a state directory that goes", needs: NOTHING, run: daemon::keeps_its_place },
    Scenario { name: "daemon: a state directory without room", needs: MOUNTS, run: daemon::without_room },
    Scenario { name: "daemon: a list of pools that cannot be written", needs: MOUNTS, run: daemon::unwritten_list },
    Scenario { name: "daemon: ports that others have", needs: NOTHING, run: daemon::taken_ports },
    Scenario { name: "daemon: dead mounts", needs: MOUNTS, run: daemon::dead_mounts },
    Scenario { name: "daemon: out of descriptors", needs: NOTHING, run: daemon::out_of_descriptors },
    Scenario { name: "daemon: few descriptors", needs: NOTHING, run: daemon::few_descriptors },
    Scenario { name: "daemon: few threads", needs: NOTHING, run: daemon::few_threads },
    Scenario { name: "daemon: asked at once after a death", needs: MOUNTS, run: durable::asked_at_once },
    Scenario { name: "output: JSON", needs: NOTHING, run: output::json },
    Scenario { name: "output: scripted, columns, usage", needs: NOTHING, run: output::scripted },
    Scenario { name: "output: history, wait, iostat, version", needs: NOTHING, run: output::others },
    Scenario { name: "words: properties, paths, what is lacking", needs: MOUNTS, run: words::properties },
    Scenario { name: "users: quotas and who uses how much", needs: MOUNTS, run: owners::quotas },
    Scenario { name: "users: accounts after an upgrade", needs: MOUNTS, run: owners::upgraded },
    Scenario { name: "users: projects of files", needs: MOUNTS, run: owners::projects },
    Scenario { name: "users: projects of trees of all kinds", needs: ROOT, run: owners::mixed_projects },
    Scenario { name: "users: readers that go away, zones", needs: NOTHING, run: users::output },
    Scenario { name: "users: crowds of connections", needs: ROOT, run: users::crowds },
    Scenario { name: "users: strangers look and change nothing", needs: ROOT, run: users::strangers },
    Scenario { name: "delegation: each verb needs its permissions", needs: ROOT, run: delegation::each_verb },
    Scenario { name: "delegation: no farther than it says", needs: ROOT, run: delegation::no_farther },
    Scenario { name: "delegation: sets, creators, handing on", needs: ROOT, run: delegation::handing_on },
    Scenario { name: "delegation: receiving", needs: ROOT, run: delegation::receiving },
    Scenario { name: "delegation: packages", needs: ROOT, run: delegation::packages },
];

/// Time after which a scenario is ended, with its daemons: many times what the longest one takes.
const LIMIT: Duration = Duration::from_secs(30 * 60);

/// Number of scenarios that run at once unless the command line says otherwise: most wait most of the time.
const JOBS: usize = 2;

/// Wishes of the command line.
struct Asked {
    names: Vec<String>,
    /// Name of the only scenario, this very one.
    one: Option<String>,
    jobs: usize,
    options: Options,
}

/// Parses the command line: names, how many run at once, and the options of scenarios that can be made longer.
fn arguments() -> Option<Asked> {
    let mut asked = Asked { names: Vec::new(), one: None, jobs: JOBS, options: Options::default() };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            ONE => asked.one = Some(words.next()?),
            "-j" => asked.jobs = words.next()?.parse().ok().filter(|jobs| *jobs > 0)?,
            "--seed" => asked.options.seed = Some(words.next()?.parse().ok()?),
            "--steps" => asked.options.steps = Some(words.next()?.parse().ok()?),
            _ => asked.names.push(word),
        }
    }
    Some(asked)
}

/// Outcome of a scenario.
#[derive(Clone, Copy)]
enum Outcome {
    Passed,
    Failed,
    Skipped,
}

/// Option before the name of a scenario that this process is for, and its exit status for one that was skipped (that of automake's tests).
const ONE: &str = "--one";
const SKIPPED: u8 = 77;

/// True when processes can have mounts of their own here.
fn can_hide_mounts() -> bool {
    Command::new(HIDDEN[0]).args(&HIDDEN[1..]).arg("true").output().is_ok_and(|output| output.status.success())
}

/// Words before a command that run it with mounts that nobody else sees.
const HIDDEN: [&str; 4] = ["unshare", "-m", "--propagation", "private"];

/// Runs a scenario in a process of its own, and prints what it says in one piece: others run beside it. (A program that another thread starts holds
/// the files of this process for a moment, and a file system with open files is busy; so is one whose mount somebody took along into another mount
/// namespace, as some scenarios do, so that each has its own where `is_hidden`.)
fn apart(scenario: &Scenario, options: Options, is_hidden: bool) -> Outcome {
    let number = |name: &'static str, value: Option<u64>| value.map(|value| [name.to_string(), value.to_string()]).into_iter().flatten();
    let own = std::env::current_exe().and_then(|own| {
        let mut command = Command::new(if is_hidden { HIDDEN[0].into() } else { own.clone() });
        if is_hidden {
            command.args(&HIDDEN[1..]).arg(own);
        }
        command.args([ONE, scenario.name]).args(number("--seed", options.seed)).args(number("--steps", options.steps));
        // Who asks for more steps knows best how long they take.
        guard::output(&mut command, &world::base(), if options.steps.is_some() { Duration::MAX } else { LIMIT })
    });
    match own {
        Ok(output) => {
            print!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
            match output.status.code() {
                Some(0) => Outcome::Passed,
                Some(code) if code == i32::from(SKIPPED) => Outcome::Skipped,
                _ => {
                    println!("FAIL  {} ({})", scenario.name, output.status);
                    Outcome::Failed
                }
            }
        }
        Err(error) => {
            println!("FAIL  {}\n      it cannot be started: {error}", scenario.name);
            Outcome::Failed
        }
    }
}

/// Runs a scenario here and says how it went.
fn judge(scenario: &Scenario, options: Options) -> Outcome {
    match lacks_any(scenario.needs, scenario.name) {
        Ok(false) => {}
        Ok(true) => return Outcome::Skipped,
        Err(missing) => {
            println!("FAIL  {}\n      {missing}", scenario.name);
            return Outcome::Failed;
        }
    }
    let start = Instant::now();
    match World::new(options).and_then(|world| (scenario.run)(&world)) {
        Ok(()) => {
            println!("ok    {} ({:.1} s)", scenario.name, start.elapsed().as_secs_f64());
            Outcome::Passed
        }
        Err(failure) => {
            println!("FAIL  {}\n{failure}", scenario.name);
            Outcome::Failed
        }
    }
}

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let long: Option<fn(_) -> bool> = match words.next().as_deref() {
        Some("campaign") => Some(campaign::main),
        Some("kills") => Some(kills::main),
        Some("takeover") => Some(takeover::main),
        Some("targets") => Some(targets::main),
        Some("bounds") => Some(bounds::main),
        Some("cli-table") => Some(table::main),
        _ => None,
    };
    if let Some(long) = long {
        return if long(words) { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let Some(asked) = arguments() else {
        eprintln!("usage: zirconia-commands [-j JOBS] [--seed N] [--steps N] [NAME…]");
        return ExitCode::from(2);
    };
    if let Some(name) = &asked.one {
        let Some(scenario) = SCENARIOS.iter().find(|scenario| scenario.name == name) else { return ExitCode::from(2) };
        return match judge(scenario, asked.options) {
            Outcome::Passed => ExitCode::SUCCESS,
            Outcome::Failed => ExitCode::FAILURE,
            Outcome::Skipped => ExitCode::from(SKIPPED),
        };
    }
    let is_wanted = |one: &&Scenario| asked.names.is_empty() || asked.names.iter().any(|word| one.name.contains(word.as_str()));
    let wanted: Vec<&Scenario> = SCENARIOS.iter().filter(is_wanted).collect();
    let is_hidden = can_hide_mounts();
    let (next, counts) = (AtomicUsize::new(0), [const { AtomicUsize::new(0) }; 3]);
    std::thread::scope(|scope| {
        for _ in 0..asked.jobs {
            scope.spawn(|| {
                while let Some(scenario) = wanted.get(next.fetch_add(1, Ordering::Relaxed)) {
                    counts[apart(scenario, asked.options, is_hidden) as usize].fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    let [passed, failed, skipped] = counts.map(AtomicUsize::into_inner);
    println!("{passed} passed, {failed} failed, {skipped} skipped");
    if failed == 0 && passed + skipped > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
