//! The command line: verbs and options as `zfs(8)` of OpenZFS 2.3 has them.

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, Parser, Subcommand};
use cli::options::Output;

/// File systems and snapshots on OpenZFS's on-disk format, without a kernel module.
#[derive(Debug, Parser)]
#[command(name = "zfs", version, disable_help_subcommand = true, disable_help_flag = true, args_override_self = true)]
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
    /// Destroy a file system, snapshots or a bookmark.
    Destroy(Destroy),
    /// List datasets.
    List(List),
    /// Show properties.
    Get(Get),
    /// Set properties: property=value … dataset ….
    Set {
        /// Mount, unmount and move nothing now.
        #[arg(short = 'u')]
        no_mount: bool,
        /// property=value …, then datasets.
        #[arg(required = true, value_name = "property=value> ... <filesystem|volume|snapshot", long_help = "arguments")]
        words: Vec<String>,
    },
    /// Clear a property so that it is inherited.
    Inherit {
        /// Children too.
        #[arg(short)]
        recursive: bool,
        /// Go back to the received value, if there is one.
        #[arg(short = 'S')]
        received: bool,
        /// Property.
        property: String,
        /// Datasets.
        #[arg(required = true, value_name = "filesystem|volume|snapshot", long_help = "dataset argument")]
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
        #[arg(required = true, value_name = "filesystem|volume>@<snap", long_help = "snapshot argument")]
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
        /// Leave what is mounted where it is.
        #[arg(short = 'u')]
        no_unmount: bool,
        /// Old name.
        #[arg(value_name = "filesystem|volume|snapshot", long_help = "source dataset argument")]
        from: String,
        /// New name.
        #[arg(value_name = "new name", long_help = "target dataset argument")]
        to: String,
    },
    /// Hold snapshots under a tag: none is destroyed before every hold on it is released.
    Hold(Hold),
    /// Show who holds snapshots.
    Holds(Holds),
    /// Release the holds of a tag on snapshots.
    Release(Hold),
    /// Make a bookmark of a snapshot or of another bookmark; one of both may be named without the dataset.
    Bookmark {
        /// Snapshot or bookmark.
        #[arg(value_name = "snapshot|bookmark", long_help = "source argument")]
        source: String,
        /// New bookmark.
        #[arg(value_name = "newbookmark", long_help = "bookmark argument")]
        bookmark: String,
    },
    /// Make a bookmark of a snapshot with a list of the blocks that snapshots of clones of it have all replaced: what is not to be sent.
    Redact {
        /// Snapshot.
        #[arg(value_name = "snapshot", long_help = "snapshot argument")]
        snapshot: String,
        /// New bookmark, the part behind the #.
        #[arg(value_name = "bookmark", long_help = "bookmark argument")]
        bookmark: String,
        /// Snapshots of clones, with their full names.
        #[arg(required = true, value_name = "redaction_snapshot", long_help = "redaction snapshot argument")]
        clones: Vec<String>,
    },
    /// Make a file system or volume that starts as a snapshot and shares its space.
    Clone {
        /// Create missing parents.
        #[arg(short)]
        parents: bool,
        /// property=value.
        #[arg(short = 'o', value_name = "property=value")]
        properties: Vec<String>,
        /// Snapshot.
        #[arg(value_name = "snapshot", long_help = "source dataset argument")]
        origin: String,
        /// Name.
        #[arg(value_name = "filesystem|volume", long_help = "target dataset argument")]
        name: String,
    },
    /// Give a clone the snapshots that it shares with what it was made from, which becomes its clone.
    Promote {
        /// Clone.
        #[arg(value_name = "clone-filesystem", long_help = "clone filesystem argument")]
        name: String,
    },
    /// Go back to a snapshot: what was written since is lost.
    Rollback {
        /// Destroy newer snapshots and bookmarks.
        #[arg(short)]
        recursive: bool,
        /// Destroy newer snapshots and bookmarks, and their clones.
        #[arg(short = 'R')]
        clones: bool,
        /// Unmount by force, also what is rolled back.
        #[arg(short)]
        force: bool,
        /// Snapshot.
        #[arg(value_name = "snapshot", long_help = "dataset argument")]
        name: String,
    },
    /// Write a snapshot, or what changed since an earlier one, to the standard output as a stream.
    Send(crate::send::SendArguments),
    /// Make a snapshot, and what leads to it, out of a stream on standard input; nobody sees anything of it before all of it is there.
    #[command(visible_alias = "recv")]
    Receive(Receive),
    /// Load the key of an encryption root, so that what it encrypts can be read.
    LoadKey(LoadKey),
    /// Forget the key of an encryption root; nothing that it encrypts may be mounted.
    UnloadKey(UnloadKey),
    /// Give an encrypted dataset another key, which what is below it has, too, where it had the old one. Nothing is encrypted anew.
    ChangeKey(ChangeKey),
    /// Mount file systems, or list what is mounted.
    Mount {
        /// All.
        #[arg(short)]
        all: bool,
        /// Over a directory that is not empty.
        #[arg(short = 'O')]
        overlay: bool,
        /// Mount also what lacks what was redacted.
        #[arg(short)]
        force: bool,
        /// Say what is mounted.
        #[arg(short)]
        verbose: bool,
        /// The file system and everything below it.
        #[arg(short = 'R')]
        recursive: bool,
        /// JSON list of what is mounted.
        #[arg(short = 'j', long = "json")]
        json: bool,
        /// Load the keys of what is encrypted first.
        #[arg(short = 'l')]
        load_keys: bool,
        /// Mount options.
        #[arg(short = 'o', value_delimiter = ',', value_name = "option")]
        options: Vec<String>,
        /// File system; several with `-R`.
        #[arg(value_name = "filesystem")]
        names: Vec<String>,
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
        /// Forget the keys of encryption roots that are mounted no longer.
        #[arg(short = 'u')]
        unload_keys: bool,
        /// File system or mountpoint.
        #[arg(value_name = "filesystem|mountpoint")]
        target: Option<String>,
    },
    /// Share file systems over NFS and SMB, as their properties say: the one that is named, which is mounted first, or all that are mounted.
    Share(crate::share::Share),
    /// End the sharing of file systems.
    Unshare(crate::share::Share),
    /// Show what users use of a file system, and their quotas.
    Userspace(Userspace),
    /// Show what groups use of a file system, and their quotas.
    Groupspace(Userspace),
    /// Show what projects use of a file system, and their quotas.
    Projectspace(Projectspace),
    /// Show which file systems have older versions, or upgrade them.
    Upgrade(crate::upgrade::Upgrade),
    /// Show the projects that files and directories are charged to, or change them.
    Project(crate::project::Project),
    /// Delegate permissions to users, or show those that were delegated at a dataset and above it.
    Allow(crate::allow::Allow),
    /// Take back permissions that were delegated at a dataset.
    Unallow(crate::allow::Unallow),
    /// Wait until files that were removed are deleted.
    Wait(crate::wait::Wait),
    /// Show what changed from a snapshot to a newer one, or to the file system as it is now: + added, - removed, M modified, R renamed.
    Diff(Diff),
    /// Show how much I/O was direct, and why the rest was not.
    DirectStats(DirectStats),
    /// Show versions.
    Version {
        /// JSON.
        #[arg(short = 'j', long = "json")]
        json: bool,
    },
}

/// `zfs userspace`, `zfs groupspace`.
#[derive(Debug, Args)]
pub struct Userspace {
    /// Numbers instead of names.
    #[arg(short)]
    pub numeric: bool,
    /// Translate SIDs to POSIX ids; there are none here, so this changes nothing.
    #[arg(short = 'i')]
    pub translate: bool,
    /// Columns and order.
    #[command(flatten)]
    pub select: Owners,
    /// all, posixuser, smbuser, posixgroup, smbgroup.
    #[arg(short = 't', value_delimiter = ',', value_name = "type")]
    pub types: Vec<String>,
    /// File system or snapshot.
    #[arg(value_name = "filesystem|snapshot|path", long_help = "dataset name")]
    pub name: String,
}

/// `zfs projectspace`.
#[derive(Debug, Args)]
pub struct Projectspace {
    /// Columns and order.
    #[command(flatten)]
    pub select: Owners,
    /// File system or snapshot.
    #[arg(value_name = "filesystem|snapshot|path", long_help = "dataset name")]
    pub name: String,
}

impl Projectspace {
    /// Makes it one of the others: projects have no names.
    pub fn with_project(self) -> Userspace {
        Userspace { numeric: true, translate: false, select: self.select, types: Vec::new(), name: self.name }
    }
}

/// Options that `userspace`, `groupspace` and `projectspace` share.
#[derive(Debug, Args)]
pub struct Owners {
    /// No headings, tabs between fields.
    #[arg(short = 'H')]
    pub scripted: bool,
    /// Exact numbers.
    #[arg(short = 'p')]
    pub parsable: bool,
    /// Columns: type, name, used, quota, objused, objquota.
    #[arg(short = 'o', value_delimiter = ',', value_name = "field")]
    pub fields: Vec<String>,
    /// How to sort.
    #[command(flatten)]
    pub sort: Sort,
}

/// `zfs hold`, `zfs release`.
#[derive(Debug, Args)]
pub struct Hold {
    /// Snapshots of this name of descendants too.
    #[arg(short)]
    pub recursive: bool,
    /// Tag.
    #[arg(value_name = "tag", long_help = "tag argument")]
    pub tag: String,
    /// file system@name.
    #[arg(required = true, value_name = "snapshot", long_help = "snapshot argument")]
    pub names: Vec<String>,
}

/// `zfs holds`.
#[derive(Debug, Args)]
pub struct Holds {
    /// Snapshots of this name of descendants too.
    #[arg(short)]
    pub recursive: bool,
    /// No headings, tabs between fields.
    #[arg(short = 'H')]
    pub scripted: bool,
    /// Times in seconds since 1970.
    #[arg(short = 'p')]
    pub parsable: bool,
    /// file system@name.
    #[arg(required = true, value_name = "snapshot", long_help = "snapshot argument")]
    pub names: Vec<String>,
}

/// `zfs diff`.
#[derive(Debug, Args)]
pub struct Diff {
    /// Types of files, as ls(1) -F shows them.
    #[arg(short = 'F')]
    pub types: bool,
    /// Tabs between fields, and no arrow.
    #[arg(short = 'H')]
    pub scripted: bool,
    /// Change times, first.
    #[arg(short = 't')]
    pub times: bool,
    /// Names as they are, without octal codes.
    #[arg(short = 'h')]
    pub raw: bool,
    /// Older snapshot, then newer snapshot or file system; one of both may be `@` and a snapshot's name.
    #[arg(value_name = "snapshot|filesystem")]
    pub names: Vec<String>,
}

/// `zfs load-key`.
#[derive(Debug, Args)]
pub struct LoadKey {
    /// Only look whether the key is the right one.
    #[arg(short = 'n')]
    pub dry_run: bool,
    /// Those of encryption roots below it too.
    #[arg(short)]
    pub recursive: bool,
    /// Those of all encryption roots.
    #[arg(short)]
    pub all: bool,
    /// Take the key from there, and not from where the property keylocation says: prompt, file:// with a path, or an address of https:// or http://.
    #[arg(short = 'L', value_name = "keylocation")]
    pub location: Option<String>,
    /// Encryption root.
    #[arg(value_name = "filesystem|volume")]
    pub name: Option<String>,
}

/// `zfs change-key`.
#[derive(Debug, Args)]
pub struct ChangeKey {
    /// Load the key that it has first, if it is not loaded.
    #[arg(short = 'l')]
    pub load: bool,
    /// Take the key of the encryption root above.
    #[arg(short = 'i', conflicts_with = "properties")]
    pub inherit: bool,
    /// Property of the new key: keyformat, keylocation or pbkdf2iters.
    #[arg(short = 'o', value_name = "property=value")]
    pub properties: Vec<String>,
    /// Dataset.
    #[arg(value_name = "filesystem|volume")]
    pub name: String,
}

/// `zfs unload-key`.
#[derive(Debug, Args)]
pub struct UnloadKey {
    /// Those of encryption roots below it too.
    #[arg(short)]
    pub recursive: bool,
    /// Those of all encryption roots.
    #[arg(short)]
    pub all: bool,
    /// Encryption root.
    #[arg(value_name = "filesystem|volume")]
    pub name: Option<String>,
}

/// `zfs direct-stats`.
#[derive(Debug, Args)]
pub struct DirectStats {
    /// How to print.
    #[command(flatten)]
    pub output: Output,
    /// Files (by path), file systems.
    #[arg(required = true, value_name = "file|filesystem", long_help = "file or filesystem argument")]
    pub targets: Vec<String>,
}

/// `zfs receive`.
#[derive(Debug, Args)]
pub struct Receive {
    /// Say what is received.
    #[arg(short)]
    pub verbose: bool,
    /// Unmount by force.
    #[arg(short = 'M')]
    pub force_unmount: bool,
    /// Only say what would be received.
    #[arg(short = 'n')]
    pub dry_run: bool,
    /// Keep what came when the stream is interrupted, so that it can be resumed.
    #[arg(short = 's')]
    pub resumable: bool,
    /// Go back to the snapshot that the stream goes on from; of a package destroy what the sender has no more.
    #[arg(short = 'F')]
    pub force: bool,
    /// Take no holds from the stream.
    #[arg(short = 'h')]
    pub no_holds: bool,
    /// Do not mount.
    #[arg(short = 'u')]
    pub no_mount: bool,
    /// Heal damaged contents of a snapshot that is there, from a stream of it, and receive nothing.
    #[arg(short = 'c')]
    pub heal: bool,
    /// Receive below the name given, at the sent name without its pool.
    #[arg(short = 'd')]
    pub without_pool: bool,
    /// Receive below the name given, at the last part of the sent name.
    #[arg(short = 'e')]
    pub last: bool,
    /// Give up what an interrupted receive left of this file system or volume, and receive nothing.
    #[arg(short = 'A', value_name = "<filesystem|volume>")]
    pub abort: Option<String>,
    /// Set this property, whatever the stream says; origin=snapshot makes a clone of that out of a full stream.
    #[arg(short = 'o', value_name = "property=value")]
    pub properties: Vec<String>,
    /// Do not take this property from the stream.
    #[arg(short = 'x', value_name = "property")]
    pub excluded: Vec<String>,
    /// File system, volume, or snapshot to make.
    #[arg(value_name = "filesystem|volume|snapshot", long_help = "snapshot argument")]
    pub name: Option<String>,
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
    /// Make a volume of this size.
    #[arg(short = 'V', value_name = "size")]
    pub volume_size: Option<String>,
    /// Keep no space for the volume.
    #[arg(short = 's')]
    pub sparse: bool,
    /// Block size of the volume.
    #[arg(short = 'b', value_name = "blocksize")]
    pub block_size: Option<String>,
    /// Say in a form for scripts what is done.
    #[arg(short = 'P')]
    pub parsable: bool,
    /// Name.
    #[arg(value_name = "filesystem", long_help = "filesystem argument")]
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
    /// Snapshots that are held or have clones go with the last hold or clone; others go at once.
    #[arg(short = 'd')]
    pub defer: bool,
    /// Dataset, file system@snapshot[,snapshot][%snapshot], or file system#bookmark.
    #[arg(value_name = "filesystem|volume|snapshot|bookmark", long_help = "dataset argument")]
    pub name: String,
}

/// Output options that `list` and `get` share.
#[derive(Clone, Debug, Args)]
pub struct Select {
    /// How to print.
    #[command(flatten)]
    pub output: Output,
    /// Children too.
    #[arg(short)]
    pub recursive: bool,
    /// Children down to this depth.
    #[arg(short, value_name = "max", allow_negative_numbers = true)]
    pub depth: Option<String>,
    /// filesystem (fs), snapshot (snap), volume (vol), bookmark, all.
    #[arg(short = 't', value_delimiter = ',', value_name = "type")]
    pub types: Vec<String>,
}

/// `zfs list`.
#[derive(Debug, Args)]
pub struct List {
    /// What and how.
    #[command(flatten)]
    pub select: Select,
    /// Columns.
    #[arg(short = 'o', value_delimiter = ',', value_name = "property")]
    pub columns: Vec<String>,
    /// How to sort.
    #[command(flatten)]
    pub sort: Sort,
    /// Datasets.
    #[arg(value_name = "filesystem|volume|snapshot")]
    pub names: Vec<String>,
}

/// `-s` and `-S`, in the order in which they were given.
#[derive(Clone, Debug, Default)]
pub struct Sort {
    /// Property, and whether it is descending.
    pub keys: Vec<(String, bool)>,
}

impl Args for Sort {
    fn augment_args(command: Command) -> Command {
        let key = |id, letter, help| Arg::new(id).short(letter).action(ArgAction::Append).value_name("property").help(help);
        command.arg(key("ascending", 's', "Sort ascending by this property")).arg(key(
            "descending",
            'S',
            "Sort descending by this property",
        ))
    }
    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Sort {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Sort, clap::Error> {
        let given = |id: &str, descending: bool| -> Vec<(usize, String, bool)> {
            let places = matches.indices_of(id).into_iter().flatten();
            places
                .zip(matches.get_many::<String>(id).into_iter().flatten())
                .map(|(place, name)| (place, name.clone(), descending))
                .collect()
        };
        let mut keys = [given("ascending", false), given("descending", true)].concat();
        keys.sort_by_key(|(place, ..)| *place);
        Ok(Sort { keys: keys.into_iter().map(|(_, name, descending)| (name, descending)).collect() })
    }
    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Sort::from_arg_matches(matches)?;
        Ok(())
    }
}

/// `zfs get`.
#[derive(Debug, Args)]
pub struct Get {
    /// What and how.
    #[command(flatten)]
    pub select: Select,
    /// Fields: name, property, value, received, source, or all.
    #[arg(short = 'o', value_delimiter = ',', value_name = "field")]
    pub fields: Vec<String>,
    /// Only values from these sources: local, default, inherited, received, temporary, none.
    #[arg(short = 's', value_delimiter = ',', value_name = "source")]
    pub sources: Vec<String>,
    /// `all`, or properties separated by commas.
    #[arg(value_name = "all | property[,...]", long_help = "property argument")]
    pub properties: String,
    /// Datasets and bookmarks.
    #[arg(value_name = "filesystem|volume|snapshot|bookmark")]
    pub names: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn keys_of_a_sort_keep_the_order_in_which_they_were_given() {
        let arguments = Arguments::try_parse_from(["zfs", "list", "-S", "used", "-s", "name", "-S", "creation"]).expect("valid");
        let Verb::List(list) = arguments.verb else { panic!("the verb is list") };
        let keys: Vec<(&str, bool)> = list.sort.keys.iter().map(|(name, descending)| (name.as_str(), *descending)).collect();
        assert_eq!(keys, [("used", true), ("name", false), ("creation", true)]);
    }

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    /// A machine would boot without its file systems.
    #[test]
    fn the_units_of_systemd_are_understood() {
        for line in cli::units::command_lines("zfs") {
            assert!(Arguments::try_parse_from(&line).is_ok(), "{line:?}");
        }
    }

    /// Users would look for an option that is not described, or try one that is not there.
    #[test]
    fn the_manual_page_has_every_verb_and_option() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../man/man8/zfs.8");
        assert_eq!(cli::manual::check(&Arguments::command(), page.as_ref()), Ok(()));
    }
}
