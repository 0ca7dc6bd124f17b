//! `zfs …`: datasets, their properties and snapshots.

use crate::failure::{self, because};
use crate::following::Following;
use crate::mount_options::Asked;
use crate::mounting::{Wish, effective_mountpoint, settings_of, text_of};
use crate::mounts::{Directory, source};
use crate::owners;
use crate::volumes::{self, NewVolume, Refusal};
use crate::{Control, OpenPool};
use control_api::{
    DatasetCreate, DatasetDestroy, DatasetInherit, DatasetQuery, DatasetRename, DatasetReport, DatasetSet, ErrorKind, Failure, Property,
    Response, SnapshotCreate, Source, Value,
};
use dsl::prop::table;
use dsl::{CreateDataset, DatasetHandle, DslError, PropEntry, PropValue};
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

/// Destroys datasets and snapshots, in this order, up to the first that stays.
fn destroy_each(pool: &OpenPool, names: &[String]) -> Result<(), Failure> {
    for name in names {
        let gone = if name.contains('@') {
            pool.dsl().destroy_snapshots(std::slice::from_ref(name), false)
        } else {
            pool.dsl().destroy_dataset(name)
        };
        gone.map_err(|error| failure::dataset("destroy", name, &error))?;
    }
    Ok(())
}

impl Control {
    pub(crate) fn pool_of(&self, name: &str, verb: &str) -> Result<Arc<OpenPool>, Failure> {
        let pool = filesystem_of(name).split('/').next().unwrap_or_default();
        self.pools.read().get(pool).cloned().ok_or_else(|| {
            let why = if verb == "create" { format!("no such pool '{pool}'") } else { "dataset does not exist".to_string() };
            because(ErrorKind::NotFound, format!("cannot {verb} '{name}'"), why).advise("is its pool imported? see 'zpool list'")
        })
    }

    pub(crate) fn dataset_create(self: &Arc<Self>, request: &DatasetCreate) -> Result<Response, Failure> {
        let pool = self.pool_of(&request.name, "create")?;
        let parent = request.name.rsplit_once('/').map_or("", |(parent, _)| parent);
        if request.parents && pool.dsl().hold(&request.name).is_ok_and(|handle| kind_of(&handle) == kind(request.volume)) {
            return Ok(done());
        }
        // Of a volume its sizes are looked at first.
        let volume = if request.volume { Some(plan(&pool, request)?) } else { None };
        if let Some(why) = objection(&request.properties, kind(request.volume), true) {
            let verb = if request.dry_run { "verify" } else { "create" };
            return Err(because(ErrorKind::Invalid, format!("cannot {verb} '{}'", request.name), why));
        }
        let Planned { options, properties, remarks } = volume.map_or_else(|| plan(&pool, request), Ok)?;
        let notice = (request.volume && !request.dry_run).then(|| volumes::notice(&request.name));
        let created = Response::Created { properties, remarks: remarks.into_iter().chain(notice).collect() };
        if request.dry_run {
            let above = if request.parents { pool.name() } else { parent.to_string() };
            return self.dry_create(&pool, &request.name, &above).map(|()| created);
        }
        if request.parents && !parent.is_empty() && pool.dsl().hold(parent).is_err() {
            let properties = BTreeMap::new();
            self.dataset_create(&DatasetCreate { name: parent.to_string(), properties, volume: false, sparse: false, ..request.clone() })?;
        }
        if !request.volume && pool.dsl().hold(&request.name).is_err() {
            self.check_new_place(&pool, request)?;
        }
        // Somebody may give it another name meanwhile.
        let above = pool.dsl().hold(parent).ok();
        pool.dsl().create_dataset(&request.name, options).map_err(|error| match error {
            DslError::NotFound => because(ErrorKind::NotFound, format!("cannot create '{}'", request.name), "parent does not exist")
                .advise("use '-p' to create missing parents"),
            other => failure::dataset("create", &request.name, &other),
        })?;
        if request.no_mount || request.volume {
            return Ok(created);
        }
        let turn = self.turn();
        let name = above.map_or_else(|| request.name.clone(), |above| request.name.replacen(parent, &above.name(), 1));
        failure::joined(self.mount_wishes(&turn, vec![Wish::by_itself(&pool, &name)])).map_err(|failure| {
            let next = failure.next.map(|next| format!("\n{next}")).unwrap_or_default();
            let why = format!("{}{next}\nfilesystem successfully created, but not mounted", failure.why);
            because(ErrorKind::NotMounted, failure.what, why)
        })?;
        Ok(created)
    }

    fn dry_create(&self, pool: &OpenPool, name: &str, parent: &str) -> Result<(), Failure> {
        if pool.dsl().hold(name).is_ok() {
            return Err(failure::dataset("create", name, &DslError::Exists));
        }
        let handle = pool.dsl().hold(parent).map_err(|error| failure::dataset("create", name, &error))?;
        if kind_of(&handle) == table::FILESYSTEM { Ok(()) } else { Err(failure::dataset("create", name, &DslError::ParentNotFilesystem)) }
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
        self.add_asked(&query.asked, &mut reports);
        Ok(Response::Datasets(reports))
    }

    pub(crate) fn by_mountpoint(&self, path: &str) -> Result<String, Failure> {
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
        let asked = Asked::read(&pool.mounts.wishes(&name)).unwrap_or_default();
        for property in &mut properties {
            if let Some(is_on) = asked.temporary(&property.name) {
                let value = Value::Text(if is_on { "on" } else { "off" }.to_string());
                if value != property.value {
                    (property.value, property.source) = (value, Source::Temporary);
                }
            }
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

    pub(crate) fn dataset_set(self: &Arc<Self>, request: &DatasetSet) -> Result<Response, Failure> {
        let pool = self.pool_of(&request.name, "set property for")?;
        let handle = pool.dsl().hold(&request.name).map_err(|error| failure::dataset("set property for", &request.name, &error))?;
        let kind = kind_of(&handle);
        let refused = |why| because(ErrorKind::Invalid, format!("cannot set property for '{}'", request.name), why);
        if let Some(why) = objection(&request.properties, kind, false) {
            return Err(refused(why));
        }
        let change = match kind {
            table::VOLUME => volumes::change(&handle, &pool.pool().tree(), &request.properties).map_err(|refusal| match refusal {
                Refusal::Words(why) => refused(why),
                Refusal::Engine(error) => property_failure(&request.name, &request.properties, kind, &error),
            })?,
            _ => volumes::Change { size: None, properties: request.properties.clone() },
        };
        let (limits, properties) = owners::split(&change.properties);
        let change = volumes::Change { properties, ..change };
        let pairs: Vec<(String, String)> = change.properties.clone().into_iter().collect();
        let changed: Vec<&str> = request.properties.keys().map(String::as_str).collect();
        let follows = Following {
            names: std::slice::from_ref(&request.name),
            changed: &changed,
            turns_off: request.properties.get("canmount").is_some_and(|value| value == "off"),
            no_mount: request.no_mount,
        };
        self.follow(&pool, &follows, || {
            let set = if pairs.is_empty() { Ok(()) } else { handle.set_props(&pairs) };
            set.and_then(|()| change.size.map_or(Ok(()), |bytes| handle.resize_volume(bytes)))
                .and_then(|()| owners::set(&pool.mounts, &handle, &limits))
                .map_err(|error| property_failure(&request.name, &change.properties, kind, &error))
        })
    }

    pub(crate) fn dataset_inherit(self: &Arc<Self>, request: &DatasetInherit) -> Result<Response, Failure> {
        let pool = self.pool_of(&request.name, "inherit property for")?;
        let mut names = vec![request.name.clone()];
        if request.recursive {
            names = self.descendants(&pool, &request.name)?;
        }
        let follows = Following {
            names: std::slice::from_ref(&request.name),
            changed: &[request.property.as_str()],
            turns_off: false,
            no_mount: false,
        };
        self.follow(&pool, &follows, || {
            names.iter().try_for_each(|name| {
                let failed = |error: DslError| failure::dataset("inherit property for", name, &error);
                pool.dsl().hold(name).map_err(failed)?.inherit_prop(&request.property).map_err(failed)
            })
        })
    }

    /// The dataset and everything below it, parents first, snapshots left out.
    pub(crate) fn descendants(&self, pool: &OpenPool, name: &str) -> Result<Vec<String>, Failure> {
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

    pub(crate) fn dataset_destroy(self: &Arc<Self>, request: &DatasetDestroy) -> Result<Response, Failure> {
        let pool = self.pool_of(&request.name, "destroy")?;
        if request.name.contains('@') {
            return self.destroy_snapshots(&pool, request);
        }
        let failed = |error: DslError| failure::dataset("destroy", &request.name, &error);
        // The pool's own file system stays: everything in it goes.
        let is_pool = !request.name.contains('/');
        if is_pool && !request.recursive {
            let next = "use 'zfs destroy -r {}' to destroy all datasets in the pool\nuse 'zpool destroy {}' to destroy the pool itself";
            return Err(because(ErrorKind::Invalid, format!("cannot destroy '{}'", request.name), "operation does not apply to pools")
                .advise(next.replace("{}", &request.name)));
        }
        let handle = pool.dsl().hold(&request.name).map_err(failed)?;
        let reclaim_bytes = handle.space().used;
        drop(handle);
        let datasets = self.descendants(&pool, &request.name)?;
        let mut names = Vec::new();
        for dataset in datasets.iter().rev() {
            let snapshots = pool.dsl().snapshots(dataset).map_err(failed)?;
            names.extend(snapshots.into_iter().map(|snapshot| format!("{dataset}@{}", snapshot.name)));
            names.extend(Some(dataset.clone()).filter(|dataset| !is_pool || *dataset != request.name));
        }
        if !request.recursive && names.len() > 1 {
            // The dataset itself comes last.
            let others = names[..names.len() - 1].join("\n");
            return Err(failed(DslError::HasChildren).advise(format!("use '-r' to destroy the following datasets:\n{others}")));
        }
        if !request.dry_run {
            let turn = self.turn();
            let _bar = pool.mounts.bar(&request.name, "destroyed", false)?;
            // What leaves first comes back last, if it stays after all.
            let mut left = Vec::new();
            let mut outcome = Ok(());
            for tree in datasets.iter().filter(|name| if is_pool { name.matches('/').count() == 1 } else { **name == request.name }) {
                match self.unmount_tree(&turn, &pool, tree, request.force, Directory::Remove) {
                    Ok(wishes) => left.extend(wishes.into_iter().rev()),
                    Err(failure) => {
                        outcome = Err(failure);
                        break;
                    }
                }
            }
            drop(turn);
            if let Err(failure) = outcome.and_then(|()| destroy_each(&pool, &names)) {
                // Those that are still there go on where they were.
                left.retain(|wish| pool.dsl().hold(&wish.name).is_ok());
                self.put_back(&self.turn(), left);
                return Err(failure);
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

    pub(crate) fn dataset_rename(self: &Arc<Self>, request: &DatasetRename) -> Result<Response, Failure> {
        let pool = self.pool_of(&request.from, "rename")?;
        let failed = |error: DslError| failure::dataset("rename", &request.from, &error);
        if let (Some((filesystem, from)), recursive) = (request.from.split_once('@'), request.recursive) {
            let (target, to) = request.to.rsplit_once('@').unwrap_or(("", request.to.as_str()));
            if !target.is_empty() && target != filesystem {
                let what = format!("cannot rename to '{}'", request.to);
                return Err(because(ErrorKind::Invalid, what, "snapshots must be part of same dataset"));
            }
            let filesystems = if recursive { self.descendants(&pool, filesystem)? } else { vec![filesystem.to_string()] };
            let names: Vec<String> = filesystems.iter().map(|filesystem| format!("{filesystem}@{from}")).collect();
            pool.mounts.close_snapshots(&names, "rename")?;
            pool.dsl().rename_snapshots(&filesystems, from, to).map_err(failed)?;
            return Ok(done());
        }
        // Said before anything is unmounted for it.
        let what = || format!("cannot rename '{}'", request.from);
        if request.to == request.from {
            return Err(because(ErrorKind::Exists, what(), "dataset already exists"));
        }
        if request.to.strip_prefix(request.from.as_str()).is_some_and(|rest| rest.starts_with('/')) {
            return Err(because(ErrorKind::Invalid, what(), "New dataset name cannot be a descendant of current dataset name"));
        }
        if let (true, Some((parent, _))) = (request.parents, request.to.rsplit_once('/')) {
            self.dataset_create(&DatasetCreate { name: parent.to_string(), parents: true, ..DatasetCreate::default() })?;
        }
        let turn = self.turn();
        let bars = (pool.mounts.bar(&request.from, "renamed", false)?, pool.mounts.bar(&request.to, "renamed", false)?);
        let moved =
            if request.no_unmount { Vec::new() } else { self.unmount_tree(&turn, &pool, &request.from, request.force, Directory::Remove)? };
        let renamed = pool.dsl().rename(&request.from, &request.to);
        if renamed.is_ok() {
            pool.mounts.renamed(&request.from, &request.to);
        }
        drop(bars);
        let name_now = |name: String| if renamed.is_ok() { name.replacen(&request.from, &request.to, 1) } else { name };
        let again = moved.into_iter().map(|wish| Wish { name: name_now(wish.name), ..wish }).collect();
        failure::joined(self.mount_wishes(&turn, again))?;
        renamed.map_err(failed)?;
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
    if normalization != NormFlags::default() && properties.get("utf8only").is_some_and(|value| value == "off") {
        return Err("'utf8only' must be 'on' where 'normalization' is not 'none'".to_string());
    }
    let utf8_only = properties.get("utf8only").is_some_and(|value| value == "on") || normalization != NormFlags::default();
    // The root directory belongs to whoever makes the file system, as OpenZFS has it for delegated users.
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let (limits, properties) = owners::split(properties);
    let options = CreateOptions { case, normalization, utf8_only, uid, gid, ..CreateOptions::default() };
    Ok(CreateDataset {
        kind: ObjsetType::ZFS,
        properties: properties.into_iter().collect(),
        init: Box::new(move |objset, tx| {
            let made = Zfs::create(objset, &options, tx).map_err(|_| DslError::Unsupported);
            made.and_then(|()| owners::enter(objset, &limits, tx))
        }),
    })
}

pub(crate) fn property(entry: PropEntry) -> Property {
    let value = match entry.value {
        PropValue::Text(text) => Value::Text(text),
        PropValue::Bytes(bytes) => Value::Bytes(bytes),
        PropValue::Limit(bytes) => Value::Limit(bytes),
        PropValue::Count(count) => Value::Count(count),
        PropValue::Number(number) => Value::Number(number),
        PropValue::Ratio(hundredths) => Value::Ratio(hundredths),
        PropValue::Time(seconds) => Value::Time(seconds as i64),
        PropValue::None => Value::None,
    };
    Property { name: entry.name, value, source: source(entry.source) }
}

/// Mounted file systems take their properties as they are now.
pub(crate) fn apply_settings(pool: &OpenPool) {
    for (name, _) in pool.mounts.list() {
        if let Ok(handle) = pool.dsl().hold(&name) {
            pool.mounts.apply(&name, settings_of(pool, &handle, &pool.mounts.wishes(&name)));
        }
    }
}

pub(crate) fn settings(pool: &OpenPool, handle: &DatasetHandle) -> Settings {
    let text = |property: &str| text_of(handle, property);
    Settings {
        xattr_sa: matches!(text("xattr").as_str(), "sa" | "on" | ""),
        longname: text("longname") == "on",
        user_xattrs: text("xattr") != "off",
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

fn property_failure(name: &str, properties: &BTreeMap<String, String>, kind: u8, error: &DslError) -> Failure {
    let failure = failure::dataset("set property for", name, error);
    let has = |property: &str| properties.contains_key(property);
    let limit = |why: &str| because(ErrorKind::NoSpace, failure.what.clone(), why);
    match error {
        DslError::BadProperty | DslError::BadValue | DslError::ReadOnlyProperty => match objection(properties, kind, false) {
            Some(why) => because(ErrorKind::Invalid, failure.what, why),
            None => failure,
        },
        // Limits take no space (OpenZFS: `zfs_setprop_error`).
        DslError::NoSpace if has("quota") || has("refquota") => limit("size is less than current used or reserved space"),
        DslError::NoSpace if has("reservation") || has("refreservation") => limit("size is greater than available space"),
        _ => failure,
    }
}

/// What is wrong with the first property that cannot be set so for a dataset of this kind, with what to do.
fn objection(properties: &BTreeMap<String, String>, kind: u8, creating: bool) -> Option<String> {
    // A volume's space may be worked out.
    let is_auto = |name: &str, value: &str| kind == table::VOLUME && name == "refreservation" && value == "auto";
    properties.iter().filter(|(name, value)| !is_auto(name, value)).find_map(|(name, value)| table::objection(name, value, kind, creating))
}

/// The kind of a new dataset, as the table of properties has it.
fn kind(is_volume: bool) -> u8 {
    if is_volume { table::VOLUME } else { table::FILESYSTEM }
}

/// The kind of a dataset, as the table of properties has it.
fn kind_of(handle: &DatasetHandle) -> u8 {
    let is_volume = || handle.objset().is_ok_and(|objset| objset.kind() == ObjsetType::ZVOL);
    if handle.is_snapshot() { table::SNAPSHOT } else { kind(is_volume()) }
}

/// A dataset that is to be made.
struct Planned {
    options: CreateDataset,
    properties: BTreeMap<String, String>,
    /// What is to be said of the properties.
    remarks: Vec<String>,
}

fn plan(pool: &OpenPool, request: &DatasetCreate) -> Result<Planned, Failure> {
    if !request.volume {
        let options = new_filesystem(&request.properties)
            .map_err(|why| because(ErrorKind::Invalid, format!("cannot create '{}'", request.name), why))?;
        return Ok(Planned { options, properties: request.properties.clone(), remarks: Vec::new() });
    }
    let NewVolume { size, block_size, properties, remarks } =
        NewVolume::plan(&request.name, &request.properties, request.sparse, &pool.pool().tree())?;
    let options = CreateDataset {
        kind: ObjsetType::ZVOL,
        properties: properties.clone().into_iter().collect(),
        init: Box::new(move |objset, tx| dsl::volume::create(objset, size, block_size, tx)),
    };
    Ok(Planned { options, properties, remarks })
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
