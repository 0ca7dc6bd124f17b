//! The command line: verbs and options as `zpool(8)` of OpenZFS 2.3 has them.

use clap::{Args, Parser, Subcommand};
use cli::options::{Json, Output};

/// Storage pools on OpenZFS's on-disk format, without a kernel module.
#[derive(Debug, Parser)]
#[command(name = "zpool", version, disable_help_subcommand = true, disable_help_flag = true, args_override_self = true)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Create a pool from devices or files.
    Create(Create),
    /// Destroy a pool.
    Destroy {
        /// Unmount by force.
        #[arg(short)]
        force: bool,
        /// Pool.
        pool: String,
    },
    /// Export pools so that other systems can import them.
    Export {
        /// All pools.
        #[arg(short)]
        all: bool,
        /// Unmount by force.
        #[arg(short)]
        force: bool,
        /// As -f, and the devices and the cache file go on saying that the pool is in use: it can be imported with the cache file.
        #[arg(short = 'F')]
        hard_force: bool,
        /// Pools.
        #[arg(value_name = "pool")]
        pools: Vec<String>,
    },
    /// Import pools, or list those that could be.
    Import(Import),
    /// List pools with their space and health.
    List(List),
    /// Show health, scan progress and errors.
    Status(Status),
    /// Show properties.
    Get(Get),
    /// Set a property: property=value.
    Set {
        /// property=value.
        #[arg(value_name = "property=value", long_help = "property=value argument")]
        assignment: String,
        /// Pool.
        #[arg(long_help = "pool name")]
        pool: String,
        /// One of its vdevs, whose property it is.
        #[arg(value_name = "vdev")]
        vdev: Option<String>,
    },
    /// Give a pool another guid.
    Reguid {
        /// The guid, as a decimal number; without it, a random one.
        #[arg(short = 'g', value_name = "guid", allow_hyphen_values = true)]
        guid: Option<String>,
        /// Pool.
        #[arg(long_help = "pool name")]
        pool: String,
    },
    /// Keep the state of a pool as it is now, so that an import can go back to it: a pool has one checkpoint at most.
    Checkpoint {
        /// Discard the checkpoint that there is: its space becomes free little by little.
        #[arg(short, long)]
        discard: bool,
        /// With -d: wait until all of it is free.
        #[arg(short, long)]
        wait: bool,
        /// Pool.
        #[arg(long_help = "pool argument")]
        pool: String,
    },
    /// Make another pool of one device of each mirror of a pool.
    Split(crate::divided::Split),
    /// Show which pools lack features that new ones have, or enable these.
    Upgrade(crate::upgrade::Upgrade),
    /// Verify every block, and repair what redundancy allows.
    Scrub(Scrub),
    /// Begin the resilver that runs again, with everything that devices lack.
    Resilver {
        /// Pools.
        #[arg(required = true, value_name = "pool", long_help = "pool name argument")]
        pools: Vec<String>,
    },
    /// Add vdevs, logs, spares or caches to a pool.
    Add(Add),
    /// Remove vdevs, spares, caches and logs from a pool; what is on vdevs is copied to others first.
    Remove(Remove),
    /// Write a pattern to the free space of devices.
    Initialize(Initialize),
    /// Tell devices which of their space is free.
    Trim(Trim),
    /// Take devices out of use.
    Offline(Offline),
    /// Bring devices back; what they missed is resilvered.
    Online(Online),
    /// Make a mirror of a device and a new one, or expand a RAID-Z vdev by one.
    Attach(Attach),
    /// Replace a device by another one.
    Replace(Replace),
    /// Detach a device from a mirror, or end a replacement.
    Detach {
        /// Pool.
        #[arg(long_help = "pool name argument")]
        pool: String,
        /// Device.
        #[arg(long_help = "<device> specification")]
        device: String,
    },
    /// Open the devices of pools again: what was gone may be back, and may have grown.
    Reopen {
        /// A resilver that runs is not begun again.
        #[arg(short = 'n')]
        keep_resilver: bool,
        /// Pools; none means all.
        #[arg(value_name = "pool")]
        pools: Vec<String>,
    },
    /// Clear error counts; resume a suspended pool; open one that waits for its devices, without log devices that are missing.
    Clear {
        /// If the pool is not open and cannot be opened as it is, go back by at most two transaction groups, as zpool import -F does.
        #[arg(short = 'F')]
        rewind: bool,
        /// With -F: clear nothing; say which state would be taken, and what would be lost with it.
        #[arg(short = 'n')]
        dry_run: bool,
        /// Switch on the slots that the devices are in first, where the machine lets that be done.
        #[arg(long = "power")]
        power: bool,
        /// Pool.
        #[arg(long_help = "pool name")]
        pool: String,
        /// One device.
        device: Option<String>,
    },
    /// Read the tables of deduplication into memory.
    Prefetch {
        /// Type: ddt.
        #[arg(short = 't', value_name = "type")]
        kind: Option<String>,
        /// Pool.
        #[arg(long_help = "pool name argument")]
        pool: String,
    },
    /// Wait until everything written so far is on stable storage.
    Sync {
        /// Write a transaction group and new labels also when there is nothing to write.
        #[arg(short)]
        force: bool,
        /// Pools; none means all.
        #[arg(value_name = "pool")]
        pools: Vec<String>,
    },
    /// Write what a pool was given, and nothing more until it is imported anew, but its intent logs: for tests of their replay.
    Freeze {
        /// Pool.
        pool: String,
    },
    /// Show the commands that changed pools.
    History(History),
    /// Show events.
    Events(Events),
    /// Show I/O statistics.
    Iostat(Iostat),
    /// Wait for background activity.
    Wait(Wait),
    /// Remove ZFS labels from a device.
    Labelclear {
        /// Also when the device belongs to an exported or foreign pool.
        #[arg(short)]
        force: bool,
        /// Device.
        #[arg(value_name = "vdev", long_help = "vdev name")]
        device: String,
    },
    /// Show versions.
    Version {
        /// JSON.
        #[arg(short = 'j', long = "json")]
        json: bool,
    },
}

/// `zpool create`.
#[derive(Debug, Args)]
pub struct Create {
    /// Use devices even if they seem in use or replication differs: those of other pools that are not open here, and those that hold
    /// file systems, swap, labels of volume managers or partitions, which are lost then.
    #[arg(short)]
    pub force: bool,
    /// Only show the layout.
    #[arg(short = 'n')]
    pub dry_run: bool,
    /// Enable no features.
    #[arg(short = 'd')]
    pub no_features: bool,
    /// Pool property=value.
    #[arg(short = 'o', value_name = "property=value")]
    pub properties: Vec<String>,
    /// Root dataset property=value.
    #[arg(short = 'O', value_name = "file-system-property=value")]
    pub fs_properties: Vec<String>,
    /// Mountpoint of the root dataset. Its directory stays when the pool goes.
    #[arg(short)]
    pub mountpoint: Option<String>,
    /// Alternate root.
    #[arg(short = 'R', value_name = "root")]
    pub altroot: Option<String>,
    /// A name for now: the pool's devices get the other one, and its next import has it. Implies cachefile=none.
    #[arg(short = 't', value_name = "tname")]
    pub temporary_name: Option<String>,
    /// Name.
    #[arg(long_help = "pool name argument")]
    pub pool: String,
    /// Vdevs: devices, or mirror|raidz1|raidz2|raidz3|draid[P][:Dd][:Cc][:Ss] followed by devices.
    #[arg(required = true, value_name = "vdev", long_help = "vdev specification")]
    pub vdevs: Vec<String>,
}

/// `zpool add`.
#[derive(Debug, Args)]
pub struct Add {
    /// Use devices even if they seem in use, or replication or sector sizes differ.
    #[arg(short)]
    pub force: bool,
    /// Use devices even if they seem in use.
    #[arg(long = "allow-in-use")]
    pub allow_in_use: bool,
    /// Add vdevs with another redundancy than those of the pool.
    #[arg(long = "allow-replication-mismatch")]
    pub allow_replication_mismatch: bool,
    /// Add vdevs with other sector sizes than those of the pool.
    #[arg(long = "allow-ashift-mismatch")]
    pub allow_ashift_mismatch: bool,
    /// Guids instead of names.
    #[arg(short = 'g')]
    pub guids: bool,
    /// Paths with symbolic links resolved.
    #[arg(short = 'L')]
    pub follow_links: bool,
    /// Only show the layout.
    #[arg(short = 'n')]
    pub dry_run: bool,
    /// Full paths.
    #[arg(short = 'P')]
    pub full_paths: bool,
    /// ashift=value.
    #[arg(short = 'o', value_name = "property=value")]
    pub properties: Vec<String>,
    /// Pool.
    #[arg(long_help = "pool name argument")]
    pub pool: String,
    /// Vdevs as for create; `special`, `dedup`, `log`, `spare` and `cache` begin those.
    #[arg(required = true, value_name = "vdev", long_help = "vdev specification")]
    pub vdevs: Vec<String>,
}

/// `zpool remove`.
#[derive(Debug, Args)]
pub struct Remove {
    /// Only show how much memory the removal would cost.
    #[arg(short = 'n')]
    pub dry_run: bool,
    /// Exact numbers with -n.
    #[arg(short)]
    pub parsable: bool,
    /// Stop the removal that runs.
    #[arg(short)]
    pub stop: bool,
    /// Wait until it is done.
    #[arg(short)]
    pub wait: bool,
    /// Pool.
    #[arg(long_help = "pool name argument")]
    pub pool: String,
    /// Devices.
    #[arg(value_name = "device", long_help = "device name")]
    pub devices: Vec<String>,
}

/// `zpool initialize`.
#[derive(Debug, Args)]
pub struct Initialize {
    /// End it.
    #[arg(short, long)]
    pub cancel: bool,
    /// Stop it; begun again, it goes on.
    #[arg(short, long)]
    pub suspend: bool,
    /// Forget that devices were initialized, so that it can be done anew.
    #[arg(short, long)]
    pub uninit: bool,
    /// Wait until it is done.
    #[arg(short, long)]
    pub wait: bool,
    /// Pool.
    #[arg(long_help = "pool name argument")]
    pub pool: String,
    /// Devices; none means all.
    #[arg(value_name = "device")]
    pub devices: Vec<String>,
}

/// `zpool trim`.
#[derive(Debug, Args)]
pub struct Trim {
    /// End it.
    #[arg(short, long)]
    pub cancel: bool,
    /// What is trimmed must not be readable any more.
    #[arg(short = 'd', long)]
    pub secure: bool,
    /// Bytes per second of each device at most.
    #[arg(short, long)]
    pub rate: Option<String>,
    /// Stop it; begun again, it goes on.
    #[arg(short, long)]
    pub suspend: bool,
    /// Wait until it is done.
    #[arg(short, long)]
    pub wait: bool,
    /// Pool.
    #[arg(long_help = "pool name argument")]
    pub pool: String,
    /// Devices; none means all.
    #[arg(value_name = "device")]
    pub devices: Vec<String>,
}

/// `zpool offline`.
#[derive(Debug, Args)]
pub struct Offline {
    /// Declare them faulted instead.
    #[arg(short = 'f')]
    pub fault: bool,
    /// Until the next import only.
    #[arg(short = 't')]
    pub temporary: bool,
    /// Switch off the slots that they are in, where the machine lets that be done.
    #[arg(long = "power")]
    pub power: bool,
    /// Pool.
    #[arg(long_help = "pool name")]
    pub pool: String,
    /// Devices.
    #[arg(required = true, value_name = "device", long_help = "device name")]
    pub devices: Vec<String>,
}

/// `zpool online`.
#[derive(Debug, Args)]
pub struct Online {
    /// Use all the room that the devices have now.
    #[arg(short = 'e')]
    pub expand: bool,
    /// Switch on the slots that they are in first.
    #[arg(long = "power")]
    pub power: bool,
    /// Pool.
    #[arg(long_help = "pool name")]
    pub pool: String,
    /// Devices.
    #[arg(required = true, value_name = "device", long_help = "device name")]
    pub devices: Vec<String>,
}

/// How a device is attached.
#[derive(Debug, Args)]
pub struct AttachHow {
    /// Use the new device even if it belongs to another pool.
    #[arg(short)]
    pub force: bool,
    /// ashift=value; the vdev keeps the sector size that it has.
    #[arg(short = 'o', value_name = "property=value")]
    pub properties: Vec<String>,
    /// Sequential reconstruction, followed by a scrub: of mirrors and dRAID.
    #[arg(short)]
    pub sequential: bool,
    /// Wait until it is done.
    #[arg(short)]
    pub wait: bool,
}

/// `zpool attach`.
#[derive(Debug, Args)]
pub struct Attach {
    /// How.
    #[command(flatten)]
    pub how: AttachHow,
    /// Pool.
    #[arg(long_help = "pool name argument")]
    pub pool: String,
    /// Device.
    #[arg(long_help = "<device> specification")]
    pub device: String,
    /// New device.
    #[arg(value_name = "new-device", long_help = "<new_device> specification")]
    pub new_device: String,
}

/// `zpool replace`.
#[derive(Debug, Args)]
pub struct Replace {
    /// How.
    #[command(flatten)]
    pub how: AttachHow,
    /// Pool.
    #[arg(long_help = "pool name argument")]
    pub pool: String,
    /// Device.
    #[arg(long_help = "<device> specification")]
    pub device: String,
    /// New device; without it, what is now at the old one's place.
    #[arg(value_name = "new-device")]
    pub new_device: Option<String>,
}

/// `zpool import`.
#[derive(Debug, Args)]
pub struct Import {
    /// Import all pools; the exit code is 1 when one could not be.
    #[arg(short)]
    pub all: bool,
    /// Search this directory or device.
    #[arg(short = 'd', value_name = "dir|device")]
    pub search: Vec<String>,
    /// Only the pools that this cache file names, where it says that their devices are.
    #[arg(short = 'c', value_name = "cachefile")]
    pub cache_file: Option<String>,
    /// Look at the devices themselves, as is always done here.
    #[arg(short = 's')]
    pub scan: bool,
    /// Destroyed pools.
    #[arg(short = 'D')]
    pub destroyed: bool,
    /// Import even if the pool seems to be in use by another system.
    #[arg(short)]
    pub force: bool,
    /// If the pool cannot be opened as it is, go back by at most two transaction groups, to a state that can be opened and whose space is right.
    #[arg(short = 'F')]
    pub rewind: bool,
    /// With -F or -T: import nothing; say which state would be taken, and of each that there is what would be lost with it.
    #[arg(short = 'n')]
    pub dry_run: bool,
    /// With -F: go back to any state that the devices still have.
    #[arg(short = 'X')]
    pub extreme: bool,
    /// Go back to the newest state of this transaction group or one before it, whatever newer ones there are.
    #[arg(short = 'T', value_name = "txg")]
    pub txg: Option<String>,
    /// Import the pool in the state that its checkpoint keeps; all that came after it is lost, unless readonly=on only looks at it.
    #[arg(long = "rewind-to-checkpoint")]
    pub checkpoint: bool,
    /// Import even if log devices are missing.
    #[arg(short = 'm')]
    pub missing_log: bool,
    /// Mount nothing.
    #[arg(short = 'N')]
    pub no_mount: bool,
    /// Load the keys of what is encrypted before it is mounted.
    #[arg(short = 'l')]
    pub load_keys: bool,
    /// Alternate root.
    #[arg(short = 'R', value_name = "root")]
    pub altroot: Option<String>,
    /// Pool property=value: readonly, altroot and cachefile for now, others as zpool set sets them.
    #[arg(short = 'o', value_name = "property=value")]
    pub properties: Vec<String>,
    /// The new name is for this import only: the pool's devices keep the old one. Implies cachefile=none.
    #[arg(short = 't')]
    pub temporary: bool,
    /// Name or guid.
    #[arg(value_name = "pool | id")]
    pub pool: Option<String>,
    /// New name.
    #[arg(value_name = "newpool")]
    pub new_name: Option<String>,
}

/// `zpool list`.
#[derive(Debug, Args)]
pub struct List {
    /// How to print.
    #[command(flatten)]
    pub output: Output,
    /// Show vdevs.
    #[arg(short)]
    pub verbose: bool,
    /// Full paths.
    #[arg(short = 'P')]
    pub full_paths: bool,
    /// Guids instead of names.
    #[arg(short = 'g')]
    pub guids: bool,
    /// Paths with symbolic links resolved.
    #[arg(short = 'L')]
    pub follow_links: bool,
    /// JSON: pools by their guids.
    #[arg(long = "json-pool-key-guid")]
    pub key_guid: bool,
    /// A time stamp first: seconds (u) or a date (d).
    #[arg(short = 'T', value_name = "u|d")]
    pub timestamp: Option<String>,
    /// Properties.
    #[arg(short = 'o', value_delimiter = ',', value_name = "property")]
    pub properties: Vec<String>,
    /// Pools, then interval and count.
    #[arg(value_name = "pool")]
    pub words: Vec<String>,
}

/// `zpool status`.
#[derive(Debug, Args)]
pub struct Status {
    /// Exact numbers.
    #[arg(short = 'p')]
    pub parsable: bool,
    /// Full paths.
    #[arg(short = 'P')]
    pub full_paths: bool,
    /// Guids instead of names.
    #[arg(short = 'g')]
    pub guids: bool,
    /// Paths with symbolic links resolved.
    #[arg(short = 'L')]
    pub follow_links: bool,
    /// Name damaged files.
    #[arg(short)]
    pub verbose: bool,
    /// Only pools with problems.
    #[arg(short = 'x')]
    pub only_unhealthy: bool,
    /// Only vdevs with problems.
    #[arg(short = 'e')]
    pub only_unhealthy_vdevs: bool,
    /// Columns that scripts add to every device; without names, the scripts that there are.
    #[arg(short = 'c', value_name = "script1,script2,...", num_args = 0..=1, default_missing_value = "")]
    pub scripts: Option<String>,
    /// Slow I/Os.
    #[arg(short)]
    pub slow: bool,
    /// Power of the slots that devices are in.
    #[arg(long = "power")]
    pub power: bool,
    /// Direct I/Os whose buffers were changed meanwhile.
    #[arg(short = 'd')]
    pub direct: bool,
    /// Tables of deduplication, with a histogram of references; given twice, also what of them is in memory.
    #[arg(short = 'D', action = clap::ArgAction::Count)]
    pub dedup: u8,
    /// Initializing.
    #[arg(short)]
    pub initialize: bool,
    /// Trimming.
    #[arg(short = 't')]
    pub trim: bool,
    /// How JSON is printed.
    #[command(flatten)]
    pub json: Json,
    /// JSON: every vdev directly under its pool.
    #[arg(long = "json-flat-vdevs")]
    pub flat_vdevs: bool,
    /// JSON: pools by their guids.
    #[arg(long = "json-pool-key-guid")]
    pub key_guid: bool,
    /// A time stamp first: seconds (u) or a date (d).
    #[arg(short = 'T', value_name = "u|d")]
    pub timestamp: Option<String>,
    /// Pools, then interval and count.
    #[arg(value_name = "pool")]
    pub words: Vec<String>,
}

/// `zpool get`.
#[derive(Debug, Args)]
pub struct Get {
    /// How to print.
    #[command(flatten)]
    pub output: Output,
    /// JSON: pools by their guids.
    #[arg(long = "json-pool-key-guid")]
    pub key_guid: bool,
    /// Fields: name, property, value, source, or all.
    #[arg(short = 'o', value_delimiter = ',', value_name = "field")]
    pub fields: Vec<String>,
    /// `all`, or properties separated by commas.
    #[arg(value_name = "all | property[,...]", long_help = "property argument")]
    pub properties: String,
    /// Pools; or one pool, and its vdevs or `all-vdevs`.
    #[arg(value_name = "pool")]
    pub pools: Vec<String>,
}

/// `zpool history`.
#[derive(Debug, Args)]
pub struct History {
    /// Internal events too.
    #[arg(short)]
    pub internal: bool,
    /// User, host.
    #[arg(short)]
    pub long: bool,
    /// Pools.
    #[arg(value_name = "pool")]
    pub pools: Vec<String>,
}

/// `zpool events`.
#[derive(Debug, Args)]
pub struct Events {
    /// Every field.
    #[arg(short)]
    pub verbose: bool,
    /// No headings, a tab between fields.
    #[arg(short = 'H')]
    pub scripted: bool,
    /// Go on with new events.
    #[arg(short)]
    pub follow: bool,
    /// Forget all events.
    #[arg(short)]
    pub clear: bool,
    /// Only events of this pool.
    pub pool: Option<String>,
}

/// `zpool iostat`.
#[derive(Debug, Args)]
pub struct Iostat {
    /// No headings, tabs between fields.
    #[arg(short = 'H')]
    pub scripted: bool,
    /// Exact numbers.
    #[arg(short = 'p')]
    pub parsable: bool,
    /// Per vdev.
    #[arg(short)]
    pub verbose: bool,
    /// Average latency.
    #[arg(short)]
    pub latency: bool,
    /// Depths of queues.
    #[arg(short)]
    pub queues: bool,
    /// Histograms of latency.
    #[arg(short = 'w')]
    pub latency_histogram: bool,
    /// Histograms of request sizes.
    #[arg(short = 'r')]
    pub size_histogram: bool,
    /// Columns that scripts add to every device; without names, the scripts that there are.
    #[arg(short = 'c', value_name = "script1,script2,...", num_args = 0..=1, default_missing_value = "")]
    pub scripts: Option<String>,
    /// How much I/O was direct, and why the rest was not.
    #[arg(long = "direct")]
    pub direct: bool,
    /// Skip the statistics since import.
    #[arg(short = 'y')]
    pub skip_first: bool,
    /// Headings once.
    #[arg(short = 'n')]
    pub headings_once: bool,
    /// Guids instead of vdev names.
    #[arg(short = 'g')]
    pub guids: bool,
    /// Real paths instead of symbolic links.
    #[arg(short = 'L')]
    pub follow_links: bool,
    /// Full paths.
    #[arg(short = 'P')]
    pub full_paths: bool,
    /// Time stamps: d (date) or u (seconds since the epoch).
    #[arg(short = 'T', value_name = "d|u")]
    pub timestamp: Option<String>,
    /// How JSON is printed.
    #[command(flatten)]
    pub json: Json,
    /// Pools or vdevs, then interval and count.
    #[arg(value_name = "pool|vdev")]
    pub words: Vec<String>,
}

/// `zpool wait`.
#[derive(Debug, Args)]
pub struct Wait {
    /// No headings, tabs between fields.
    #[arg(short = 'H')]
    pub scripted: bool,
    /// Exact numbers.
    #[arg(short = 'p')]
    pub parsable: bool,
    /// Time stamps: d (date) or u (seconds since the epoch).
    #[arg(short = 'T', value_name = "d|u")]
    pub timestamp: Option<String>,
    /// Activities separated by commas.
    #[arg(short = 't', value_delimiter = ',', value_name = "activity")]
    pub activities: Vec<String>,
    /// Pool, then an interval in seconds: what is left is printed that often.
    #[arg(required = true, value_name = "pool", long_help = "'pool' argument")]
    pub words: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    /// A machine would boot without its pools.
    #[test]
    fn the_units_of_systemd_are_understood() {
        for line in cli::units::command_lines("zpool") {
            assert!(Arguments::try_parse_from(&line).is_ok(), "{line:?}");
        }
    }

    /// Users would look for an option that is not described, or try one that is not there.
    #[test]
    fn the_manual_page_has_every_verb_and_option() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../man/man8/zpool.8");
        assert_eq!(cli::manual::check(&Arguments::command(), page.as_ref()), Ok(()));
    }
}

/// `zpool scrub`.
#[derive(Args, Clone, Debug)]
pub struct Scrub {
    /// Read again only what the error log has.
    #[arg(short)]
    pub errors: bool,
    /// Pause.
    #[arg(short)]
    pub pause: bool,
    /// Stop.
    #[arg(short)]
    pub stop: bool,
    /// Only what was written since the last complete scrub.
    #[arg(short = 'C')]
    pub since_last: bool,
    /// Wait until the scrub ends.
    #[arg(short)]
    pub wait: bool,
    /// Pools.
    #[arg(required = true, value_name = "pool", long_help = "pool name argument")]
    pub pools: Vec<String>,
}
