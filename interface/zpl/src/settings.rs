//! Properties of a file system: those that are fixed when it is made, and those that may change while it is mounted.

use crate::direct::Property;
use zap::NormFlags;

/// The `casesensitivity` property.
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
    /// `casesensitivity`.
    pub case: CaseSensitivity,
    /// `normalization`.
    pub normalization: NormFlags,
    /// `utf8only`.
    pub utf8_only: bool,
    /// Owner of the root directory.
    pub uid: u32,
    /// Group of the root directory.
    pub gid: u32,
    /// The pool counts projects: nodes get a project number.
    pub project_quota: bool,
}

/// The property `snapdir`: how `.zfs` is found in the root.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Snapdir {
    /// By name only.
    #[default]
    Hidden,
    /// It is listed, too.
    Visible,
    /// Not at all.
    Disabled,
}

/// Properties that may change while mounted.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// `xattr=sa`.
    pub xattr_sa: bool,
    /// `atime`.
    pub atime: bool,
    /// `relatime`.
    pub relatime: bool,
    /// The pool counts projects: new nodes get a project number.
    pub project_quota: bool,
    /// `snapdir`.
    pub snapdir: Snapdir,
    /// `acltype=posix`: stored lists are shown and follow the mode.
    pub posix_acl: bool,
    /// Files can get names of more than [`crate::NAME_BYTES_MAX`] bytes: `longname`.
    pub longname: bool,
    /// Extended attributes of users are served; the property `xattr` and the option of a mount switch them off.
    pub user_xattrs: bool,
    /// `readonly`, set while the file system is mounted for writing.
    pub read_only: bool,
    /// `direct`.
    pub direct: Property,
    /// It is a snapshot: never direct, whatever it inherits.
    pub snapshot: bool,
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
