//! How vdevs are called: by the last part of a path, the whole path or the guid, as options and the environment ask, and the tree of
//! names. It knows no verb, and nothing of what stands beside a name.

use cli::color::is_set;
use control_api::VdevReport;

/// Rules of how vdevs are named.
#[derive(Clone, Copy, Debug, Default)]
pub struct Names {
    /// True for whole paths of disks too: `-P`.
    pub full_paths: bool,
    /// True for guids: `-g`.
    pub guids: bool,
    /// True for the paths where symbolic links lead: `-L`.
    pub follow_links: bool,
}

impl Names {
    /// Makes the rules that are asked for, here or for all commands by the environment (OpenZFS: `zpool_vdev_name`).
    pub fn new(full_paths: bool, guids: bool, follow_links: bool) -> Names {
        Names {
            full_paths: full_paths || is_set("ZPOOL_VDEV_NAME_PATH"),
            guids: guids || is_set("ZPOOL_VDEV_NAME_GUID"),
            follow_links: follow_links || is_set("ZPOOL_VDEV_NAME_FOLLOW_LINKS"),
        }
    }

    /// Name in the tree: the last part of a disk's path, a file's whole path, or the group's name.
    pub fn of(self, vdev: &VdevReport) -> String {
        // A line end in a path would be a line of the tree.
        control_api::shown(&self.raw(vdev)).into_owned()
    }

    fn raw(self, vdev: &VdevReport) -> String {
        match &vdev.path {
            _ if self.guids && vdev.kind != "root" => vdev.guid.to_string(),
            Some(_) if former_path(vdev).is_some() => vdev.guid.to_string(),
            Some(path) => {
                let real = std::fs::canonicalize(path).ok().filter(|_| self.follow_links);
                let path = real.map_or_else(|| path.clone(), |real| real.to_string_lossy().into_owned());
                let is_short = vdev.kind == "disk" && !self.full_paths;
                if is_short { path.rsplit('/').next().unwrap_or(&path).to_string() } else { path }
            }
            None => vdev.name.clone(),
        }
    }
}

/// Path at which a device was that an import did not find: whatever is there now is not it (OpenZFS: `ZPOOL_CONFIG_NOT_PRESENT`).
pub fn former_path(vdev: &VdevReport) -> Option<&str> {
    vdev.note.as_deref()?.strip_prefix("was ")
}

/// Names of the tree, indented, depth first, with their vdevs.
pub fn tree(vdev: &VdevReport, names: Names) -> Vec<(String, &VdevReport)> {
    fn walk<'a>(vdev: &'a VdevReport, depth: usize, names: Names, rows: &mut Vec<(String, &'a VdevReport)>) {
        rows.push((format!("{}{}", "  ".repeat(depth), names.of(vdev)), vdev));
        for child in &vdev.children {
            walk(child, depth + 1, names, rows);
        }
    }
    let mut rows = Vec::new();
    walk(vdev, 0, names, &mut rows);
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, a device that is missing has the name of whatever is at its path by now, or is said to have been where it is shown.
    #[test]
    fn what_an_import_did_not_find_goes_by_its_guid() {
        let leaf = |note: &str| VdevReport {
            kind: "disk".into(),
            guid: 7,
            path: Some("/dev/sdb".into()),
            note: Some(note.into()),
            ..VdevReport::default()
        };
        assert_eq!(Names::default().of(&leaf("was /dev/sdb")), "7");
        assert_eq!(Names::default().of(&leaf("cannot open")), "sdb", "it was there when the pool was opened");
        assert_eq!((former_path(&leaf("was /dev/sdb")), former_path(&leaf("cannot open"))), (Some("/dev/sdb"), None));
    }
}
