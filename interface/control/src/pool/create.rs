//! `zpool create`: making a pool, as its properties and devices are asked for.

use crate::dataset::encryption;
use crate::dataset::maker::Maker;
use crate::dataset::properties::new_filesystem;
use crate::dataset::volumes::nice;
use crate::device::inuse::{
    check_contents, check_sizes, check_unreserved, distinct_paths, opened, partitioned, wipe_contents, with_contents,
};
use crate::failure::{self, because, pool_failure};
use crate::pool::compatibility;
use crate::pool::hostid::host;
use crate::pool::intake::Intake;
use crate::pool::objections::{Occasion, ashift_of, objected, objection};
use crate::pool::properties::{altroot_of, cachefile_of};
use crate::pool::set::Claim;
use crate::requests::done;
use control_api::{ErrorKind, Failure, PoolCreate, Response, new_pool_name_objection};
use dsl::prop::table;
use pool::{AddSpec, Pool, PoolError, PoolSpec};

/// Record size of file systems that say nothing of it, in bytes (OpenZFS: `SPA_OLD_MAXBLOCKSIZE`).
const RECORD_BYTES_DEFAULT: u64 = 128 << 10;

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
    let why = match std::fs::metadata(&place) {
        Ok(there) if !there.is_dir() => "is not a directory",
        Ok(_) if std::fs::read_dir(&place).is_ok_and(|mut entries| entries.next().is_some()) => "is not empty",
        _ => return Ok(()),
    };
    let advice = if request.mountpoint.is_some() {
        "give '-m' a directory that is empty or not there yet, or 'none'"
    } else {
        "use '-m' option to provide a different default"
    };
    Err(because(ErrorKind::Busy, what, format!("mountpoint '{place}' exists and {why}")).advise(advice))
}

/// Properties that `-o` of `zpool create` asks for.
#[derive(Default)]
struct CreateProperties {
    ashift: Option<u32>,
    comment: Option<String>,
    features: Option<Vec<String>>,
    /// Names and values of properties that are set once the pool is there.
    stored: Vec<(String, String)>,
    version: Option<u64>,
    /// Value of `cachefile` as [`cachefile_of`] has it; None where nothing was said.
    cachefile: Option<Option<String>>,
}

fn create_properties(request: &PoolCreate, what: &str) -> Result<CreateProperties, Failure> {
    let invalid = |why: String| because(ErrorKind::Invalid, what, why);
    let mut wanted = CreateProperties { features: request.no_features.then(Vec::new), ..CreateProperties::default() };
    for (name, value) in &request.properties {
        if let Some(why) = objection(name, value, Occasion::Creation) {
            return Err(objected(what, &why));
        }
        match (name.as_str(), value.as_str()) {
            ("ashift", value) => {
                let ashift = ashift_of(value).map_err(invalid)?;
                wanted.ashift = (ashift != 0).then_some(ashift);
                wanted.stored.push((name.clone(), ashift.to_string()));
            }
            ("version", value) => wanted.version = Some(version_of(value, request).map_err(invalid)?),
            ("comment", value) => wanted.comment = Some(value.to_string()).filter(|text| !text.is_empty()),
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
                if let Some(allowed) = compatibility::allowed(value).map_err(invalid)? {
                    wanted.features.get_or_insert_with(default_features).retain(|feature| allowed.contains(feature));
                    wanted.stored.push((name.clone(), value.to_string()));
                }
            }
            ("cachefile", value) => wanted.cachefile = Some(cachefile_of(value, what)?),
            // Was looked at before.
            ("altroot", _) => {}
            _ => wanted.stored.push((name.clone(), value.clone())),
        }
    }
    Ok(wanted)
}

/// Version that a pool is to have (OpenZFS: `zpool_valid_proplist`).
fn version_of(value: &str, request: &PoolCreate) -> Result<u64, String> {
    let version = dsl::prop::table::size(value)?;
    match version {
        pool::VERSION_WITH_FEATURES => Ok(version),
        _ if request.properties.keys().any(|name| name.starts_with("feature@")) => {
            Err("'feature@' and 'version' properties cannot be specified together".to_string())
        }
        _ if pool::is_version(version) => Ok(version),
        _ => Err(format!("property 'version' number {version} is invalid.")),
    }
}

fn default_features() -> Vec<String> {
    pool::FEATURES.iter().filter(|feature| feature.on_new_pools).map(|feature| feature.name.to_string()).collect()
}

/// Refuses names that no pool gets: the one that it has for now, and the one on its devices.
fn check_names(request: &PoolCreate, name: &str, what: &str) -> Result<(), Failure> {
    let Some(why) = [&request.pool, name].into_iter().find_map(new_pool_name_objection) else { return Ok(()) };
    let failure = because(ErrorKind::Invalid, what, why);
    Err(if request.pool.contains('/') { failure.advise("use 'zfs create' to create a dataset") } else { failure })
}

/// Reason why the root of a new pool cannot have its `special_small_blocks`: they are no larger than its records, and there are vdevs for them (OpenZFS:
/// `zfs_valid_proplist`, `zpool_create`). Later there need not be such vdevs yet, and only the largest block that the pool can have is a limit.
fn small_blocks_objection(request: &PoolCreate) -> Option<String> {
    const NAME: &str = "special_small_blocks";
    let bytes = |name: &str| request.fs_properties.get(name).and_then(|value| table::parse_bytes(value));
    let (small, record) = (bytes(NAME)?, bytes("recordsize").unwrap_or(RECORD_BYTES_DEFAULT));
    if small > record {
        return Some(table::small_blocks_objection(small, &nice(record)));
    }
    request.new.special.is_empty().then(|| format!("{NAME} property requires a special vdev"))
}

/// A pool that may be made, as far as its request alone tells.
struct Planned {
    /// Keeps the name until the pool is there.
    claim: Claim,
    altroot: Option<String>,
    wanted: CreateProperties,
    root: dsl::CreateDataset,
    /// Devices of the pool, opened.
    devices: AddSpec,
}

/// Looks at everything that force does not help against, and opens the devices.
fn planned(intake: &Intake, request: &PoolCreate, name: &str, what: &str) -> Result<Planned, Failure> {
    check_names(request, name, what)?;
    let altroot = altroot_of(request.altroot.as_ref(), &request.properties, what)?;
    distinct_paths(&request.new, what)?;
    let Some(claim) = intake.pools.claim(name, None) else {
        return Err(because(ErrorKind::Exists, what, "pool already exists"));
    };
    check_unreserved(&intake.pools, &request.new)?;
    let wanted = create_properties(request, what)?;
    let objection = request.fs_properties.iter().find_map(|(name, value)| table::objection(name, value, table::FILESYSTEM, true));
    if let Some(why) = objection.or_else(|| small_blocks_objection(request)) {
        return Err(because(ErrorKind::Invalid, what, why));
    }
    check_mountpoint(request, name, altroot.as_deref(), what)?;
    encryption::check(what, &request.fs_properties, false)?;
    let mut fs_properties = request.fs_properties.clone();
    if let Some(mountpoint) = &request.mountpoint {
        fs_properties.insert("mountpoint".to_string(), mountpoint.clone());
    }
    let version = wanted.version.unwrap_or(pool::VERSION_WITH_FEATURES);
    let root = new_filesystem(&fs_properties, Maker::daemon(), version).map_err(|why| because(ErrorKind::Invalid, what, why))?;
    let devices = AddSpec { force: request.force, spares_first: true, ..opened(&intake.devices, &request.new, what)? };
    check_sizes(&devices.leaves(), &request.new.caches, what)?;
    Ok(Planned { claim, altroot, wanted, root, devices })
}

/// Does `zpool create`.
pub(crate) fn create(intake: &Intake, request: &PoolCreate) -> Result<Response, Failure> {
    let what = format!("cannot create '{}'", request.pool);
    let name = request.temporary_name.as_ref().unwrap_or(&request.pool);
    let planned = planned(intake, request, name, &what);
    let planned = planned.map_err(|failure| with_contents(&intake.devices, &request.new, request.force, failure))?;
    let Planned { claim: _claim, altroot, wanted, root, devices: mut beside } = planned;
    let new = beside.leaves();
    let (tops, classes) = (std::mem::take(&mut beside.tops), std::mem::take(&mut beside.classes));
    check_contents(&intake.pools, &intake.exec, &new, None, request.force)?;
    if request.dry_run {
        return Ok(done());
    }
    let key = encryption::key_of(&what, &request.fs_properties, request.key.as_ref())?;
    let spec = PoolSpec {
        name: name.clone(),
        stored_name: request.temporary_name.as_ref().map(|_| request.pool.clone()),
        tops,
        classes,
        ashift: wanted.ashift,
        features: wanted.features,
        comment: wanted.comment,
        host: host(),
        force: request.force,
        version: wanted.version.unwrap_or(pool::VERSION_WITH_FEATURES),
        root,
        key: key.map(|key| dsl::Secret::copy_of(&key)),
    };
    let (tables, spares) = (partitioned(&intake.exec, &new), beside.spares.clone());
    let failed = |error: &PoolError| pool_failure(what.clone(), error);
    let pool = Pool::create(&intake.exec, spec, &intake.settings.runtime()).map_err(|error| failed(&error))?;
    if !beside.logs.is_empty() || request.new.beside().next().is_some() {
        // What is beside a pool is laid out as the parameters say.
        intake.settings.tune(&pool);
        // What the user asked for is there as a whole, or not at all.
        if let Err(error) = pool.add(beside) {
            let _ = pool.destroy();
            return Err(failed(&error));
        }
    }
    if let Err(error) = wanted.stored.iter().try_for_each(|(name, value)| pool.set_prop(name, value)) {
        let _ = pool.destroy();
        return Err(failed(&error));
    }
    wipe_contents(&intake.exec, &new, &tables);
    intake.devices.reserved.reserve(&spares);
    intake.events.tell("sysevent.fs.zfs.pool_create", &pool.name(), pool.guid());
    // The pool is there; that its file system could not be mounted fails the command all the same, as in OpenZFS.
    failure::joined(intake.adopt(pool, (altroot, wanted.cachefile), true))
        .map_err(|failure| failure::made_unmounted("pool", failure).advise(format!("'zfs mount {name}' tries it again")))?;
    Ok(done())
}
