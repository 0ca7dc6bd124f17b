//! `zfs …`: datasets, their properties and snapshots.

use crate::dataset::encryption;
use crate::dataset::following::{Follower, Following};
use crate::dataset::maker::Maker;
use crate::dataset::names::{check_fits, check_name, descendants, filesystem_of, nameless, target_of};
use crate::dataset::properties::{new_filesystem, text_of};
use crate::dataset::volumes::{self, NewVolume, Refusal};
use crate::dataset::{calls, owners, versions};
use crate::failure::{self, because};
use crate::mount::enclosed::check_new_place;
use crate::mount::mounting::Mounter;
use crate::mount::mounts::Directory;
use crate::mount::unmounting::Unmounter;
use crate::mount::wish::Wish;
use crate::pool::{OpenPool, Pools};
use crate::requests::done;
use control_api::{
    DatasetCreate, DatasetInherit, DatasetRename, DatasetSet, ErrorKind, Failure, KeyBytes, Remark, Response, SnapshotCreate,
};
use dsl::prop::table;
use dsl::{CreateDataset, DatasetHandle, DslError};
use ondisk::ObjsetType;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Creation, changes and destruction of datasets; mounts follow.
pub(crate) struct Datasets {
    pub pools: Arc<Pools>,
    pub mounter: Arc<Mounter>,
    pub unmounter: Arc<Unmounter>,
}

impl Datasets {
    fn follower(&self) -> Follower<'_> {
        Follower { mounter: &self.mounter, unmounter: &self.unmounter }
    }

    /// Makes a dataset; what is mounted of it, and whose it is, says `maker`.
    pub(crate) fn create(&self, request: &DatasetCreate, maker: Maker) -> Result<Response, Failure> {
        check_name(&request.name, "create")?;
        let may_be_there = request.parents && self.pools.contains(&request.name);
        if !may_be_there && !request.name.contains('/') {
            return Err(nameless(&request.name));
        }
        let pool = self.pools.pool_of(&request.name, "create")?;
        let parent = request.name.rsplit_once('/').map_or("", |(parent, _)| parent);
        if request.parents && pool.dsl().hold(&request.name).is_ok_and(|handle| kind_of(&handle) == kind(request.volume)) {
            return Ok(done());
        }
        // Of a volume its sizes are looked at first.
        let volume = if request.volume { Some(plan(&pool, request, maker)?) } else { None };
        if let Some(why) = objection(&request.properties, kind(request.volume), true) {
            let verb = if request.dry_run { "verify" } else { "create" };
            return Err(because(ErrorKind::Invalid, format!("cannot {verb} '{}'", request.name), why));
        }
        let Planned { options, properties, remarks } = volume.map_or_else(|| plan(&pool, request, maker), Ok)?;
        let key = key_of(&pool, request)?;
        let notice = (request.volume && !request.dry_run).then(|| volumes::notice(&request.name));
        let created = Response::Created { properties, remarks: remarks.into_iter().chain(notice).collect() };
        if request.dry_run {
            let above = if request.parents { pool.name() } else { parent.to_string() };
            return dry_create(&pool, &request.name, &above).map(|()| created);
        }
        if request.parents && !parent.is_empty() && pool.dsl().hold(parent).is_err() {
            check_fits(&request.name).map_err(|error| failure::dataset("create", &request.name, &error))?;
            let (properties, no_mount) = (BTreeMap::new(), request.no_mount || !maker.may_mount);
            let name = parent.to_string();
            let above = DatasetCreate { name, properties, volume: false, sparse: false, key: None, no_mount, ..request.clone() };
            self.create(&above, maker)?;
        }
        if !request.volume && pool.dsl().hold(&request.name).is_err() {
            check_new_place(&self.pools, &pool, request)?;
        }
        // Somebody may give it another name meanwhile.
        let above = pool.dsl().hold(parent).ok();
        pool.dsl().create_dataset_with(&request.name, options, key.as_ref().map(|key| key.as_slice())).map_err(|error| match error {
            DslError::NotFound => parentless(&request.name),
            other => failure::dataset("create", &request.name, &other),
        })?;
        maker.take_over(pool.dsl(), &request.name);
        if request.no_mount || request.volume {
            return Ok(created);
        }
        let name = above.map_or_else(|| request.name.clone(), |above| request.name.replacen(parent, &above.name(), 1));
        self.mount_new(&pool, &name, maker)?;
        Ok(created)
    }

    /// Mounts what was just made, unless it is not meant to be (OpenZFS: `zfs_mount_and_share`).
    pub(super) fn mount_new(&self, pool: &Arc<OpenPool>, name: &str, maker: Maker) -> Result<(), Failure> {
        if !maker.may_mount {
            let why = "filesystem successfully created, but it may only be mounted by root";
            return if wants_mount(pool, name) { Err(Failure::new(ErrorKind::NotMounted, why, "")) } else { Ok(()) };
        }
        let turn = self.mounter.turn();
        let mounted = failure::joined(self.mounter.mount_wishes(&turn, vec![Wish::by_itself(pool, name)]));
        mounted.map_err(|failure| failure::made_unmounted("filesystem", failure))
    }

    pub(crate) fn set(&self, request: &DatasetSet) -> Result<Response, Failure> {
        let pool = self.pools.pool_of(&request.name, "set property for")?;
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
        let is_old = || handle.prop_u64("version").is_ok_and(|(version, _)| version < zpl::version::VERSION_USERSPACE);
        let has_projects = limits.iter().any(owners::Limit::is_of_project);
        if (!limits.is_empty() && is_old()) || (has_projects && !pool.counts_projects()) {
            return Err(refused(owners::MUST_UPGRADE.to_string()));
        }
        let (version, properties) = versions::split(properties, &handle).map_err(refused)?;
        let change = volumes::Change { properties, ..change };
        let pairs: Vec<(String, String)> = change.properties.clone().into_iter().collect();
        let changed: Vec<&str> = request.properties.keys().map(String::as_str).collect();
        let follows = Following {
            names: std::slice::from_ref(&request.name),
            changed: &changed,
            turns_off: request.properties.get("canmount").is_some_and(|value| value == "off"),
            no_mount: request.no_mount,
        };
        self.follower().follow(&pool, &follows, || {
            let set = if pairs.is_empty() { Ok(()) } else { handle.set_props(&pairs) };
            set.and_then(|()| change.size.map_or(Ok(()), |bytes| self.resize(&pool, &handle, bytes)))
                .and_then(|()| owners::set(&pool.mounts, &handle, &limits))
                .and_then(|()| versions::raise(&pool.mounts, &handle, version))
                .map_err(|error| property_failure(&request.name, &change.properties, kind, &error))
        })
    }

    /// Gives a volume another size, while nobody reads or writes it.
    pub(super) fn resize(&self, pool: &OpenPool, handle: &DatasetHandle, bytes: u64) -> Result<(), DslError> {
        let loan = pool.volumes.lend(handle.clone(), self.mounter.tunables(), &pool.mounts)?;
        loan.volume().ok_or(DslError::Busy)?.resize(bytes)
    }

    /// Has properties inherited; with `no_mount` nothing is mounted, unmounted or moved for it.
    pub(crate) fn inherit(&self, request: &DatasetInherit, no_mount: bool) -> Result<Response, Failure> {
        let pool = self.pools.pool_of(&request.name, "inherit property for")?;
        let mut names = vec![request.name.clone()];
        if request.recursive {
            names = descendants(&pool, &request.name)?;
        }
        let follows =
            Following { names: std::slice::from_ref(&request.name), changed: &[request.property.as_str()], turns_off: false, no_mount };
        self.follower().follow(&pool, &follows, || {
            names.iter().try_for_each(|name| {
                let failed = |error: DslError| inherit_failure(name, &request.property, &error);
                let handle = pool.dsl().hold(name).map_err(failed)?;
                let done = if request.received { handle.revert_prop(&request.property) } else { handle.inherit_prop(&request.property) };
                done.map_err(failed)
            })
        })
    }

    pub(crate) fn snapshot(&self, request: &SnapshotCreate) -> Result<Response, Failure> {
        let first = request.names.first().cloned().unwrap_or_default();
        let pool = self.pools.pool_of(&first, "create snapshot")?;
        let names = snapshots_meant(&pool, request)?;
        let filesystems: std::collections::BTreeSet<&str> = names.iter().map(|name| filesystem_of(name)).collect();
        if filesystems.len() < names.len() {
            let what = format!("cannot create snapshot '{first}'");
            return Err(because(ErrorKind::Invalid, what, "multiple snapshots of same fs not allowed"));
        }
        if let Some(why) = request.properties.iter().find_map(|(name, value)| table::users_objection(name, value)) {
            return Err(because(ErrorKind::Invalid, format!("cannot create snapshot '{first}'"), why));
        }
        let properties = request.properties.clone().into_iter().collect();
        pool.mounts.flush(filesystems.iter().copied())?;
        pool.dsl()
            .snapshot(&names, properties)
            .map_err(|error| failure::dataset("create snapshot", culprit(&pool, &names, &error).unwrap_or(&first), &error))?;
        calls::log_snapshot(&pool, &names, &request.properties);
        Ok(done())
    }

    /// Refuses a new name in another pool, or below a dataset that is not there and is not to be made (OpenZFS: `check_parents`).
    fn check_new_parent(&self, pool: &Arc<OpenPool>, request: &DatasetRename) -> Result<(), Failure> {
        if !Arc::ptr_eq(pool, &self.pools.pool_of(&request.to, "create")?) {
            let what = format!("cannot rename to '{}'", request.to);
            return Err(because(ErrorKind::Invalid, what, "datasets must be within same pool"));
        }
        let parent = request.to.rsplit_once('/').map_or("", |(parent, _)| parent);
        if !request.parents && pool.dsl().hold(parent).is_err() {
            return Err(parentless(&request.to));
        }
        Ok(())
    }

    pub(crate) fn rename(&self, request: &DatasetRename) -> Result<Response, Failure> {
        let pool = self.pools.pool_of(&request.from, "rename")?;
        let failed = |error: DslError| failure::dataset("rename", &request.from, &error);
        let target = target_of(&request.from, &request.to)?;
        if let (Some((filesystem, from)), recursive) = (request.from.split_once('@'), request.recursive) {
            let to = target.rsplit_once('@').map_or("", |(_, to)| to);
            let filesystems = if recursive { descendants(&pool, filesystem)? } else { vec![filesystem.to_string()] };
            let names: Vec<String> = filesystems.iter().map(|filesystem| format!("{filesystem}@{from}")).collect();
            pool.mounts.close_snapshots(&names, "rename")?;
            pool.dsl().rename_snapshots(&filesystems, from, to).map_err(failed)?;
            // Those that somebody mounted stay where they are.
            for name in &names {
                let now = format!("{}@{to}", filesystem_of(name));
                pool.mounts.renamed(name, &now);
                self.mounter.losses.renamed(name, &now);
            }
            return Ok(done());
        }
        // Said before anything is unmounted for it.
        if request.to == request.from {
            return Err(failed(DslError::Exists));
        }
        if request.to.strip_prefix(request.from.as_str()).is_some_and(|rest| rest.starts_with('/')) {
            let what = format!("cannot rename to '{}'", request.to);
            return Err(because(ErrorKind::Invalid, what, "New dataset name cannot be a descendant of current dataset name"));
        }
        // Before parents are made for it.
        drop(pool.dsl().hold(&request.from).map_err(failed)?);
        if pool.dsl().hold(&request.to).is_ok() {
            return Err(failed(DslError::Exists));
        }
        self.check_new_parent(&pool, request)?;
        if request.parents {
            let fits = |name: String| check_fits(&name.replacen(&request.from, &request.to, 1));
            descendants(&pool, &request.from)?.into_iter().try_for_each(fits).map_err(failed)?;
        }
        let _away = pool.volumes.leave(pool.pool().exec(), &request.from, format!("cannot rename '{}'", request.from), request.force)?;
        if let (true, Some((parent, _))) = (request.parents, request.to.rsplit_once('/')) {
            self.create(&DatasetCreate { name: parent.to_string(), parents: true, ..DatasetCreate::default() }, Maker::daemon())?;
        }
        let turn = self.mounter.turn();
        let bars = (pool.mounts.bar(&request.from, "renamed", false)?, pool.mounts.bar(&request.to, "renamed", false)?);
        let moved = if request.no_unmount {
            Vec::new()
        } else {
            self.unmounter.unmount_filesystems(&turn, &pool, (&request.from, &[]), (request.force, Directory::Moves))?
        };
        let renamed = pool.dsl().rename(&request.from, &request.to);
        if renamed.is_ok() {
            pool.mounts.renamed(&request.from, &request.to);
            self.mounter.losses.renamed(&request.from, &request.to);
        }
        drop(bars);
        let name_now = |name: String| if renamed.is_ok() { name.replacen(&request.from, &request.to, 1) } else { name };
        let again = moved.into_iter().map(|wish| Wish { name: name_now(wish.name), ..wish }).collect();
        let failures = self.mounter.mount_wishes(&turn, again);
        self.mounter.restore_lost();
        failure::joined(failures)?;
        renamed.map_err(failed)?;
        Ok(done())
    }
}

/// Failure of making a dataset below what is not there.
pub(super) fn parentless(name: &str) -> Failure {
    because(ErrorKind::NotFound, format!("cannot create '{name}'"), "parent does not exist").advise("use '-p' to create missing parents")
}

fn dry_create(pool: &OpenPool, name: &str, parent: &str) -> Result<(), Failure> {
    if pool.dsl().hold(name).is_ok() {
        return Err(failure::dataset("create", name, &DslError::Exists));
    }
    let handle = pool.dsl().hold(parent).map_err(|error| failure::dataset("create", name, &error))?;
    if kind_of(&handle) == table::FILESYSTEM { Ok(()) } else { Err(failure::dataset("create", name, &DslError::ParentNotFilesystem)) }
}

/// Full names of the snapshots that a request means.
pub(super) fn snapshots_meant(pool: &OpenPool, request: &SnapshotCreate) -> Result<Vec<String>, Failure> {
    let mut names = Vec::new();
    for name in &request.names {
        check_name(name, "create snapshot")?;
        let (filesystem, snapshot) = name.split_once('@').unwrap_or((name, ""));
        if request.recursive {
            let mut datasets = descendants(pool, filesystem)?;
            datasets.retain(|dataset| dataset == filesystem || is_whole(pool, dataset));
            names.extend(datasets.into_iter().map(|dataset| format!("{dataset}@{snapshot}")));
        } else {
            names.push(name.clone());
        }
    }
    Ok(names)
}

/// True for a file system that is to be mounted by itself.
pub(super) fn wants_mount(pool: &OpenPool, name: &str) -> bool {
    let wants = |handle: DatasetHandle| text_of(&handle, "canmount") == "on" && text_of(&handle, "mountpoint").starts_with('/');
    pool.dsl().hold(name).is_ok_and(wants)
}

/// True for what has contents to take a snapshot of; not for what is just being received, was not received to its end, or is gone (OpenZFS:
/// `zfs_snapshot_cb`).
fn is_whole(pool: &OpenPool, name: &str) -> bool {
    match pool.dsl().hold(name) {
        Ok(handle) => !handle.is_inconsistent(),
        Err(error) => error != DslError::NotFound,
    }
}

/// Name of the snapshot, of several, that could not be taken, for errors that name one.
fn culprit<'a>(pool: &OpenPool, names: &'a [String], error: &DslError) -> Option<&'a str> {
    let is_it = |name: &str| match error {
        DslError::NotFound => pool.dsl().hold(filesystem_of(name)).is_err(),
        DslError::Exists => pool.dsl().hold(name).is_ok(),
        _ => false,
    };
    names.iter().map(String::as_str).find(|name| is_it(name))
}

fn property_failure(name: &str, properties: &BTreeMap<String, String>, kind: u8, error: &DslError) -> Failure {
    let failure = failure::dataset("set property for", name, error);
    match error {
        DslError::BadProperty | DslError::BadValue | DslError::ReadOnlyProperty => {
            match objection(properties, kind, false).or_else(|| place_objection(properties)) {
                Some(why) => because(ErrorKind::Invalid, failure.what, why),
                None => failure,
            }
        }
        DslError::NoSpace => match properties.keys().find_map(|name| limit_objection(name)) {
            Some(why) => because(ErrorKind::NoSpace, failure.what, why),
            None => failure,
        },
        _ => failure,
    }
}

/// Words for a `keylocation` that could be one, and cannot be the dataset's (OpenZFS: `zfs_setprop_error`, `zfs_valid_proplist`); None where others
/// are set with it.
fn place_objection(properties: &BTreeMap<String, String>) -> Option<String> {
    let location = properties.get("keylocation").filter(|_| properties.len() == 1)?;
    let why = match location.as_str() {
        "none" => "keylocation must not be 'none' for encrypted datasets",
        _ => "keylocation may only be set on encryption roots",
    };
    Some(why.to_string())
}

fn inherit_failure(name: &str, property: &str, error: &DslError) -> Failure {
    let failure = failure::dataset("inherit property for", name, error);
    if *error != DslError::NotInherited {
        return failure;
    }
    let failure = because(ErrorKind::Invalid, failure.what, format!("'{property}' property cannot be inherited"));
    match property {
        "quota" | "reservation" | "refquota" | "refreservation" => failure
            .advise(format!("use 'zfs set {property}=none' to clear it, or 'zfs inherit -S {property}' to go back to the received value")),
        _ => failure,
    }
}

/// Reason why a limit cannot be, which takes no space itself (OpenZFS: `zfs_setprop_error`); none for other properties.
pub(super) fn limit_objection(name: &str) -> Option<&'static str> {
    match name {
        "quota" | "refquota" => Some("size is less than current used or reserved space"),
        "reservation" | "refreservation" => Some("size is greater than available space"),
        _ => None,
    }
}

/// Objection to the first property that cannot be set so for a dataset of this kind, with what to do.
pub(super) fn objection(properties: &BTreeMap<String, String>, kind: u8, creating: bool) -> Option<String> {
    // A volume's space may be worked out.
    let is_auto = |name: &str, value: &str| kind == table::VOLUME && name == "refreservation" && value == "auto";
    properties.iter().filter(|(name, value)| !is_auto(name, value)).find_map(|(name, value)| table::objection(name, value, kind, creating))
}

/// Kind of a new dataset, as the table of properties has it.
pub(super) fn kind(is_volume: bool) -> u8 {
    if is_volume { table::VOLUME } else { table::FILESYSTEM }
}

/// Kind of a dataset, as the table of properties has it.
pub(super) fn kind_of(handle: &DatasetHandle) -> u8 {
    let is_volume = || handle.kind().is_ok_and(|kind| kind == ObjsetType::ZVOL);
    if handle.is_snapshot() { table::SNAPSHOT } else { kind(is_volume()) }
}

/// Pool of a file system that is there; refuses volumes and snapshots (OpenZFS: `zfs_open` of `ZFS_TYPE_FILESYSTEM`).
pub(super) fn pool_of_filesystem(pools: &Pools, name: &str) -> Result<Arc<OpenPool>, Failure> {
    let pool = pools.pool_of(name, "open")?;
    let handle = pool.dsl().hold(name).map_err(|error| failure::dataset("open", name, &error))?;
    if kind_of(&handle) != table::FILESYSTEM {
        return Err(because(ErrorKind::Invalid, format!("cannot open '{name}'"), NOT_APPLICABLE));
    }
    Ok(pool)
}

/// Words for what a command does not do with a dataset of this kind (OpenZFS's).
pub(super) const NOT_APPLICABLE: &str = "operation not applicable to datasets of this type";

/// Key that a dataset which is to be made comes with.
fn key_of(pool: &OpenPool, request: &DatasetCreate) -> Result<Option<KeyBytes>, Failure> {
    // The nearest one that is there.
    let mut above = std::iter::successors(request.name.rsplit_once('/'), |(above, _)| above.rsplit_once('/')).map(|(above, _)| above);
    let is_above = above.find_map(|above| pool.dsl().hold(above).ok()).is_some_and(|handle| handle.is_encrypted().unwrap_or(false));
    let what = format!("cannot create '{}'", request.name);
    encryption::check(&what, &request.properties, is_above)?;
    if request.dry_run { Ok(None) } else { encryption::key_of(&what, &request.properties, request.key.as_ref()) }
}

/// Dataset that is to be made.
struct Planned {
    options: CreateDataset,
    properties: BTreeMap<String, String>,
    /// Remarks on the properties, for the answer.
    remarks: Vec<Remark>,
}

fn plan(pool: &OpenPool, request: &DatasetCreate, maker: Maker) -> Result<Planned, Failure> {
    if !request.volume {
        let options = new_filesystem(&request.properties, maker, pool.pool().dsl().version())
            .map_err(|why| because(ErrorKind::Invalid, format!("cannot create '{}'", request.name), why))?;
        return Ok(Planned { options, properties: request.properties.clone(), remarks: Vec::new() });
    }
    let NewVolume { size, block_size, properties, remarks } =
        NewVolume::plan(&request.name, &request.properties, request.sparse, &pool.pool().tree())?
            .in_version(pool.pool().dsl().version(), &request.properties);
    let options = CreateDataset {
        kind: ObjsetType::ZVOL,
        properties: properties.clone().into_iter().collect(),
        init: Box::new(move |objset, tx| dsl::volume::create(objset, size, block_size, tx)),
    };
    Ok(Planned { options, properties, remarks })
}
