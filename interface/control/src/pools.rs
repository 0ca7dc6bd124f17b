//! `zpool …`: making, finding, importing and closing pools, and reporting on them.

use crate::failure::{self, because};
use crate::{Control, OpenPool, datasets, report, status};
use control_api::{
    ErrorKind, Failure, ImportSearch, IostatReport, LabelClear, PoolCreate, PoolHistory, PoolHistoryReport, PoolImport, PoolNames,
    PoolQuery, PoolSet, PoolSync, PoolTarget, PoolWait, Response, VdevSpec, WITHOUT_EFFECT,
};
use device::BlockDevice;
use ondisk::Guid;
use pool::{AddSpec, FoundPool, Host, ImportOptions, LeafSpec, Pool, PoolError, PoolSpec, PoolState, ScanError};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What no pool's name may begin with (OpenZFS: `zpool_name_valid`).
const RESERVED: [&str; 4] = ["mirror", "raidz", "draid", "spare"];

pub(crate) fn done() -> Response {
    Response::Done { remarks: Vec::new() }
}

/// One clear message for a pool's error.
pub(crate) fn pool_failure(what: String, error: &PoolError) -> Failure {
    let kind = match error {
        PoolError::NotFound | PoolError::NoSuchDevice => ErrorKind::NotFound,
        PoolError::NoReplicas | PoolError::SpareInUse | PoolError::Rebuilding => ErrorKind::Busy,
        PoolError::Scan(ScanError::Resilvering) => ErrorKind::Busy,
        PoolError::AshiftMismatch => ErrorKind::Invalid,
        PoolError::Unremovable(_) => ErrorKind::Unsupported,
        PoolError::Ambiguous(_) | PoolError::Invalid(_) | PoolError::BadProperty | PoolError::BadValue => ErrorKind::Invalid,
        PoolError::UnsupportedFeatures { .. } | PoolError::UnsupportedVersion(_) | PoolError::OldVersion(_) => ErrorKind::Unsupported,
        PoolError::InUse { .. } | PoolError::Destroyed | PoolError::Device { .. } | PoolError::Closed => ErrorKind::Busy,
        PoolError::ReadOnly => ErrorKind::Permission,
        PoolError::NoUberblock | PoolError::Corrupt(_) | PoolError::SpaceMap(..) | PoolError::Object(..) => ErrorKind::Damaged,
        _ => ErrorKind::Io,
    };
    let failure = Failure::new(kind, what, error.to_string());
    match error {
        PoolError::InUse { .. } => failure.advise("if no other system uses it now, import it with '-f'"),
        PoolError::MissingLogs(paths) => {
            let which = if paths.is_empty() { String::new() } else { format!(": {}", paths.join(", ")) };
            failure.advise(format!("its log devices are missing or corrupted{which}; use '-m' to import the pool anyway"))
        }
        PoolError::Destroyed => failure.advise("import it with '-D' to bring it back"),
        PoolError::MissingDevices(_) | PoolError::MissingVdev(_) => failure
            .advise("attach the missing devices, name their directories with '-d', and try again; 'zpool import' shows which are missing"),
        PoolError::UnsupportedFeatures { read_only: true, .. } => failure.advise("import it with '-o readonly=on'"),
        PoolError::UnsupportedFeatures { .. } => {
            failure.advise("access the pool with a system that supports these features, or recreate it from backup")
        }
        PoolError::Device { problem: pool::DeviceProblem::InUse, .. } => failure.advise("use '-f' to override, which destroys that pool"),
        PoolError::NotFound => failure.advise("'zpool import -d DIR' lists what is found in a directory"),
        _ => failure,
    }
}

fn host() -> Host {
    let id = std::fs::read("/etc/hostid")
        .ok()
        .and_then(|bytes| bytes.first_chunk::<4>().map(|raw| u64::from(u32::from_le_bytes(*raw))))
        .unwrap_or(0);
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_string();
    Host { id, name }
}

fn check_name(name: &str) -> Result<(), &'static str> {
    let mut characters = name.chars();
    if !characters.next().is_some_and(|first| first.is_ascii_alphabetic()) {
        return Err("name must begin with a letter");
    }
    if !name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.: ".contains(c)) {
        return Err("invalid character in pool name");
    }
    if name.len() >= 256 {
        return Err("name is too long");
    }
    let is_reserved = name == "log" || RESERVED.iter().any(|word| name.starts_with(word));
    if is_reserved { Err("name is reserved") } else { Ok(()) }
}

/// The alternate root, by `-R` or else the property (OpenZFS: `spa_prop_validate`, of `altroot`).
fn altroot_of(option: Option<&String>, properties: &BTreeMap<String, String>, what: &str) -> Result<Option<String>, Failure> {
    match option.or_else(|| properties.get("altroot")) {
        Some(root) if !root.starts_with('/') => Err(because(ErrorKind::Invalid, what, format!("bad alternate root '{root}'"))),
        root => Ok(root.cloned()),
    }
}

/// Refuses to make a pool whose root would hide what is in a directory (OpenZFS: `zpool_do_create`).
fn check_mountpoint(request: &PoolCreate, name: &str, altroot: Option<&str>, what: &str) -> Result<(), Failure> {
    let wanted = request.mountpoint.as_ref().or_else(|| request.fs_properties.get("mountpoint")).map(String::as_str);
    let place = match wanted {
        Some("none" | "legacy") => return Ok(()),
        Some(place) if !place.starts_with('/') => {
            let why = format!("invalid mountpoint '{place}': must be an absolute path, 'legacy', or 'none'");
            return Err(because(ErrorKind::Invalid, what, why));
        }
        Some(place) => place.to_string(),
        None => format!("/{name}"),
    };
    let place = format!("{}{place}", altroot.unwrap_or_default());
    if std::fs::read_dir(&place).is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(because(ErrorKind::Busy, what, format!("mountpoint '{place}' exists and is not empty"))
            .advise("use '-m' option to provide a different default"));
    }
    Ok(())
}

/// What `cachefile=` asks for: a file for OpenZFS's configuration cache, or none (OpenZFS: `zpool_valid_proplist`).
fn cachefile_of(value: &str, what: &str) -> Result<Option<String>, Failure> {
    let invalid = |why: String| Err(because(ErrorKind::Invalid, what, why));
    match value {
        "" | "-" => Ok(None),
        "none" => Ok(Some(value.to_string())),
        path if !path.starts_with('/') => invalid(format!("property 'cachefile' must be empty, an absolute path, or 'none', not '{path}'")),
        path if matches!(path.rsplit('/').next(), None | Some("" | "." | "..")) => invalid(format!("'{path}' is not a valid file")),
        path => match std::path::Path::new(path).parent() {
            Some(folder) if !folder.is_dir() => invalid(format!("'{}' is not a valid directory", folder.display())),
            _ => Ok(Some(path.to_string())),
        },
    }
}

pub(crate) fn distinct_paths(vdevs: &[VdevSpec], what: &str) -> Result<(), Failure> {
    let mut seen = BTreeMap::new();
    let mut rest: Vec<&VdevSpec> = vdevs.iter().collect();
    while let Some(spec) = rest.pop() {
        match spec {
            VdevSpec::Leaf { path } => {
                if seen.insert(path, ()).is_some() {
                    return Err(because(ErrorKind::Invalid, what, format!("'{path}' is named twice")));
                }
            }
            VdevSpec::Mirror { children } | VdevSpec::Raidz { children, .. } | VdevSpec::Draid { children, .. } => rest.extend(children),
        }
    }
    Ok(())
}

/// What `-o` of `zpool create` asks for.
#[derive(Default)]
struct CreateProperties {
    ashift: Option<u32>,
    comment: Option<String>,
    features: Option<Vec<String>>,
    /// Set once the pool is there.
    stored: Vec<(String, String)>,
    version: Option<u64>,
    /// As [`cachefile_of`] has it; None where nothing was said.
    cachefile: Option<Option<String>>,
}

fn create_properties(request: &PoolCreate, what: &str) -> Result<CreateProperties, Failure> {
    let invalid = |why: String| because(ErrorKind::Invalid, what, why);
    let mut wanted = CreateProperties { features: request.no_features.then(Vec::new), ..CreateProperties::default() };
    for (name, value) in &request.properties {
        match (name.as_str(), value.as_str()) {
            ("ashift", value) => {
                let ashift = value.parse::<u32>().ok().filter(|ashift| *ashift == 0 || (9..=16).contains(ashift));
                let ashift = ashift.ok_or_else(|| {
                    invalid(format!("property 'ashift' number {value} is invalid: only values between 9 and 16 are allowed"))
                })?;
                wanted.ashift = (ashift != 0).then_some(ashift);
                wanted.stored.push((name.clone(), value.to_string()));
            }
            ("version", value) => wanted.version = Some(version_of(value, request).map_err(invalid)?),
            ("bootfs", _) => return Err(invalid("property 'bootfs' cannot be set at creation or import time".into())),
            ("comment", value) => wanted.comment = Some(value.to_string()),
            (feature, "enabled") if feature.starts_with("feature@") => {
                let short = feature.trim_start_matches("feature@").to_string();
                let known = pool::feature_by_name(&short).ok_or_else(|| invalid(format!("invalid feature '{short}'")))?;
                if known.support != pool::Support::Full {
                    return Err(because(ErrorKind::Unsupported, what, format!("feature '{short}' is not available in this version")));
                }
                let list = wanted.features.get_or_insert_with(default_features);
                if !list.contains(&short) {
                    list.push(short);
                }
            }
            (feature, "disabled") if feature.starts_with("feature@") => {
                let short = feature.trim_start_matches("feature@").to_string();
                wanted.features.get_or_insert_with(default_features).retain(|other| *other != short);
            }
            // What is the default anyway.
            ("multihost", "off") => {}
            ("compatibility", value) => {
                if let Some(allowed) = crate::compatibility::allowed(value).map_err(invalid)? {
                    wanted.features.get_or_insert_with(default_features).retain(|feature| allowed.contains(feature));
                    wanted.stored.push((name.clone(), value.to_string()));
                }
            }
            ("cachefile", value) => wanted.cachefile = Some(cachefile_of(value, what)?),
            // Was looked at before.
            ("altroot", _) => {}
            ("failmode", "wait" | "continue" | "panic")
            | ("autotrim" | "autoexpand" | "autoreplace" | "listsnapshots" | "delegation", "on" | "off") => {
                wanted.stored.push((name.clone(), value.clone()));
            }
            (name, value) => {
                return Err(because(ErrorKind::Unsupported, what, format!("property '{name}' cannot be set to '{value}' in this version")));
            }
        }
    }
    Ok(wanted)
}

/// The version that a pool is to have (OpenZFS: `zpool_valid_proplist`); those from before 26 cannot be written here.
fn version_of(value: &str, request: &PoolCreate) -> Result<u64, String> {
    let version = value.parse::<u64>().map_err(|_| format!("'{value}' is not a number: property 'version' takes one"))?;
    match version {
        pool::VERSION_WITH_FEATURES => Ok(version),
        _ if request.properties.keys().any(|name| name.starts_with("feature@")) => {
            Err("'feature@' and 'version' properties cannot be specified together".to_string())
        }
        26..=28 => Ok(version),
        1..=25 => Err(format!("pools of version {version} cannot be written in this version: 26 to 28 and 5000 can")),
        _ => Err(format!("property 'version' number {version} is invalid.")),
    }
}

fn default_features() -> Vec<String> {
    pool::FEATURES.iter().filter(|feature| feature.on_new_pools).map(|feature| feature.name.to_string()).collect()
}

impl Control {
    pub(crate) fn open_pool(&self, name: &str) -> Result<Arc<OpenPool>, Failure> {
        let open = self.pools.read().get(name).cloned();
        open.ok_or_else(|| {
            let unknown = || because(ErrorKind::NotFound, format!("cannot open '{name}'"), "no such pool");
            self.absent_failure(name).unwrap_or_else(unknown)
        })
    }

    pub(crate) fn pool_create(self: &Arc<Self>, request: &PoolCreate) -> Result<Response, Failure> {
        let what = format!("cannot create '{}'", request.pool);
        let name = request.temporary_name.as_ref().unwrap_or(&request.pool);
        [&request.pool, name].into_iter().try_for_each(|name| check_name(name)).map_err(|why| because(ErrorKind::Invalid, &*what, why))?;
        let altroot = altroot_of(request.altroot.as_ref(), &request.properties, &what)?;
        let all: Vec<VdevSpec> = request.vdevs.iter().chain(&request.logs).cloned().collect();
        distinct_paths(&all, &what)?;
        let Some(_claim) = self.claim(name, None) else {
            return Err(because(ErrorKind::Exists, what, "pool already exists"));
        };
        self.check_unreserved(&request.vdevs, &request.logs, request.force)?;
        let wanted = create_properties(request, &what)?;
        let objection = request
            .fs_properties
            .iter()
            .find_map(|(name, value)| dsl::prop::table::objection(name, value, dsl::prop::table::FILESYSTEM, true));
        if let Some(why) = objection {
            return Err(because(ErrorKind::Invalid, what, why));
        }
        check_mountpoint(request, name, altroot.as_deref(), &what)?;
        let mut fs_properties = request.fs_properties.clone();
        if let Some(mountpoint) = &request.mountpoint {
            fs_properties.insert("mountpoint".to_string(), mountpoint.clone());
        }
        let root = datasets::new_filesystem(&fs_properties).map_err(|why| because(ErrorKind::Invalid, &*what, why))?;
        let tops = self.new_tops(&request.vdevs, &what)?;
        let beside = AddSpec {
            logs: self.new_tops(&request.logs, &what)?,
            force: request.force,
            spares_first: true,
            ..self.spare_specs(&request.spares, &what)?
        };
        let new: Vec<LeafSpec> = tops.iter().chain(&beside.logs).flat_map(|top| &top.leaves).chain(&beside.spares).cloned().collect();
        self.check_contents(&new, None, request.force)?;
        if request.dry_run {
            return Ok(done());
        }
        let spec = PoolSpec {
            name: name.clone(),
            stored_name: request.temporary_name.as_ref().map(|_| request.pool.clone()),
            tops,
            ashift: wanted.ashift,
            features: wanted.features,
            comment: wanted.comment,
            host: host(),
            force: request.force,
            version: wanted.version.unwrap_or(pool::VERSION_WITH_FEATURES),
            root,
        };
        let (tables, spares) = (self.partitioned(&new), beside.spares.clone());
        let failed = |error: &PoolError| pool_failure(what.clone(), error);
        let pool = Pool::create(&self.exec, spec, &self.runtime()).map_err(|error| failed(&error))?;
        if !beside.logs.is_empty() || !request.spares.is_empty() {
            // What the user asked for is there as a whole, or not at all.
            if let Err(error) = pool.add(beside) {
                let _ = pool.destroy();
                return Err(failed(&error));
            }
        }
        for (name, value) in &wanted.stored {
            pool.set_prop(name, value).map_err(|error| failed(&error))?;
        }
        self.wipe_contents(&new, &tables);
        self.reserve(&spares);
        self.tell("sysevent.fs.zfs.pool_create", &pool.name(), pool.guid());
        // The pool is there; that its file system could not be mounted fails the command all the same, as in OpenZFS.
        failure::joined(self.adopt(pool, (altroot, wanted.cachefile), true))
            .map_err(|failure| Failure { kind: ErrorKind::NotMounted, ..failure })?;
        Ok(done())
    }

    /// Takes a pool into the daemon's care: registers, remembers, mounts.
    fn adopt(self: &Arc<Self>, pool: Pool, (altroot, cachefile): (Option<String>, Option<Option<String>>), mount: bool) -> Vec<Failure> {
        self.tune(&pool);
        // A pool that has its name, or its place, for now only is in nobody's cache file, unless somebody wants that.
        let is_for_now = pool.has_temporary_name() || altroot.is_some();
        let cachefile = cachefile.unwrap_or_else(|| is_for_now.then(|| "none".to_string()));
        let open = Arc::new(OpenPool::new(pool, altroot));
        open.set_cachefile(cachefile);
        self.pools.write().insert(open.name(), open.clone());
        self.forget_absent(|entry| entry.guid == open.pool().guid().0);
        self.remember();
        self.keep(&open);
        if mount { self.mount_all(&[open]) } else { Vec::new() }
    }

    /// True for a device without anything that a pool put there.
    pub(crate) fn is_blank(&self, device: &Arc<dyn BlockDevice>) -> bool {
        let labels = pool::inspect_labels(&self.exec, device);
        labels.configs.is_empty() && labels.uberblocks.is_empty()
    }

    /// Exports nothing; writes everything and lets go, so that the pool opens again with the daemon.
    pub(crate) fn pool_sync(&self, request: &PoolSync) -> Result<Response, Failure> {
        for open in self.selected(&request.pools)? {
            let synced = if request.force { open.pool().sync_forced() } else { open.pool().sync() };
            synced.map_err(|error| pool_failure(format!("cannot sync '{}'", open.name()), &error))?;
        }
        Ok(done())
    }

    pub(crate) fn selected(&self, names: &[String]) -> Result<Vec<Arc<OpenPool>>, Failure> {
        if names.is_empty() {
            return Ok(self.pools.read().values().cloned().collect());
        }
        names.iter().map(|name| self.open_pool(name)).collect()
    }

    fn found(&self, search: &ImportSearch) -> Result<Vec<FoundPool>, Failure> {
        let open: Vec<Guid> = self.pools.read().values().map(|pool| pool.pool().guid()).collect();
        let cached = search.cache_file.as_deref().map(crate::cache_file::read_cache).transpose()?;
        let devices = match &cached {
            None => self.candidates(search)?,
            Some(cached) => self.candidates(&ImportSearch { paths: cached.places(), ..search.clone() })?,
        };
        let mut found = pool::find_pools(&self.exec, devices);
        found.retain(|pool| cached.as_ref().is_none_or(|cached| cached.guids.contains(&pool.guid())));
        found.retain(|pool| !open.contains(&pool.guid()) && (pool.state() == PoolState::Destroyed) == search.destroyed);
        Ok(found)
    }

    pub(crate) fn pool_import_scan(&self, search: &ImportSearch) -> Result<Response, Failure> {
        Ok(Response::Importable(self.found(search)?.iter().map(|found| self.candidate(found, host().id)).collect()))
    }

    pub(crate) fn pool_import(self: &Arc<Self>, request: &PoolImport) -> Result<Response, Failure> {
        let mut read_only = false;
        for (name, value) in &request.properties {
            match (name.as_str(), value.as_str()) {
                ("readonly", "on") => read_only = true,
                ("readonly", "off") => {}
                ("cachefile", value) => drop(cachefile_of(value, "cannot import")?),
                ("altroot", _) => {}
                (name, _) => {
                    return Err(because(
                        ErrorKind::Unsupported,
                        "cannot import",
                        format!("property '{name}' cannot be set at import in this version"),
                    ));
                }
            }
        }
        let found = self.found(&request.search)?;
        let wanted: Vec<&FoundPool> = match &request.pool {
            Some(word) => {
                let guid = word.parse::<u64>().ok().map(Guid);
                let matching: Vec<&FoundPool> = found.iter().filter(|pool| pool.name() == word || Some(pool.guid()) == guid).collect();
                match matching.len() {
                    0 if self.is_open(word, guid) => {
                        let why = "a pool with that name already exists";
                        return Err(because(ErrorKind::Exists, format!("cannot import '{word}'"), why)
                            .advise("it is imported here already; see 'zpool list'"));
                    }
                    0 => return Err(pool_failure(format!("cannot import '{word}'"), &PoolError::NotFound)),
                    1 => matching,
                    _ => {
                        let guids = matching.iter().map(|pool| pool.guid()).collect();
                        return Err(pool_failure(format!("cannot import '{word}'"), &PoolError::Ambiguous(guids)));
                    }
                }
            }
            None => found.iter().collect(),
        };
        let mut remarks = Vec::new();
        for pool in wanted {
            match self.import_one(pool, request, read_only) {
                Ok(Response::Done { remarks: more }) => remarks.extend(more),
                Ok(_) => {}
                Err(failure) if request.pool.is_none() => remarks.push(failure.to_string()),
                Err(failure) => return Err(failure),
            }
        }
        Ok(Response::Done { remarks })
    }

    fn is_open(&self, word: &str, guid: Option<Guid>) -> bool {
        self.pools.read().iter().any(|(name, open)| name == word || Some(open.pool().guid()) == guid)
    }

    fn import_one(self: &Arc<Self>, found: &FoundPool, request: &PoolImport, read_only: bool) -> Result<Response, Failure> {
        let name = request.new_name.clone().unwrap_or_else(|| found.name().to_string());
        let what = format!("cannot import '{}'", found.name());
        if request.new_name.is_some() {
            check_name(&name).map_err(|why| because(ErrorKind::Invalid, &*what, why))?;
        }
        altroot_of(request.altroot.as_ref(), &request.properties, &what)?;
        let Some(_claim) = self.claim(&name, Some(found.guid())) else {
            return Err(because(ErrorKind::Exists, what, format!("a pool named '{name}' is already imported"))
                .advise("give it another name: zpool import POOL NEWNAME"));
        };
        let paths: Vec<String> = found.devices().map(|device| device.path().to_string_lossy().into_owned()).collect();
        let is_too_old = found.is_too_old_to_write() && !read_only;
        let read_only = read_only || is_too_old;
        if read_only && request.dry_run {
            return Ok(done());
        }
        let mut response = self.import_devices(&paths, found.guid(), &ImportWish::new(request, read_only, false, what))?;
        if let (Response::Done { remarks }, true) = (&mut response, is_too_old) {
            let version = found.version();
            remarks.push(format!("'{name}' was imported read-only: pool version {version} is too old to be written (26 and later are)"));
        }
        Ok(response)
    }

    pub(crate) fn import_devices(self: &Arc<Self>, paths: &[String], guid: Guid, wish: &ImportWish<'_>) -> Result<Response, Failure> {
        let began_ns = self.exec.now_ns();
        let (mut opened, mut failed) = (Vec::new(), Vec::new());
        for path in paths {
            match self.open_device(path, wish.read_only, &wish.what) {
                Ok(device) => opened.push(device),
                // What somebody else holds may be in use there: whoever is asked can say that it is not.
                Err(failure) if failure.kind == ErrorKind::Busy && !wish.is_tolerant => return Err(failure),
                Err(failure) => failed.push(failure),
            }
        }
        let options = ImportOptions {
            guid: Some(guid),
            new_name: wish.request.new_name.clone(),
            temporary: wish.request.temporary,
            read_only: wish.read_only,
            force: wish.request.force,
            destroyed: wish.request.search.destroyed,
            missing_log: wish.request.missing_log || wish.is_tolerant,
            host: host(),
            ..ImportOptions::default()
        };
        let pool = Pool::import(&self.exec, opened, &options, &self.runtime()).map_err(|error| match failed.first() {
            // A device that is there and can't be opened explains it better than that it is missing.
            Some(failure) if error.is_of_missing_devices() => failure.clone(),
            _ => pool_failure(wish.what.clone(), &error),
        })?;
        self.injected_delay(&pool.name(), true, began_ns);
        self.tell("sysevent.fs.zfs.config_sync", &pool.name(), pool.guid());
        self.tell("sysevent.fs.zfs.pool_import", &pool.name(), pool.guid());
        pool.log_import();
        let status = pool.status();
        let damaged = status.damaged_labels + status.damaged_uberblocks;
        let properties = &wish.request.properties;
        let cachefile = properties.get("cachefile").map(|value| cachefile_of(value, &wish.what)).transpose()?;
        let altroot = altroot_of(wish.request.altroot.as_ref(), properties, &wish.what)?;
        let is_protected = pool.has_switch("multihost").unwrap_or(false);
        let failures = self.adopt(pool, (altroot, cachefile), !wish.request.no_mount);
        let mut remarks: Vec<String> = failures.iter().map(Failure::to_string).collect();
        if !remarks.is_empty() {
            remarks.push("Import was successful, but unable to mount some datasets".to_string());
        }
        if is_protected {
            remarks.push(format!("{WITHOUT_EFFECT}the pool's multihost=on: make sure that no other host imports it meanwhile"));
        }
        remarks.extend(failed.iter().map(|failure| format!("warning: the pool is opened without a device: {}", failure.why)));
        if damaged > 0 {
            remarks.push(format!("{damaged} damaged labels or uberblocks were passed over; 'zpool scrub' and 'zpool status' tell more"));
        }
        Ok(Response::Done { remarks })
    }

    /// Closes a pool and opens it again (OpenZFS: `spa_reset`).
    pub(crate) fn reopen_pool(self: &Arc<Self>, name: &str) -> Result<(), Failure> {
        let open = self.open_pool(name)?;
        let paths: Vec<String> =
            open.pool().devices().iter().flatten().map(|device| device.path().to_string_lossy().into_owned()).collect();
        let (guid, altroot, read_only) = (open.pool().guid(), open.altroot().map(str::to_string), open.is_read_only());
        let (temporary, new_name) = (open.pool().has_temporary_name(), Some(open.name()));
        let properties = [("cachefile".to_string(), open.cachefile().unwrap_or_default())].into();
        drop(open);
        let handlers = self.set_handlers_aside(name);
        let reopened =
            self.close(&PoolTarget { pool: name.to_string(), force: false, hard: false }, "unload", Pool::export).and_then(|_| {
                let pool = Some(name.to_string());
                let request = PoolImport { pool, altroot, temporary, new_name, properties, missing_log: true, ..PoolImport::default() };
                self.import_devices(&paths, guid, &ImportWish::new(&request, read_only, false, format!("cannot load '{name}'")))
            });
        self.put_handlers_back(handlers);
        reopened.map(drop)
    }

    pub(crate) fn pool_query(&self, query: &PoolQuery) -> Result<Response, Failure> {
        let names: Vec<String> = query.pools.iter().filter(|name| !self.is_absent(name)).cloned().collect();
        let all_absent = names.is_empty() && !query.pools.is_empty();
        let selected = if all_absent { Vec::new() } else { self.selected(&names)? };
        let mut reports: Vec<_> =
            selected.iter().map(|open| status::pool_report(open, query.errors, &|spare| self.pool_using(spare))).collect();
        reports.extend(self.absent_reports(|name| query.pools.is_empty() || query.pools.iter().any(|wanted| wanted == name)));
        if query.pools.is_empty() {
            reports.sort_by(|one, other| one.name.cmp(&other.name));
        } else {
            reports.sort_by_key(|report| query.pools.iter().position(|name| *name == report.name));
        }
        Ok(Response::Pools(reports))
    }

    pub(crate) fn pool_set(&self, request: &PoolSet) -> Result<Response, Failure> {
        let what = format!("cannot set property for '{}'", request.pool);
        let open = self.open_pool(&request.pool)?;
        if let Some(vdev) = request.vdev {
            return crate::vdev_props::set(&open, Guid(vdev), request);
        }
        if request.property == "zia_provider" && !self.accelerators.await_tests(&request.value) {
            let why = format!("provider '{}' is still being tested", request.value);
            return Err(because(ErrorKind::Busy, what, why).advise("'zirconia provider info' shows it; try again"));
        }
        if request.property == "cachefile" {
            open.set_cachefile(cachefile_of(&request.value, &what)?);
            self.remember();
            return Ok(done());
        }
        match (request.property.strip_prefix("feature@"), request.value.as_str()) {
            (Some(feature), "enabled") => {
                open.pool().enable_feature(feature).map_err(|error| match error {
                    PoolError::BadProperty => because(ErrorKind::Invalid, &*what, format!("invalid feature '{feature}'")),
                    PoolError::BadValue => {
                        because(ErrorKind::Unsupported, &*what, format!("feature '{feature}' is not available in this version"))
                    }
                    other => pool_failure(what.clone(), &other),
                })?;
                Ok(done())
            }
            (Some(_), _) => Err(because(ErrorKind::Invalid, what, "a feature can only be set to 'enabled'")),
            (None, _) => {
                open.pool().set_prop(&request.property, &request.value).map_err(|error| match error {
                    PoolError::BadProperty => {
                        because(ErrorKind::Invalid, &*what, format!("property '{}' does not exist or cannot be set", request.property))
                    }
                    PoolError::BadValue if request.property == "bootfs" => {
                        because(ErrorKind::Invalid, &*what, format!("'{}' is an invalid name", request.value))
                    }
                    PoolError::BadValue => {
                        because(ErrorKind::Invalid, &*what, format!("'{}' is no value for '{}'", request.value, request.property))
                    }
                    PoolError::NoProvider { .. } => because(ErrorKind::Invalid, &*what, "given provider does not exist")
                        .advise("'zirconia provider list' shows those that do; 'zirconia provider load PATH' adds one"),
                    other => pool_failure(what.clone(), &other),
                })?;
                Ok(done())
            }
        }
    }

    pub(crate) fn pool_history(&self, request: &PoolHistory) -> Result<Response, Failure> {
        let mut reports = Vec::new();
        for open in self.selected(&request.pools)? {
            let records =
                open.pool().history().map_err(|error| pool_failure(format!("cannot show history for '{}'", open.name()), &error))?;
            let records = records.iter().filter_map(|record| report::history_record(record, request.internal)).collect();
            reports.push(PoolHistoryReport { pool: open.name(), records });
        }
        Ok(Response::History(reports))
    }

    pub(crate) fn pool_iostat(&self, names: &PoolNames) -> Result<Response, Failure> {
        let pools = self.selected(&names.pools)?.iter().map(|open| crate::iostat::iostat(open)).collect();
        Ok(Response::Iostat(IostatReport { time_ns: self.exec.now_ns(), pools }))
    }

    pub(crate) fn pool_wait(&self, request: &PoolWait) -> Result<Response, Failure> {
        const SETTLE_NS: u64 = 1_000_000_000;
        const STEP_NS: u64 = 20_000_000;
        const ACTIVITIES: [&str; 9] = ["discard", "free", "initialize", "replace", "remove", "resilver", "scrub", "trim", "raidz_expand"];
        if let Some(unknown) = request.activities.iter().find(|name| !ACTIVITIES.contains(&name.as_str())) {
            return Err(because(ErrorKind::Invalid, "cannot wait", format!("invalid activity '{unknown}'")));
        }
        let open = self.open_pool(&request.pool)?;
        let until = self.exec.now_ns() + request.deadline_ms * 1_000_000;
        loop {
            let mut busy = open.busy(&request.devices);
            busy.retain(|activity| request.activities.is_empty() || request.activities.contains(activity));
            if busy.is_empty() && !open.is_read_only() {
                // What ended is on disk when whoever waits for it goes on (labels of what came in the place of something else, for one),
                // unless the devices are too busy for that: the activity is over all the same.
                open.pool().sync_within(SETTLE_NS);
            }
            if busy.is_empty() || self.exec.now_ns() >= until {
                return Ok(Response::Busy(busy));
            }
            self.exec.sleep_ns(STEP_NS);
        }
    }

    pub(crate) fn label_clear(&self, request: &LabelClear) -> Result<Response, Failure> {
        let what = format!("failed to clear label for {}", request.device);
        // What is out of use may be made anew while its pool is open (OpenZFS: `vdev_is_active`).
        let in_use = |leaf: &vdev::Leaf| !request.force || leaf.state.is_usable();
        let own = self.pools.read().values().find(|open| open.uses(&request.device, &in_use)).map(|open| open.name());
        if let Some(pool) = own.or_else(|| self.reserving_pool(&request.device).map(|(open, _)| open.name())) {
            return Err(because(ErrorKind::Busy, what, format!("{} is a member of pool '{pool}', which is imported", request.device))
                .advise("export or destroy the pool first"));
        }
        let device = self.open_device(&request.device, false, &what)?;
        if let (Some(member), false) = (pool::membership(&self.exec, &device), request.force) {
            let state = if member.state == PoolState::Exported { "exported" } else { "potentially active" };
            return Err(because(ErrorKind::Busy, what, format!("{} is a member of {state} pool '{}'", request.device, member.pool))
                .advise("use '-f' to override"));
        }
        let cleared = pool::clear_labels(&self.exec, &device).map_err(|error| pool_failure(what.clone(), &error))?;
        if cleared == 0 {
            return Err(because(ErrorKind::NotFound, what, "it has no valid label"));
        }
        Ok(done())
    }
}

/// An import as one request wants it.
pub(crate) struct ImportWish<'a> {
    request: &'a PoolImport,
    read_only: bool,
    /// Goes on without devices that somebody else holds.
    is_tolerant: bool,
    what: String,
}

impl<'a> ImportWish<'a> {
    pub(crate) fn new(request: &'a PoolImport, read_only: bool, is_tolerant: bool, what: String) -> ImportWish<'a> {
        ImportWish { request, read_only, is_tolerant, what }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_the_grammar_would_misread_are_refused() {
        for name in ["mirror", "raidz2", "log", "spare1", "raidzone", "1tank", "ta/nk", "", "ta@nk"] {
            assert!(check_name(name).is_err(), "{name:?} must not name a pool");
        }
        for name in ["tank", "demo", "logs", "a-b_c.d:e", "cache"] {
            assert!(check_name(name).is_ok(), "{name:?} is a fine name");
        }
    }
}
