//! `zfs …`: datasets, their properties and snapshots.

use crate::failure::{self, because};
use crate::mounts::{Directory, MountPlan, source};
use crate::{Control, OpenPool};
use control_api::{
    DatasetCreate, DatasetDestroy, DatasetInherit, DatasetQuery, DatasetRename, DatasetReport, DatasetSet, ErrorKind, Failure, MountReport,
    MountRequest, Property, Response, SnapshotCreate, UnmountRequest, Value,
};
use dsl::{CreateDataset, DatasetHandle, DslError, PropEntry, PropSource, PropValue};
use fuse::MountOptions;
use ondisk::ObjsetType;
use std::collections::BTreeMap;
use std::sync::Arc;
use zpl::direct::Property as Direct;
use zpl::{CaseSensitivity, CreateOptions, NormFlags, Settings, Snapdir, Zfs};

fn done() -> Response {
    Response::Done { remarks: Vec::new() }
}

/// The part of a name before `@`.
fn filesystem_of(name: &str) -> &str {
    name.split_once('@').map_or(name, |(filesystem, _)| filesystem)
}

impl Control {
    fn pool_of(&self, name: &str, verb: &str) -> Result<Arc<OpenPool>, Failure> {
        let pool = filesystem_of(name).split('/').next().unwrap_or_default();
        self.pools.read().get(pool).cloned().ok_or_else(|| {
            let why = if verb == "create" { format!("no such pool '{pool}'") } else { "dataset does not exist".to_string() };
            because(ErrorKind::NotFound, format!("cannot {verb} '{name}'"), why).advise("is its pool imported? see 'zpool list'")
        })
    }

    pub(crate) fn dataset_create(&self, request: &DatasetCreate) -> Result<Response, Failure> {
        let pool = self.pool_of(&request.name, "create")?;
        let parent = request.name.rsplit_once('/').map_or("", |(parent, _)| parent);
        if request.parents {
            if pool.dsl().hold(&request.name).is_ok() {
                return Ok(done());
            }
            if !parent.is_empty() && pool.dsl().hold(parent).is_err() {
                self.dataset_create(&DatasetCreate { name: parent.to_string(), properties: BTreeMap::new(), ..request.clone() })?;
            }
        }
        if request.dry_run {
            return self.dry_create(&pool, &request.name, parent);
        }
        if let Some(why) = objection(&request.properties, true) {
            return Err(because(ErrorKind::Invalid, format!("cannot create '{}'", request.name), why));
        }
        let options = new_filesystem(&request.properties)
            .map_err(|why| because(ErrorKind::Invalid, format!("cannot create '{}'", request.name), why))?;
        pool.dsl().create_dataset(&request.name, options).map_err(|error| match error {
            DslError::NotFound => because(ErrorKind::NotFound, format!("cannot create '{}'", request.name), "parent does not exist")
                .advise("use '-p' to create missing parents"),
            other => failure::dataset("create", &request.name, &other),
        })?;
        if request.no_mount {
            return Ok(done());
        }
        // The file system is there; that it could not be mounted is a remark, as OpenZFS has it.
        let remarks = match self.mount_one(&pool, &request.name, &MountRequest::default(), false) {
            Ok(()) => Vec::new(),
            Err(error) => vec![format!("filesystem successfully created, but not mounted: {error}")],
        };
        Ok(Response::Done { remarks })
    }

    fn dry_create(&self, pool: &OpenPool, name: &str, parent: &str) -> Result<Response, Failure> {
        if pool.dsl().hold(name).is_ok() {
            return Err(failure::dataset("create", name, &DslError::Exists));
        }
        pool.dsl().hold(parent).map_err(|error| failure::dataset("create", name, &error))?;
        Ok(done())
    }

    pub(crate) fn dataset_query(&self, query: &DatasetQuery) -> Result<Response, Failure> {
        let mut reports = Vec::new();
        let names = if query.names.is_empty() { self.pools.read().keys().cloned().collect() } else { query.names.clone() };
        for name in names {
            // A mountpoint stands for its dataset.
            let name = if name.starts_with('/') { self.by_mountpoint(&name)? } else { name };
            let pool = self.pool_of(&name, "open")?;
            let named_directly = !query.names.is_empty();
            self.collect(&pool, &name, query, 0, named_directly, &mut reports)?;
        }
        Ok(Response::Datasets(reports))
    }

    fn by_mountpoint(&self, path: &str) -> Result<String, Failure> {
        let pools = self.pools.read();
        pools
            .values()
            .find_map(|pool| pool.mounts.find(path))
            .ok_or_else(|| because(ErrorKind::NotFound, format!("cannot open '{path}'"), "no file system of these pools is mounted there"))
    }

    fn collect(
        &self,
        pool: &OpenPool,
        name: &str,
        query: &DatasetQuery,
        depth: u32,
        named: bool,
        out: &mut Vec<DatasetReport>,
    ) -> Result<(), Failure> {
        let handle = pool.dsl().hold(name).map_err(|error| failure::dataset("open", name, &error))?;
        let report = self.report(pool, &handle)?;
        if query.types.contains(&report.kind) || (named && depth == 0 && query.types.len() == 1 && name.contains('@')) {
            out.push(report);
        }
        if handle.is_snapshot() || query.depth.is_some_and(|limit| depth >= limit) {
            return Ok(());
        }
        if query.types.iter().any(|kind| kind == "snapshot") {
            let snapshots = pool.dsl().snapshots(name).map_err(|error| failure::dataset("list snapshots of", name, &error))?;
            for snapshot in snapshots {
                let full = format!("{name}@{}", snapshot.name);
                // A snapshot may be destroyed between the listing and the hold.
                if let Ok(handle) = pool.dsl().hold(&full) {
                    out.push(self.report(pool, &handle)?);
                }
            }
        }
        let mut children = pool.dsl().children(name).map_err(|error| failure::dataset("list children of", name, &error))?;
        children.sort();
        for child in children {
            let full = format!("{name}/{child}");
            if pool.dsl().hold(&full).is_ok() {
                self.collect(pool, &full, query, depth + 1, named, out)?;
            }
        }
        Ok(())
    }

    fn report(&self, pool: &OpenPool, handle: &DatasetHandle) -> Result<DatasetReport, Failure> {
        let name = handle.name();
        let failed = |error: DslError| failure::dataset("read properties of", &name, &error);
        let kind = if handle.is_snapshot() {
            "snapshot"
        } else if handle.objset().map_err(failed)?.kind() == ObjsetType::ZVOL {
            "volume"
        } else {
            "filesystem"
        };
        let mut properties: Vec<Property> = handle.props().map_err(failed)?.into_iter().map(property).collect();
        for property in &mut properties {
            match property.name.as_str() {
                "mountpoint" => property.value = Value::Text(effective_mountpoint(pool, property)),
                "mounted" if kind == "filesystem" => {
                    let is_mounted = pool.mounts.mountpoint(&name).is_some();
                    property.value = Value::Text(if is_mounted { "yes" } else { "no" }.to_string());
                }
                _ => {}
            }
        }
        Ok(DatasetReport { pool: pool.name(), kind: kind.to_string(), create_txg: handle.creation_txg(), properties, name })
    }

    pub(crate) fn dataset_set(&self, request: &DatasetSet) -> Result<Response, Failure> {
        let pool = self.pool_of(&request.name, "set property for")?;
        let handle = pool.dsl().hold(&request.name).map_err(|error| failure::dataset("set property for", &request.name, &error))?;
        let pairs: Vec<(String, String)> = request.properties.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
        handle.set_props(&pairs).map_err(|error| property_failure(&request.name, &request.properties, &error))?;
        drop(handle);
        if request.no_mount {
            return Ok(done());
        }
        self.after_change(&pool, &request.name, request.properties.keys().map(String::as_str))
    }

    pub(crate) fn dataset_inherit(&self, request: &DatasetInherit) -> Result<Response, Failure> {
        let pool = self.pool_of(&request.name, "inherit property for")?;
        let mut names = vec![request.name.clone()];
        if request.recursive {
            names = self.descendants(&pool, &request.name)?;
        }
        for name in &names {
            let handle = pool.dsl().hold(name).map_err(|error| failure::dataset("inherit property for", name, &error))?;
            handle.inherit_prop(&request.property).map_err(|error| failure::dataset("inherit property for", name, &error))?;
        }
        self.after_change(&pool, &request.name, std::iter::once(request.property.as_str()))
    }

    /// Mounted file systems follow their properties: a new mountpoint moves them, the rest is applied in place.
    fn after_change<'a>(&self, pool: &Arc<OpenPool>, name: &str, changed: impl Iterator<Item = &'a str>) -> Result<Response, Failure> {
        let changed: Vec<&str> = changed.collect();
        if changed.iter().any(|name| ["mountpoint", "canmount", "readonly", "exec", "setuid", "devices"].contains(name)) {
            let directory = if changed.contains(&"mountpoint") { Directory::Remove } else { Directory::Keep };
            let moved = match self.unmount_tree(pool, name, false, directory) {
                Ok(moved) => moved,
                // In use: what can be changed in place is; a new place must wait.
                Err(failure) if failure.kind == ErrorKind::Busy && directory == Directory::Keep => {
                    apply_settings(pool);
                    let later: Vec<&str> = changed.iter().copied().filter(|name| *name != "readonly").collect();
                    let remark = format!("{}: takes effect when the file systems that are in use are mounted again", later.join(", "));
                    return Ok(if later.is_empty() { done() } else { Response::Done { remarks: vec![remark] } });
                }
                Err(failure) => return Err(failure),
            };
            for name in moved.iter().rev() {
                self.mount_one(pool, name, &MountRequest::default(), true)?;
            }
            // Setting a place is also how a file system that had none gets mounted.
            if changed.contains(&"mountpoint") && pool.mounts.mountpoint(name).is_none() {
                self.mount_one(pool, name, &MountRequest::default(), true)?;
            }
        }
        apply_settings(pool);
        Ok(done())
    }

    /// The dataset and everything below it, parents first, snapshots left out.
    fn descendants(&self, pool: &OpenPool, name: &str) -> Result<Vec<String>, Failure> {
        let mut names = vec![name.to_string()];
        let mut children = pool.dsl().children(name).map_err(|error| failure::dataset("list children of", name, &error))?;
        children.sort();
        for child in children {
            names.extend(self.descendants(pool, &format!("{name}/{child}"))?);
        }
        Ok(names)
    }

    pub(crate) fn snapshot(&self, request: &SnapshotCreate) -> Result<Response, Failure> {
        let first = request.names.first().cloned().unwrap_or_default();
        let pool = self.pool_of(&first, "create snapshot")?;
        let mut names = Vec::new();
        for name in &request.names {
            let (filesystem, snapshot) = name.split_once('@').ok_or_else(|| {
                because(ErrorKind::Invalid, format!("cannot create snapshot '{name}'"), "a snapshot's name is FILESYSTEM@NAME")
            })?;
            if request.recursive {
                names.extend(self.descendants(&pool, filesystem)?.into_iter().map(|dataset| format!("{dataset}@{snapshot}")));
            } else {
                names.push(name.clone());
            }
        }
        let filesystems: std::collections::BTreeSet<&str> = names.iter().map(|name| filesystem_of(name)).collect();
        if filesystems.len() < names.len() {
            let what = format!("cannot create snapshot '{first}'");
            return Err(because(ErrorKind::Invalid, what, "multiple snapshots of same fs not allowed"));
        }
        let properties = request.properties.clone().into_iter().collect();
        pool.dsl().snapshot(&names, properties).map_err(|error| failure::dataset("create snapshot", &first, &error))?;
        Ok(done())
    }

    pub(crate) fn dataset_destroy(&self, request: &DatasetDestroy) -> Result<Response, Failure> {
        let pool = self.pool_of(&request.name, "destroy")?;
        if request.name.contains('@') {
            return self.destroy_snapshots(&pool, request);
        }
        let failed = |error: DslError| failure::dataset("destroy", &request.name, &error);
        if !request.name.contains('/') {
            return Err(because(ErrorKind::Invalid, format!("cannot destroy '{}'", request.name), "operation does not apply to pools")
                .advise(format!(
                    "use 'zfs destroy -r {0}' for its file systems one by one, or 'zpool destroy {0}' for the pool",
                    request.name
                )));
        }
        let handle = pool.dsl().hold(&request.name).map_err(failed)?;
        let reclaim_bytes = handle.space().used;
        drop(handle);
        let datasets = self.descendants(&pool, &request.name)?;
        let mut names = Vec::new();
        for dataset in datasets.iter().rev() {
            let snapshots = pool.dsl().snapshots(dataset).map_err(failed)?;
            names.extend(snapshots.into_iter().map(|snapshot| format!("{dataset}@{}", snapshot.name)));
            names.push(dataset.clone());
        }
        if !request.recursive && names.len() > 1 {
            // The dataset itself comes last.
            let others = names[..names.len() - 1].join("\n");
            return Err(failed(DslError::HasChildren).advise(format!("use '-r' to destroy the following datasets:\n{others}")));
        }
        if !request.dry_run {
            self.unmount_tree(&pool, &request.name, request.force, Directory::Remove)?;
            for name in &names {
                let gone = if name.contains('@') {
                    pool.dsl().destroy_snapshots(std::slice::from_ref(name), false)
                } else {
                    pool.dsl().destroy_dataset(name)
                };
                gone.map_err(|error| failure::dataset("destroy", name, &error))?;
            }
        }
        Ok(Response::Destroyed { names, reclaim_bytes })
    }

    /// `fs@a`, `fs@a,b`, `fs@a%c`, `fs@%c`, `fs@a%`.
    fn destroy_snapshots(&self, pool: &OpenPool, request: &DatasetDestroy) -> Result<Response, Failure> {
        let (filesystem, list) = request.name.split_once('@').unwrap_or((&request.name, ""));
        let filesystems = if request.recursive { self.descendants(pool, filesystem)? } else { vec![filesystem.to_string()] };
        let mut names = Vec::new();
        for filesystem in filesystems {
            let known = pool.dsl().snapshots(&filesystem).map_err(|error| failure::dataset("destroy", &request.name, &error))?;
            let known: Vec<String> = known.into_iter().map(|snapshot| snapshot.name).collect();
            for word in list.split(',') {
                names.extend(select_range(&known, word).into_iter().map(|name| format!("{filesystem}@{name}")));
            }
        }
        if names.is_empty() {
            return Err(because(
                ErrorKind::NotFound,
                format!("could not find any snapshots to destroy: '{}'", request.name),
                "check snapshot names",
            ));
        }
        let held = names.iter().map(|name| pool.dsl().hold(name)).collect::<Result<Vec<_>, _>>();
        let reclaim_bytes = held.map_or(0, |handles| handles.iter().map(|handle| handle.space().used).sum());
        if !request.dry_run {
            pool.mounts.close_snapshots(&names, "destroy")?;
            pool.dsl().destroy_snapshots(&names, false).map_err(|error| failure::dataset("destroy snapshots", &request.name, &error))?;
        }
        Ok(Response::Destroyed { names, reclaim_bytes })
    }

    pub(crate) fn dataset_rename(&self, request: &DatasetRename) -> Result<Response, Failure> {
        let pool = self.pool_of(&request.from, "rename")?;
        let failed = |error: DslError| failure::dataset("rename", &request.from, &error);
        if let (Some((filesystem, from)), recursive) = (request.from.split_once('@'), request.recursive) {
            let to = request.to.rsplit_once('@').map_or(request.to.as_str(), |(_, to)| to);
            let filesystems = if recursive { self.descendants(&pool, filesystem)? } else { vec![filesystem.to_string()] };
            let names: Vec<String> = filesystems.iter().map(|filesystem| format!("{filesystem}@{from}")).collect();
            pool.mounts.close_snapshots(&names, "rename")?;
            for filesystem in filesystems {
                pool.dsl().rename(&format!("{filesystem}@{from}"), &format!("{filesystem}@{to}")).map_err(failed)?;
            }
            return Ok(done());
        }
        if let (true, Some((parent, _))) = (request.parents, request.to.rsplit_once('/')) {
            self.dataset_create(&DatasetCreate { name: parent.to_string(), parents: true, ..DatasetCreate::default() })?;
        }
        let moved = self.unmount_tree(&pool, &request.from, request.force, Directory::Remove)?;
        let renamed = pool.dsl().rename(&request.from, &request.to);
        for name in moved.iter().rev() {
            let name = if renamed.is_ok() { name.replacen(&request.from, &request.to, 1) } else { name.clone() };
            self.mount_one(&pool, &name, &MountRequest::default(), true)?;
        }
        renamed.map_err(failed)?;
        Ok(done())
    }

    pub(crate) fn mount(&self, request: &MountRequest) -> Result<Response, Failure> {
        if let Some(name) = &request.name {
            let pool = self.pool_of(name, "mount")?;
            self.mount_one(&pool, name, request, false)?;
            return Ok(done());
        }
        let pools: Vec<Arc<OpenPool>> = self.pools.read().values().cloned().collect();
        if request.all {
            let remarks = pools.iter().flat_map(|pool| self.mount_all(pool)).collect();
            return Ok(Response::Done { remarks });
        }
        let mounts = pools.iter().flat_map(|pool| pool.mounts.list());
        Ok(Response::Mounts(mounts.map(|(name, mountpoint)| MountReport { name, mountpoint }).collect()))
    }

    /// Mounts what should be mounted by itself; returns what went wrong, a line each.
    pub(crate) fn mount_all(&self, pool: &Arc<OpenPool>) -> Vec<String> {
        let names = match self.descendants(pool, &pool.name()) {
            Ok(names) => names,
            Err(failure) => return vec![failure.to_string()],
        };
        let missing = names.iter().filter(|name| pool.mounts.mountpoint(name).is_none());
        missing.filter_map(|name| self.mount_one(pool, name, &MountRequest::default(), true).err()).map(|error| error.to_string()).collect()
    }

    /// Mounts one file system. `by_itself`: quietly leave alone what is not meant to be mounted (canmount, none, legacy).
    fn mount_one(&self, pool: &Arc<OpenPool>, name: &str, request: &MountRequest, by_itself: bool) -> Result<(), Failure> {
        let handle = pool.dsl().hold(name).map_err(|error| failure::dataset("mount", name, &error))?;
        let what = format!("cannot mount '{name}'");
        let text = |property: &str| text_of(&handle, property);
        if handle.objset().map_err(|error| failure::dataset("mount", name, &error))?.kind() != ObjsetType::ZFS {
            return if by_itself { Ok(()) } else { Err(because(ErrorKind::Invalid, what, "not a file system")) };
        }
        let entry = handle.prop("mountpoint").map_err(|error| failure::dataset("mount", name, &error))?;
        let made_for_it = matches!(entry.source, PropSource::Default | PropSource::Inherited(_));
        let mountpoint = effective_mountpoint(pool, &property(entry));
        let canmount = text("canmount");
        let refusal = match (canmount.as_str(), mountpoint.as_str()) {
            ("off", _) => Some("'canmount' property is set to 'off'"),
            ("noauto", _) if by_itself => Some("canmount=noauto"),
            (_, "none") => Some("no mountpoint set"),
            (_, "legacy") => Some("legacy mountpoint: set a mountpoint, since there is no mount.zfs here"),
            _ => None,
        };
        if let Some(why) = refusal {
            return if by_itself { Ok(()) } else { Err(because(ErrorKind::Invalid, what, why)) };
        }
        let has = |option: &str| request.options.iter().any(|given| given == option);
        let read_only = pool.is_read_only() || text("readonly") == "on" || has("ro");
        let options = MountOptions {
            source: name.to_string(),
            subtype: "zirconia".to_string(),
            read_only,
            suid: text("setuid") != "off" && !has("nosuid"),
            devices: text("devices") != "off" && !has("nodev"),
            exec: text("exec") != "off" && !has("noexec"),
            atime: text("atime") != "off" && !has("noatime"),
            max_write: request_bytes_max(&handle),
            forwards_sync: has("syncfs") || (self.parameters.get("zirconia_mount_syncfs") == Some(1) && !has("nosyncfs")),
            ..MountOptions::default()
        };
        let must_be_empty = text("overlay") == "off" && !request.overlay;
        let plan = MountPlan {
            mountpoint,
            read_only,
            must_be_empty,
            made_for_it,
            settings: settings(pool, &handle),
            direct: self.direct.clone(),
            options,
            is_suspended: is_suspended(pool),
        };
        pool.mounts.mount(&self.exec, handle, pool.txgs(), plan)
    }

    /// Unmounts a dataset and what is below it: all or, when one is in use, none.
    pub(crate) fn unmount_tree(&self, pool: &Arc<OpenPool>, name: &str, force: bool, directory: Directory) -> Result<Vec<String>, Failure> {
        let (moved, outcome) = pool.mounts.unmount_below(name, force, directory);
        match outcome {
            Ok(()) => Ok(moved),
            Err(failure) => {
                for name in moved.iter().rev() {
                    self.mount_one(pool, name, &MountRequest::default(), true)?;
                }
                Err(failure)
            }
        }
    }

    pub(crate) fn unmount(&self, request: &UnmountRequest) -> Result<Response, Failure> {
        match &request.target {
            Some(target) => {
                let name = if target.starts_with('/') { self.by_mountpoint(target)? } else { target.clone() };
                let pool = self.pool_of(&name, "unmount")?;
                if pool.mounts.mountpoint(&name).is_none() {
                    return Err(because(ErrorKind::Invalid, format!("cannot unmount '{name}'"), "not currently mounted"));
                }
                // What is mounted on top of it goes first.
                self.unmount_tree(&pool, &name, request.force, Directory::Keep)?;
            }
            None => {
                let pools: Vec<Arc<OpenPool>> = self.pools.read().values().cloned().collect();
                for pool in pools {
                    self.unmount_tree(&pool, &pool.name(), request.force, Directory::Keep)?;
                }
            }
        }
        Ok(done())
    }
}

/// A new file system with these properties; those that are fixed at creation shape its master node.
pub(crate) fn new_filesystem(properties: &BTreeMap<String, String>) -> Result<CreateDataset, String> {
    let case = match properties.get("casesensitivity").map(String::as_str) {
        None | Some("sensitive") => CaseSensitivity::Sensitive,
        Some("insensitive") => CaseSensitivity::Insensitive,
        Some("mixed") => CaseSensitivity::Mixed,
        Some(other) => return Err(format!("'casesensitivity' must be one of 'sensitive | insensitive | mixed', not '{other}'")),
    };
    let normalization = match properties.get("normalization").map(String::as_str) {
        None | Some("none") => NormFlags::default(),
        Some("formC") => NormFlags::FORM_C,
        Some("formD") => NormFlags::FORM_D,
        Some("formKC") => NormFlags::FORM_KC,
        Some("formKD") => NormFlags::FORM_KD,
        Some(other) => return Err(format!("'normalization' must be one of 'none | formC | formD | formKC | formKD', not '{other}'")),
    };
    let utf8_only = properties.get("utf8only").is_some_and(|value| value == "on") || normalization != NormFlags::default();
    // The root directory belongs to whoever makes the file system, as OpenZFS has it for delegated users.
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let options = CreateOptions { case, normalization, utf8_only, uid, gid, ..CreateOptions::default() };
    Ok(CreateDataset {
        kind: ObjsetType::ZFS,
        properties: properties.clone().into_iter().collect(),
        init: Box::new(move |objset, tx| Zfs::create(objset, &options, tx).map_err(|_| DslError::Unsupported)),
    })
}

fn property(entry: PropEntry) -> Property {
    let value = match entry.value {
        PropValue::Text(text) => Value::Text(text),
        PropValue::Bytes(bytes) => Value::Bytes(bytes),
        PropValue::Count(count) => Value::Count(count),
        PropValue::Number(number) => Value::Number(number),
        PropValue::Ratio(hundredths) => Value::Ratio(hundredths),
        PropValue::Time(seconds) => Value::Time(seconds as i64),
        PropValue::None => Value::None,
    };
    Property { name: entry.name, value, source: source(entry.source) }
}

fn text_of(handle: &DatasetHandle, name: &str) -> String {
    match handle.prop(name) {
        Ok(PropEntry { value: PropValue::Text(text), .. }) => text,
        _ => String::new(),
    }
}

/// Where the file system goes, below the pool's altroot.
fn effective_mountpoint(pool: &OpenPool, property: &Property) -> String {
    let Value::Text(place) = &property.value else { return "none".to_string() };
    match pool.altroot() {
        Some(root) if place.starts_with('/') => {
            let below = format!("{}{}", root.trim_end_matches('/'), place.trim_end_matches('/'));
            if below.is_empty() { "/".to_string() } else { below }
        }
        _ => place.clone(),
    }
}

/// Mounted file systems take their properties as they are now.
fn apply_settings(pool: &OpenPool) {
    for (name, _) in pool.mounts.list() {
        if let Ok(handle) = pool.dsl().hold(&name) {
            pool.mounts.apply(&name, settings(pool, &handle));
        }
    }
}

/// Requests of the mount must hold a whole record, or direct writes of such records could never be direct.
fn request_bytes_max(handle: &DatasetHandle) -> u32 {
    let record = match handle.prop("recordsize") {
        Ok(PropEntry { value: PropValue::Bytes(bytes), .. }) => bytes,
        _ => 0,
    };
    (record.min(16 << 20) as u32).max(MountOptions::default().max_write)
}

/// Asks whether the pool is suspended, for as long as it is open.
fn is_suspended(pool: &Arc<OpenPool>) -> Box<dyn Fn() -> bool + Send + Sync> {
    let pool = Arc::downgrade(pool);
    Box::new(move || pool.upgrade().is_some_and(|pool| pool.pool().zio().is_suspended()))
}

fn settings(pool: &OpenPool, handle: &DatasetHandle) -> Settings {
    let text = |property: &str| text_of(handle, property);
    Settings {
        xattr_sa: matches!(text("xattr").as_str(), "sa" | "on" | ""),
        atime: text("atime") != "off",
        relatime: text("relatime") != "off",
        project_quota: pool.counts_projects(),
        posix_acl: matches!(text("acltype").as_str(), "posix" | "posixacl"),
        snapdir: match text("snapdir").as_str() {
            "visible" => Snapdir::Visible,
            "disabled" => Snapdir::Disabled,
            _ => Snapdir::Hidden,
        },
        read_only: text("readonly") == "on",
        direct: match text("direct").as_str() {
            "disabled" => Direct::Disabled,
            "always" => Direct::Always,
            _ => Direct::Standard,
        },
        snapshot: false,
    }
}

fn property_failure(name: &str, properties: &BTreeMap<String, String>, error: &DslError) -> Failure {
    let failure = failure::dataset("set property for", name, error);
    match error {
        DslError::BadProperty | DslError::BadValue | DslError::ReadOnlyProperty => match objection(properties, false) {
            Some(why) => because(ErrorKind::Invalid, failure.what, why),
            None => failure,
        },
        _ => failure,
    }
}

/// What is wrong with the first property that cannot be set so, with what to do.
fn objection(properties: &BTreeMap<String, String>, creating: bool) -> Option<String> {
    properties.iter().find_map(|(name, value)| dsl::prop::table::objection(name, value, creating))
}

/// The snapshots that `a`, `a%b`, `%b`, `a%` or `%` means, among those that exist (oldest first).
fn select_range(known: &[String], word: &str) -> Vec<String> {
    let Some((first, last)) = word.split_once('%') else {
        return known.iter().filter(|name| *name == word).cloned().collect();
    };
    let start = if first.is_empty() { Some(0) } else { known.iter().position(|name| name == first) };
    let end = if last.is_empty() { known.len().checked_sub(1) } else { known.iter().position(|name| name == last) };
    match (start, end) {
        (Some(start), Some(end)) if start <= end => known[start..=end].to_vec(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_of_snapshots_names_exactly_those_between() {
        let known: Vec<String> = ["a", "b", "c"].map(String::from).to_vec();
        assert_eq!(select_range(&known, "b"), ["b"]);
        assert_eq!(select_range(&known, "a%b"), ["a", "b"]);
        assert_eq!(select_range(&known, "%b"), ["a", "b"]);
        assert_eq!(select_range(&known, "b%"), ["b", "c"]);
        assert!(select_range(&known, "c%a").is_empty(), "a range the wrong way round destroys nothing");
        assert!(select_range(&known, "x%").is_empty());
    }
}
