//! The command line: verbs and options as `zfs(8)` of OpenZFS 2.3 has them.

use clap::{Args, Parser, Subcommand};

/// File systems and snapshots on OpenZFS's on-disk format, without a kernel module.
#[derive(Debug, Parser)]
#[command(name = "zfs", version, disable_help_subcommand = true)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Create a file system.
    Create(Create),
    /// Destroy a file system or snapshots.
    Destroy(Destroy),
    /// List datasets.
    List(List),
    /// Show properties.
    Get(Get),
    /// Set properties: property=value … dataset ….
    Set {
        /// property=value …, then datasets.
        #[arg(required = true)]
        words: Vec<String>,
    },
    /// Clear a property so that it is inherited.
    Inherit {
        /// Children too.
        #[arg(short)]
        recursive: bool,
        /// Accepted for compatibility: there are no received values.
        #[arg(short = 'S', hide = true)]
        received: bool,
        /// Property.
        property: String,
        /// Datasets.
        #[arg(required = true)]
        names: Vec<String>,
    },
    /// Create snapshots.
    #[command(visible_alias = "snap")]
    Snapshot {
        /// Descendants too, atomically.
        #[arg(short)]
        recursive: bool,
        /// User property=value.
        #[arg(short = 'o', value_name = "property=value")]
        properties: Vec<String>,
        /// file system@name.
        #[arg(required = true)]
        names: Vec<String>,
    },
    /// Rename a dataset.
    Rename {
        /// Create missing parents.
        #[arg(short)]
        parents: bool,
        /// Snapshots of descendants too.
        #[arg(short)]
        recursive: bool,
        /// Unmount by force.
        #[arg(short)]
        force: bool,
        /// Old name.
        from: String,
        /// New name.
        to: String,
    },
    /// Mount file systems, or list what is mounted.
    Mount {
        /// All.
        #[arg(short)]
        all: bool,
        /// Over a directory that is not empty.
        #[arg(short = 'O')]
        overlay: bool,
        /// Accepted for compatibility: progress is always short.
        #[arg(short, hide = true)]
        verbose: bool,
        /// Mount options.
        #[arg(short = 'o', value_delimiter = ',')]
        options: Vec<String>,
        /// File system.
        name: Option<String>,
    },
    /// Unmount file systems.
    #[command(visible_alias = "umount")]
    Unmount {
        /// All.
        #[arg(short)]
        all: bool,
        /// By force.
        #[arg(short)]
        force: bool,
        /// File system or mountpoint.
        target: Option<String>,
    },
    /// Show versions.
    Version {
        /// JSON.
        #[arg(short)]
        json: bool,
    },
}

/// `zfs create`.
#[derive(Debug, Args)]
pub struct Create {
    /// Create missing parents.
    #[arg(short)]
    pub parents: bool,
    /// Do not mount.
    #[arg(short = 'u')]
    pub no_mount: bool,
    /// Only say what would be done.
    #[arg(short = 'n')]
    pub dry_run: bool,
    /// Say what is done.
    #[arg(short)]
    pub verbose: bool,
    /// property=value.
    #[arg(short = 'o', value_name = "property=value")]
    pub properties: Vec<String>,
    /// Size of a volume.
    #[arg(short = 'V')]
    pub volume_size: Option<String>,
    /// Name.
    pub name: String,
}

/// `zfs destroy`.
#[derive(Debug, Args)]
pub struct Destroy {
    /// Children too.
    #[arg(short)]
    pub recursive: bool,
    /// Dependents (clones) too.
    #[arg(short = 'R')]
    pub recursive_clones: bool,
    /// Unmount by force.
    #[arg(short)]
    pub force: bool,
    /// Only say what would be done.
    #[arg(short = 'n')]
    pub dry_run: bool,
    /// For scripts.
    #[arg(short)]
    pub parsable: bool,
    /// Say what is done.
    #[arg(short)]
    pub verbose: bool,
    /// Accepted for compatibility: snapshots without holds go at once.
    #[arg(short = 'd', hide = true)]
    pub defer: bool,
    /// Dataset, or file system@snapshot[,snapshot][%snapshot].
    pub name: String,
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
    /// Children too.
    #[arg(short)]
    pub recursive: bool,
    /// Children down to this depth.
    #[arg(short)]
    pub depth: Option<u32>,
    /// filesystem, snapshot (snap), volume, all.
    #[arg(short = 't', value_delimiter = ',')]
    pub types: Vec<String>,
}

/// `zfs list`.
#[derive(Debug, Args)]
pub struct List {
    /// How to print.
    #[command(flatten)]
    pub output: Output,
    /// Columns.
    #[arg(short = 'o', value_delimiter = ',')]
    pub columns: Vec<String>,
    /// Sort ascending by this property.
    #[arg(short = 's')]
    pub ascending: Vec<String>,
    /// Sort descending by this property.
    #[arg(short = 'S')]
    pub descending: Vec<String>,
    /// Datasets.
    pub names: Vec<String>,
}

/// `zfs get`.
#[derive(Debug, Args)]
pub struct Get {
    /// How to print.
    #[command(flatten)]
    pub output: Output,
    /// Fields: name,property,value,received,source.
    #[arg(short = 'o', value_delimiter = ',')]
    pub fields: Vec<String>,
    /// Only values from these sources.
    #[arg(short = 's', value_delimiter = ',')]
    pub sources: Vec<String>,
    /// `all`, or properties separated by commas.
    pub properties: String,
    /// Datasets.
    pub names: Vec<String>,
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
