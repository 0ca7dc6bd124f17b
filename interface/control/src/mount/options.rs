//! What `zfs mount -o` and mount(8) may ask for (OpenZFS: `option_map`): a few options have an effect, the others that mount(8) knows are
//! taken and do nothing, as there.

use zpl::Settings;

/// Options that are known and change nothing here.
const WITHOUT_EFFECT: [&str; 46] = [
    "noauto",
    "defaults",
    "dirsync",
    "group",
    "_netdev",
    "nofail",
    "owner",
    "sync",
    "user",
    "users",
    "acl",
    "noacl",
    "posixacl",
    "casesensitive",
    "caseinsensitive",
    "casemixed",
    "nodiratime",
    "diratime",
    "nostrictatime",
    "lazytime",
    "context",
    "fscontext",
    "defcontext",
    "rootcontext",
    "iversion",
    "mand",
    "nomand",
    "bind",
    "rbind",
    "comment",
    "nosub",
    "quiet",
    "zfsutil",
    "auto",
    "async",
    "silent",
    "loud",
    "symfollow",
    "nolazytime",
    "noiversion",
    "nogroup",
    "noowner",
    "nouser",
    "nousers",
    "sub",
    "nodirsync",
];

/// Beginnings of options that are comments, for programs that read fstab(5).
const COMMENTS: [&str; 2] = ["x-", "X-"];

/// Options that do something: what they mean is in [`Asked::take`].
const WITH_EFFECT: [&str; 20] = [
    "ro",
    "rw",
    "remount",
    "atime",
    "noatime",
    "relatime",
    "norelatime",
    "strictatime",
    "exec",
    "noexec",
    "suid",
    "nosuid",
    "dev",
    "nodev",
    "syncfs",
    "nosyncfs",
    "xattr",
    "noxattr",
    "writeback",
    "nowriteback",
];

/// Wishes of a mount's options; None leaves it to the property.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Asked {
    pub read_only: Option<bool>,
    pub atime: Option<bool>,
    pub relatime: Option<bool>,
    pub exec: Option<bool>,
    pub suid: Option<bool>,
    pub devices: Option<bool>,
    /// Extended attributes of users are served.
    pub xattr: Option<bool>,
    /// Kernel may forward syncfs(2) (docs/semantics.md); counts when the mount is made.
    pub syncfs: Option<bool>,
    /// Kernel may keep what is written for a while (docs/semantics.md); counts when the mount is made.
    pub writeback: bool,
    /// True to change what is mounted.
    pub remount: bool,
}

impl Asked {
    /// Reads options, the last one counts; Err names one that nobody knows.
    pub fn read(options: &[String]) -> Result<Asked, String> {
        let mut asked = Asked::default();
        for word in options.iter().flat_map(|list| list.split(',')).filter(|word| !is_comment(word)) {
            let name = word.split('=').next().unwrap_or_default();
            // As in OpenZFS, the beginning of an option's name will do.
            let exact = WITH_EFFECT.iter().find(|known| **known == name);
            match exact.or_else(|| WITH_EFFECT.iter().find(|known| known.starts_with(name))) {
                Some(known) if !WITHOUT_EFFECT.contains(&name) => asked.take(known),
                _ if WITHOUT_EFFECT.iter().any(|known| known.starts_with(name)) => {}
                _ => return Err(word.to_string()),
            }
        }
        Ok(asked)
    }

    /// Options of a list that somebody knows (mount(8) with `-s`).
    pub fn known(options: &[String]) -> Vec<String> {
        let words = options.iter().flat_map(|list| list.split(',')).map(String::from);
        words.filter(|word| Asked::read(std::slice::from_ref(word)).is_ok()).collect()
    }

    fn take(&mut self, option: &str) {
        match option {
            "ro" => self.read_only = Some(true),
            "rw" => self.read_only = Some(false),
            "remount" => self.remount = true,
            "atime" => self.atime = Some(true),
            "noatime" => self.atime = Some(false),
            "relatime" => self.relatime = Some(true),
            "norelatime" | "strictatime" => self.relatime = Some(false),
            "exec" => self.exec = Some(true),
            "noexec" => self.exec = Some(false),
            "suid" => self.suid = Some(true),
            "nosuid" => self.suid = Some(false),
            "dev" => self.devices = Some(true),
            "nodev" => self.devices = Some(false),
            "xattr" => self.xattr = Some(true),
            "noxattr" => self.xattr = Some(false),
            "syncfs" => self.syncfs = Some(true),
            "nosyncfs" => self.syncfs = Some(false),
            "writeback" => self.writeback = true,
            "nowriteback" => self.writeback = false,
            _ => {}
        }
    }

    /// Applies the options that are for the file system itself.
    pub fn apply(&self, settings: &mut Settings) {
        settings.read_only = self.read_only.unwrap_or(settings.read_only);
        settings.atime = self.atime.unwrap_or(settings.atime);
        settings.user_xattrs = self.xattr.unwrap_or(settings.user_xattrs);
        settings.relatime = self.relatime.unwrap_or(settings.relatime);
    }

    /// Value of a property while such a mount lasts, if it differs from what is stored.
    pub fn temporary(&self, property: &str) -> Option<bool> {
        match property {
            "readonly" => self.read_only,
            "atime" => self.atime,
            "relatime" => self.relatime,
            "exec" => self.exec,
            "setuid" => self.suid,
            "devices" => self.devices,
            // Which way they are kept stays as it is.
            "xattr" => self.xattr.filter(|is_on| !is_on),
            _ => None,
        }
    }
}

/// True for what asks for nothing: a comment, or nothing between two commas.
fn is_comment(word: &str) -> bool {
    word.is_empty() || COMMENTS.iter().any(|beginning| word.starts_with(beginning))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An option that is taken and does nothing lets programs run, and users write, where somebody said no.
    #[test]
    fn options_mean_what_mount_means_by_them() {
        let read = |words: &str| Asked::read(&[words.to_string()]);
        assert_eq!(read("ro,noatime"), Ok(Asked { read_only: Some(true), atime: Some(false), ..Asked::default() }));
        assert_eq!(read("ro,rw"), Ok(Asked { read_only: Some(false), ..Asked::default() }), "the last one counts");
        assert_eq!(
            read("noexec,nosuid,nodev").map(|asked| (asked.exec, asked.suid, asked.devices)),
            Ok((Some(false), Some(false), Some(false)))
        );
        assert_eq!(read("remount,strictatime").map(|asked| (asked.remount, asked.relatime)), Ok((true, Some(false))));
        assert_eq!(read("defaults,context=\"a\",user,noauto"), Ok(Asked::default()));
        for harmless in ["auto", "async", "silent", "loud", "symfollow", "nolazytime", "x-systemd.automount", "X-mount.mkdir=0700", ""] {
            assert_eq!(read(harmless), Ok(Asked::default()), "{harmless}");
        }
        assert_eq!(read("nosymfollow"), Err("nosymfollow".to_string()), "who forbids links must not get them");
        assert_eq!(read("noxattr").map(|asked| (asked.xattr, asked.temporary("xattr"))), Ok((Some(false), Some(false))));
        assert_eq!(read("writeback"), Ok(Asked { writeback: true, ..Asked::default() }));
        assert_eq!(read("writeback,nowriteback"), Ok(Asked::default()), "the last one counts");
        assert_eq!(read("nonsense"), Err("nonsense".to_string()));
        assert_eq!(read("ro,zsh"), Err("zsh".to_string()));
        assert_eq!(Asked::known(&["ro,zsh,atime".to_string()]), ["ro", "atime"], "mount -s");
    }
}
