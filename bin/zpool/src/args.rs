//! The command line: verbs and options as `zpool(8)` of OpenZFS 2.3 has them.

use clap::{Args, Parser, Subcommand};

/// Storage pools on OpenZFS's on-disk format, without a kernel module.
#[derive(Debug, Parser)]
#[command(name = "zpool", version, disable_help_subcommand = true)]
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
        /// Pools.
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
        assignment: String,
        /// Pool.
        pool: String,
    },
    /// Verify every block, and repair what redundancy allows.
    Scrub {
        /// Pause.
        #[arg(short)]
        pause: bool,
        /// Stop.
        #[arg(short)]
        stop: bool,
        /// Wait until the scrub ends.
        #[arg(short)]
        wait: bool,
        /// Pools.
        #[arg(required = true)]
        pools: Vec<String>,
    },
    /// Clear error counts; resume a suspended pool.
    Clear {
        /// Accepted for compatibility: `clear` never asks.
        #[arg(short = 'F', hide = true)]
        rewind: bool,
        /// Pool.
        pool: String,
        /// One device.
        device: Option<String>,
    },
    /// Wait until everything written so far is on stable storage.
    Sync {
        /// Pools; none means all.
        pools: Vec<String>,
    },
    /// Show the commands that changed pools.
    History(History),
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
        device: String,
    },
    /// Show versions.
    Version {
        /// JSON.
        #[arg(short)]
        json: bool,
    },
}

/// `zpool create`.
#[derive(Debug, Args)]
pub struct Create {
    /// Use devices even if they seem in use or replication differs.
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
    #[arg(short = 'O', value_name = "property=value")]
    pub fs_properties: Vec<String>,
    /// Mountpoint of the root dataset.
    #[arg(short)]
    pub mountpoint: Option<String>,
    /// Alternate root.
    #[arg(short = 'R')]
    pub altroot: Option<String>,
    /// Name.
    pub pool: String,
    /// Vdevs: devices, or mirror|raidz1|raidz2|raidz3 followed by devices.
    #[arg(required = true)]
    pub vdevs: Vec<String>,
}

/// `zpool import`.
#[derive(Debug, Args)]
pub struct Import {
    /// Import all pools.
    #[arg(short)]
    pub all: bool,
    /// Search this directory or device.
    #[arg(short = 'd', value_name = "dir|device")]
    pub search: Vec<String>,
    /// Destroyed pools.
    #[arg(short = 'D')]
    pub destroyed: bool,
    /// Import even if the pool seems to be in use by another system.
    #[arg(short)]
    pub force: bool,
    /// Go back to an older transaction group if the newest is damaged.
    #[arg(short = 'F')]
    pub rewind: bool,
    /// With -F: only say whether it would work.
    #[arg(short = 'n')]
    pub dry_run: bool,
    /// Mount nothing.
    #[arg(short = 'N')]
    pub no_mount: bool,
    /// Alternate root.
    #[arg(short = 'R')]
    pub altroot: Option<String>,
    /// Temporary property=value, for instance readonly=on.
    #[arg(short = 'o', value_name = "property=value")]
    pub properties: Vec<String>,
    /// Name or guid.
    pub pool: Option<String>,
    /// New name.
    pub new_name: Option<String>,
}

/// Output options that several verbs share.
#[derive(Clone, Debug, Args)]
pub struct Output {
    /// No headings, tabs between fields.
    #[arg(short = 'H')]
    pub scripted: bool,
    /// Exact numbers.
    #[arg(short = 'p')]
    pub parsable: bool,
    /// JSON.
    #[arg(short, long)]
    pub json: bool,
    /// JSON with integers instead of strings.
    #[arg(long = "json-int", requires = "json")]
    pub json_int: bool,
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
    /// Properties.
    #[arg(short = 'o', value_delimiter = ',')]
    pub properties: Vec<String>,
    /// Pools, then interval and count.
    pub pools: Vec<String>,
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
    /// Name damaged files.
    #[arg(short)]
    pub verbose: bool,
    /// Only pools with problems.
    #[arg(short = 'x')]
    pub only_unhealthy: bool,
    /// Slow I/Os.
    #[arg(short)]
    pub slow: bool,
    /// JSON.
    #[arg(short, long)]
    pub json: bool,
    /// JSON with integers instead of strings.
    #[arg(long = "json-int", requires = "json")]
    pub json_int: bool,
    /// Pools.
    pub pools: Vec<String>,
}

/// `zpool get`.
#[derive(Debug, Args)]
pub struct Get {
    /// How to print.
    #[command(flatten)]
    pub output: Output,
    /// Fields: name,property,value,source.
    #[arg(short = 'o', value_delimiter = ',')]
    pub fields: Vec<String>,
    /// `all`, or properties separated by commas.
    pub properties: String,
    /// Pools.
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
    pub pools: Vec<String>,
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
    /// Skip the statistics since import.
    #[arg(short = 'y')]
    pub skip_first: bool,
    /// Headings once.
    #[arg(short = 'n')]
    pub headings_once: bool,
    /// Pools, then interval and count.
    pub words: Vec<String>,
}

/// `zpool wait`.
#[derive(Debug, Args)]
pub struct Wait {
    /// Activities separated by commas.
    #[arg(short = 't', value_delimiter = ',')]
    pub activities: Vec<String>,
    /// Accepted for compatibility: scripted output.
    #[arg(short = 'H', hide = true)]
    pub scripted: bool,
    /// Pool.
    pub pool: String,
    /// Report every so many seconds.
    pub interval: Option<f64>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }
}
