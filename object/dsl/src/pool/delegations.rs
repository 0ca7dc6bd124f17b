//! Permissions that were delegated to users (OpenZFS: `dsl_deleg.c`): shown, given, taken away, and looked for.
//!
//! A directory's table leads from whom to a table whose names are the permissions. Whom is a letter for the kind (`u`ser, `g`roup, `e`veryone,
//! `c`reator, `s`et; large where the permissions are sets), one for the place (`l`ocal, `d`escendants, `-`), a `$` and the number or name.

use super::tree::Tree;
use crate::DslError;
use crate::dir::Dir;
use crate::meta::Meta;
use crate::prop::table::{self, Attr};
use dmu::Tx;
use ondisk::ObjectType;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Permissions besides those that are names of properties (OpenZFS: `zfs_deleg_perm_tab`).
const VERBS: [&str; 34] = [
    "allow",
    "bookmark",
    "change-key",
    "clone",
    "create",
    "destroy",
    "diff",
    "groupobjquota",
    "groupobjused",
    "groupquota",
    "groupused",
    "hold",
    "load-key",
    "mount",
    "projectobjquota",
    "projectobjused",
    "projectquota",
    "projectused",
    "promote",
    "receive",
    "receive:append",
    "release",
    "rename",
    "rollback",
    "send",
    "send:encrypted",
    "send:raw",
    "share",
    "snapshot",
    "userobjquota",
    "userobjused",
    "userprop",
    "userquota",
    "userused",
];
/// Most bytes of the name of a set, with its `@` and a final zero byte (OpenZFS: `ZFS_PERMSET_MAXLEN`).
const SET_BYTES_MAX: usize = 64;
/// Entry of the pool directory that names the pool's properties (OpenZFS: `DMU_POOL_PROPS`), and that of them which switches delegation off.
const POOL_PROPERTIES: &str = "pool_props";
const PROPERTY: &str = "delegation";
/// Keys of what the creator of a dataset gets: permissions, sets.
const CREATORS: [&str; 2] = ["c-$", "C-$"];

/// Permissions that somebody has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delegation {
    /// Somebody, as it is stored: `ul$1000`, `s-$@set`.
    pub who: String,
    /// Permissions, or sets of permissions (`@set`), sorted.
    pub permissions: Vec<String>,
}

/// User whose permissions are looked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subject {
    /// Number of the user.
    pub uid: u32,
    /// Numbers of the user's groups.
    pub groups: Vec<u32>,
}

/// Place at which a permission is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// A file system or volume itself.
    Here,
    /// Snapshots of one, and datasets in it.
    Below,
    /// A dataset that is about to be made in one, as its creator.
    New,
}

/// True for what can be delegated: a verb, a property that can be set (OpenZFS: `zfs_deleg_canonicalize_perm`).
pub fn is_permission(name: &str) -> bool {
    // Labels of security are nobody's to delegate (OpenZFS: `zfs_prop_delegatable`).
    let is_settable = |desc: &table::PropDesc| desc.attr != Attr::ReadOnly && desc.name != "mlslabel";
    VERBS.contains(&name) || table::native(name).is_some_and(is_settable)
}

/// True for the name of a set of permissions (OpenZFS: `permset_namecheck`).
pub fn is_permission_set(name: &str) -> bool {
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || "-_.: ".contains(letter);
    let is_name = |name: &str| !name.is_empty() && name.chars().all(is_letter);
    name.len() < SET_BYTES_MAX && name.strip_prefix('@').is_some_and(is_name)
}

/// True for what can be stored: somebody, and permissions, or sets where the kind is of sets; without one everything that somebody has is meant
/// (OpenZFS: `zfs_deleg_verify_nvlist`, which does not look at the kind).
pub fn is_delegation(delegation: &Delegation) -> bool {
    let Some((kind, name)) = delegation.who.split_once('$') else { return false };
    let is_known = match kind {
        "ul" | "ud" | "gl" | "gd" | "Ul" | "Ud" | "Gl" | "Gd" => name.parse::<u32>().is_ok_and(|id| id.to_string() == name),
        "el" | "ed" | "El" | "Ed" | "c-" | "C-" => name.is_empty(),
        "s-" | "S-" => is_permission_set(name),
        _ => false,
    };
    let is_of_sets = kind.starts_with(|letter: char| letter.is_ascii_uppercase());
    let fits = |permission: &String| if is_of_sets { is_permission_set(permission) } else { is_permission(permission) };
    is_known && delegation.permissions.iter().all(fits)
}

/// Permissions that were delegated at a dataset and above it, by the full names of the datasets that have some; its own come first.
pub(super) fn above(tree: &Tree, name: &str) -> Result<Vec<(String, Vec<Delegation>)>, DslError> {
    let mut found = Vec::new();
    let mut next = Some(tree.find_dir(name)?);
    while let Some(dir) = next {
        let delegations = of_table(tree, dir.phys().dd_deleg_zapobj)?;
        if !delegations.is_empty() {
            found.push((dir.full_name(), delegations));
        }
        next = dir.parent();
    }
    Ok(found)
}

fn of_table(tree: &Tree, table: u64) -> Result<Vec<Delegation>, DslError> {
    let mut sets = Vec::new();
    if table != 0 {
        tree.meta.zap(table)?.for_each(|entry| {
            sets.push((String::from_utf8_lossy(&entry.name).into_owned(), entry.first_integer));
            Ok(())
        })?;
    }
    let mut found = Vec::new();
    for (who, set) in sets {
        found.push(Delegation { who, permissions: names_of(tree, set)? });
    }
    found.sort_by(|a, b| a.who.cmp(&b.who));
    Ok(found)
}

/// Names in a table, sorted.
fn names_of(tree: &Tree, table: u64) -> Result<Vec<String>, DslError> {
    let mut names = Vec::new();
    tree.meta.zap(table)?.for_each(|entry| {
        names.push(String::from_utf8_lossy(&entry.name).into_owned());
        Ok(())
    })?;
    names.sort();
    Ok(names)
}

// ---- giving and taking away ----

/// Stores permissions at a directory (OpenZFS: `dsl_deleg_set_sync`).
pub(super) fn give(tree: &Tree, dir: &Arc<Dir>, given: &[Delegation], tx: &Tx) -> Result<(), DslError> {
    store(tree, dir, given, tx)?;
    for Delegation { who, permissions } in given {
        for permission in permissions {
            tree.log("permission update", dir.phys().dd_head_dataset_obj, format!("{who} {permission}"), tx)?;
        }
    }
    Ok(())
}

/// Stores permissions at a directory, without a word in the history.
pub(super) fn store(tree: &Tree, dir: &Arc<Dir>, given: &[Delegation], tx: &Tx) -> Result<(), DslError> {
    let table = match dir.phys().dd_deleg_zapobj {
        0 => {
            let table = tree.meta.create_zap(ObjectType::DSL_PERMS, tx)?;
            dir.update(tx, |phys| phys.dd_deleg_zapobj = table)?;
            table
        }
        table => table,
    };
    let table = tree.meta.zap(table)?;
    for Delegation { who, permissions } in given {
        let set = match table.try_lookup_u64(who)? {
            Some(set) => set,
            None => {
                let set = tree.meta.create_zap(ObjectType::DSL_PERMS, tx)?;
                table.add_u64(who, set, tx)?;
                set
            }
        };
        let set = tree.meta.zap(set)?;
        permissions.iter().try_for_each(|permission| set.update_u64(permission, 0, tx))?;
    }
    Ok(())
}

/// Takes permissions away from a directory; all of somebody's where none is named (OpenZFS: `dsl_deleg_unset_sync`).
pub(super) fn take(tree: &Tree, dir: &Arc<Dir>, taken: &[Delegation], tx: &Tx) -> Result<(), DslError> {
    let phys = dir.phys();
    if phys.dd_deleg_zapobj == 0 {
        return Ok(());
    }
    let log = |name: &'static str, text: String| tree.log(name, phys.dd_head_dataset_obj, text, tx);
    let table = tree.meta.zap(phys.dd_deleg_zapobj)?;
    for Delegation { who, permissions } in taken {
        let set = table.try_lookup_u64(who)?;
        if permissions.is_empty() {
            if let Some(set) = set {
                table.remove(who, tx)?;
                tree.meta.free_object(set, tx)?;
            }
            log("permission who remove", who.clone())?;
            continue;
        }
        let Some(object) = set else { continue };
        let set = tree.meta.zap(object)?;
        for permission in permissions {
            super::settings::remove_if_there(&set, permission, tx)?;
            log("permission remove", format!("{who} {permission}"))?;
        }
        if set.count() == 0 {
            drop(set);
            table.remove(who, tx)?;
            tree.meta.free_object(object, tx)?;
        }
    }
    Ok(())
}

/// Permissions that a user who makes a dataset gets on it, as those above it say (OpenZFS: `dsl_deleg_set_create_perms`).
pub(super) fn for_creator(tree: &Tree, dir: &Dir, uid: u32) -> Result<Vec<Delegation>, DslError> {
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut next = dir.parent();
    while let Some(above) = next {
        for (whom, own) in CREATORS.into_iter().zip(["ul$", "Ul$"]) {
            if let Some(set) = set_of(tree, above.phys().dd_deleg_zapobj, whom)? {
                found.entry(format!("{own}{uid}")).or_default().extend(names_of(tree, set)?);
            }
        }
        next = above.parent();
    }
    Ok(found.into_iter().map(|(who, permissions)| Delegation { who, permissions: permissions.into_iter().collect() }).collect())
}

// ---- looking ----

/// True unless the pool's properties switch it off.
pub(super) fn is_on(meta: &Meta) -> Result<bool, DslError> {
    let property = match meta.directory()?.try_lookup_u64(POOL_PROPERTIES)? {
        Some(table) => meta.zap(table)?.try_lookup_u64(PROPERTY)?,
        None => None,
    };
    Ok(property != Some(0))
}

/// Table of what somebody has, in a directory's table; none where there is no table.
fn set_of(tree: &Tree, table: u64, who: &str) -> Result<Option<u64>, DslError> {
    if table == 0 { Ok(None) } else { Ok(tree.meta.zap(table)?.try_lookup_u64(who)?) }
}

/// Look for one permission of one user.
struct Look<'a> {
    tree: &'a Tree,
    permission: &'a str,
    subject: &'a Subject,
    /// Sets that the user has, each with true once its nearest definition was looked at.
    sets: BTreeMap<String, bool>,
}

/// True when a user was delegated a permission at this place of a directory, or above (OpenZFS: `dsl_deleg_access_impl`).
///
/// # Errors
/// Those of reading the MOS: who is asked for a permission says no then.
pub(super) fn is_delegated(tree: &Tree, (dir, place): (&Arc<Dir>, Place), permission: &str, subject: &Subject) -> Result<bool, DslError> {
    let mut look = Look { tree, permission, subject, sets: BTreeMap::new() };
    if place == Place::New && look.as_creator(dir)? {
        return Ok(true);
    }
    let mut letter = if place == Place::Here { 'l' } else { 'd' };
    let mut next = Some(dir.clone());
    while let Some(dir) = next {
        let table = dir.phys().dd_deleg_zapobj;
        if table != 0 && look.at(table, letter)? {
            return Ok(true);
        }
        letter = 'd';
        next = dir.parent();
    }
    Ok(false)
}

impl Look<'_> {
    /// Looks at what whoever makes a dataset in a directory gets.
    fn as_creator(&mut self, dir: &Arc<Dir>) -> Result<bool, DslError> {
        let mut next = Some(dir.clone());
        while let Some(dir) = next {
            let table = dir.phys().dd_deleg_zapobj;
            if self.has(table, CREATORS[0])? == Some(true) {
                return Ok(true);
            }
            self.add_sets(table, CREATORS[1])?;
            next = dir.parent();
        }
        Ok(false)
    }

    /// Looks at one directory's table, as what holds there (`l`) or below it (`d`).
    fn at(&mut self, table: u64, letter: char) -> Result<bool, DslError> {
        let mut whom = vec![format!("u{letter}${}", self.subject.uid), format!("e{letter}$")];
        whom.extend(self.subject.groups.iter().map(|group| format!("g{letter}${group}")));
        for who in &whom {
            // The kinds of sets have the same letters, large.
            let sets = format!("{}{}", who[..1].to_ascii_uppercase(), &who[1..]);
            self.add_sets(table, &sets)?;
        }
        if self.in_sets(table)? {
            return Ok(true);
        }
        for who in &whom {
            if self.has(table, who)? == Some(true) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Looks into the sets that are defined here, and into those that these consist of.
    fn in_sets(&mut self, table: u64) -> Result<bool, DslError> {
        loop {
            let waiting: Vec<String> = self.sets.iter().filter(|(_, is_done)| !**is_done).map(|(name, _)| name.clone()).collect();
            let mut is_expanded = false;
            for name in waiting {
                let direct = self.has(table, &format!("s-${name}"))?;
                if direct == Some(true) {
                    return Ok(true);
                }
                let has_sets = self.add_sets(table, &format!("S-${name}"))?;
                // The nearest definition counts.
                self.sets.insert(name, direct.is_some() || has_sets);
                is_expanded |= has_sets;
            }
            if !is_expanded {
                return Ok(false);
            }
        }
    }

    /// True where somebody has the permission, false where others only, None where nothing.
    fn has(&self, table: u64, who: &str) -> Result<Option<bool>, DslError> {
        match set_of(self.tree, table, who)? {
            Some(set) => Ok(Some(self.tree.meta.zap(set)?.contains(self.permission)?)),
            None => Ok(None),
        }
    }

    /// Adds the sets that somebody has; false where there are none.
    fn add_sets(&mut self, table: u64, who: &str) -> Result<bool, DslError> {
        let Some(set) = set_of(self.tree, table, who)? else { return Ok(false) };
        for name in names_of(self.tree, set)? {
            self.sets.entry(name).or_insert(false);
        }
        Ok(true)
    }
}
