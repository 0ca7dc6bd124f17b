//! Words of `zpool split`, whose devices and dry run [`crate::split`] knows.

use clap::Args;

/// `zpool split`.
#[derive(Debug, Args)]
pub struct Split {
    /// With -n: show guids instead of names.
    #[arg(short = 'g')]
    pub guids: bool,
    /// With -n: show the paths where symbolic links lead.
    #[arg(short = 'L')]
    pub follow_links: bool,
    /// With -R: load the keys of what is encrypted, and mount it.
    #[arg(short = 'l')]
    pub load_keys: bool,
    /// Divide nothing; show the new pool as it would be.
    #[arg(short = 'n')]
    pub dry_run: bool,
    /// With -n: show whole paths.
    #[arg(short = 'P')]
    pub full_paths: bool,
    /// Import the new pool with this alternate root; without one it is exported.
    #[arg(short = 'R', value_name = "root")]
    pub altroot: Option<String>,
    /// Property=value of the new pool, or, with -R, options of its mounts.
    #[arg(short = 'o', value_name = "property=value|options")]
    pub properties: Vec<String>,
    /// Pool of mirrors.
    #[arg(long_help = "pool name")]
    pub pool: String,
    /// Name of the new pool.
    #[arg(long_help = "new pool name", value_name = "newpool")]
    pub new_pool: String,
    /// Devices that the new pool gets, at most one of each mirror; of the others it gets the last.
    #[arg(value_name = "device")]
    pub devices: Vec<String>,
}
