//! Properties of a file system: those that are fixed when it is made, and those that may change while it is mounted.

use crate::direct::Property;
use zap::NormFlags;

/// Value of the `casesensitivity` property.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CaseSensitivity {
    /// Names differ by case.
    #[default]
    Sensitive,
    /// Names don't differ by case.
    Insensitive,
    /// Lookups match case here; other protocols may ask otherwise.
    Mixed,
}

/// Properties fixed when a file system is made, kept in its master node.
#[derive(Clone, Copy, Debug, Default)]
pub struct CreateOptions {
    /// Property `version`: 1 to [`crate::VERSION`]; None for that.
    pub version: Option<u64>,
    /// Property `casesensitivity`.
    pub case: CaseSensitivity,
    /// Property `normalization`.
    pub normalization: NormFlags,
    /// Property `utf8only`.
    pub utf8_only: bool,
    /// User id of the root directory's owner.
    pub uid: u32,
    /// Group id of the root directory.
    pub gid: u32,
    /// True when the pool counts projects: nodes get a project number.
    pub project_quota: bool,
}

/// Value of the property `snapdir`: how `.zfs` is found in the root.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Snapdir {
    /// Found by name only.
    #[default]
    Hidden,
    /// Listed, too.
    Visible,
    /// Not found at all.
    Disabled,
}

/// Properties that may change while mounted.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Property `xattr` is `sa`.
    pub xattr_sa: bool,
    /// Property `atime`.
    pub atime: bool,
    /// Property `relatime`.
    pub relatime: bool,
    /// True when the pool counts projects: new nodes get a project number.
    pub project_quota: bool,
    /// Property `snapdir`.
    pub snapdir: Snapdir,
    /// Property `acltype` is `posix`: access control lists are shown, set and inherited, and follow the mode.
    pub posix_acl: bool,
    /// Property `longname`: files can get names of more than [`crate::NAME_BYTES_MAX`] bytes.
    pub longname: bool,
    /// True when extended attributes of users are served; the property `xattr` and the option of a mount switch them off.
    pub user_xattrs: bool,
    /// Property `readonly`, set while the file system is mounted for writing.
    pub read_only: bool,
    /// Property `direct`.
    pub direct: Property,
    /// True for a snapshot: never direct, whatever it inherits.
    pub snapshot: bool,
}

impl Settings {
    /// True where each look at a file or a directory leaves its time: no look may be answered from what the kernel kept.
    pub(crate) fn leaves_each_time(&self) -> bool {
        self.atime && !self.relatime && !self.read_only && !self.snapshot
    }
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            xattr_sa: true,
            atime: true,
            relatime: true,
            project_quota: false,
            snapdir: Snapdir::Hidden,
            posix_acl: false,
            longname: false,
            user_xattrs: true,
            read_only: false,
            direct: Property::Standard,
            snapshot: false,
        }
    }
}
