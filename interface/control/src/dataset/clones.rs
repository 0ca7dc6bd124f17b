//! `zfs clone` and `zfs promote`: file systems and volumes that begin as a snapshot.

use crate::dataset::datasets::{Datasets, kind, kind_of, objection, parentless};
use crate::dataset::destroying::{mounted_by_hand, once_nobody_looks};
use crate::dataset::maker::Maker;
use crate::dataset::names::{check_fits, check_name, check_opened, nameless};
use crate::dataset::volumes::{Change, Refusal};
use crate::dataset::{owners, volumes};
use crate::failure::{self, because};
use crate::mount::enclosed::check_new_place;
use crate::pool::OpenPool;
use crate::requests::done;
use control_api::{DatasetClone, DatasetCreate, DatasetPromote, ErrorKind, Failure, Named, Response};
use dsl::prop::table;
use dsl::{DatasetHandle, DslError};
use ondisk::ObjsetType;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Snapshot that a clone is to start as.
struct Origin {
    pool: Arc<OpenPool>,
    is_volume: bool,
    /// Size in bytes of a clone that is to have another one than its snapshot.
    size: Option<u64>,
    /// Other properties of the clone; the space that is kept for a volume may have been asked to be worked out.
    properties: BTreeMap<String, String>,
}

/// Properties of a clone of a volume in which the space to keep for it is a number (OpenZFS: `zfs_fix_auto_resv`), and its size.
fn worked_out(pool: &OpenPool, origin: &DatasetHandle, asked: &BTreeMap<String, String>) -> Result<Change, Refusal> {
    let block_size = origin.prop_u64("volblocksize")?.0;
    let size = volumes::asked_size(block_size, asked)?;
    let mut properties = asked.clone();
    properties.remove("volsize");
    if asked.get("refreservation").is_some_and(|text| text == "auto") {
        let size = match size {
            Some(size) => size,
            None => origin.prop_u64("volsize")?.0,
        };
        let bytes = volumes::reservation(&pool.pool().tree(), size, block_size);
        properties.insert("refreservation".to_string(), bytes.to_string());
    }
    Ok(Change { size, properties })
}

impl Datasets {
    /// Looks at the snapshot that a clone is to start as, and whether the clone may have its properties.
    fn origin(&self, request: &DatasetClone) -> Result<Origin, Failure> {
        check_opened(&request.origin, Named::Snapshot)?;
        let pool = self.pools.pool_of(&request.origin, "open")?;
        let failed = |error: DslError| failure::dataset("open", &request.origin, &error);
        let origin = pool.dsl().hold(&request.origin).map_err(failed)?;
        let is_volume = origin.kind().map_err(failed)? == ObjsetType::ZVOL;
        if let Some(why) = objection(&request.properties, kind(is_volume), false) {
            return Err(because(ErrorKind::Invalid, format!("cannot create '{}'", request.name), why));
        }
        let Change { size, properties } = match is_volume {
            true => worked_out(&pool, &origin, &request.properties).map_err(|refusal| match refusal {
                Refusal::Words(why) => because(ErrorKind::Invalid, format!("cannot create '{}'", request.name), why),
                Refusal::Engine(error) => failed(error),
            })?,
            false => Change { size: None, properties: request.properties.clone() },
        };
        drop(origin);
        Ok(Origin { pool, is_volume, size, properties })
    }

    /// Makes a clone; what is mounted of it, and whose it is, says `maker`.
    pub(crate) fn clone_snapshot(&self, request: &DatasetClone, maker: Maker) -> Result<Response, Failure> {
        let origin = self.origin(request)?;
        check_name(&request.name, "create")?;
        let Some((parent, _)) = request.name.rsplit_once('/') else { return Err(nameless(&request.name)) };
        let pool = self.pools.pool_of(&request.name, "create")?;
        if request.parents && pool.dsl().hold(&request.name).is_ok() {
            return Ok(done());
        }
        let failed = |error: DslError| failure::dataset("create", &request.name, &error);
        let check_pool = || match Arc::ptr_eq(&pool, &origin.pool) {
            true => Ok(()),
            false => Err(because(ErrorKind::Invalid, format!("cannot create '{}'", request.name), "source and target pools differ")),
        };
        if request.parents && pool.dsl().hold(parent).is_err() {
            // Before parents are made for it.
            check_pool()?;
            check_fits(&request.name).map_err(failed)?;
            let no_mount = !maker.may_mount;
            self.create(&DatasetCreate { name: parent.to_string(), parents: true, no_mount, ..DatasetCreate::default() }, maker)?;
        }
        if pool.dsl().hold(parent).is_err() {
            return Err(parentless(&request.name));
        }
        check_pool()?;
        if !origin.is_volume {
            let new = DatasetCreate { name: request.name.clone(), properties: request.properties.clone(), ..DatasetCreate::default() };
            check_new_place(&self.pools, &pool, &new)?;
        }
        let (limits, properties) = owners::split(&origin.properties);
        pool.dsl().clone_snapshot(&request.name, &request.origin, properties.into_iter().collect()).map_err(failed)?;
        maker.take_over(pool.dsl(), &request.name);
        if !limits.is_empty() {
            pool.dsl().hold(&request.name).and_then(|handle| owners::set(&pool.mounts, &handle, &limits)).map_err(failed)?;
        }
        if let Some(bytes) = origin.size {
            let resized = pool.dsl().hold(&request.name).and_then(|handle| self.resize(&pool, &handle, bytes));
            if let Err(error) = resized {
                // As if it had been refused at once (OpenZFS: `zfs_ioc_clone`).
                let _ = pool.dsl().destroy_dataset(&request.name);
                return Err(failed(error));
            }
        }
        if origin.is_volume {
            return Ok(Response::Done { remarks: vec![volumes::notice(&request.name)] });
        }
        self.mount_new(&pool, &request.name, maker)?;
        Ok(done())
    }

    pub(crate) fn promote(&self, request: &DatasetPromote) -> Result<Response, Failure> {
        let name = &request.name;
        check_opened(name, Named::Dataset)?;
        let pool = self.pools.pool_of(name, "open")?;
        let failed = |error: DslError| failure::dataset("promote", name, &error);
        let handle = pool.dsl().hold(name).map_err(|error| failure::dataset("open", name, &error))?;
        let is_volume = kind_of(&handle) == table::VOLUME;
        let Some(origin) = handle.origin().map_err(failed)? else { return Err(failed(DslError::NotClone)) };
        drop(handle);
        let (other, _) = origin.split_once('@').unwrap_or((&origin, ""));
        let taken = pool.dsl().hold(&origin).map_err(failed)?.creation_txg();
        let snapshots = pool.dsl().snapshots(other).map_err(failed)?;
        let moving = snapshots.iter().filter(|snapshot| snapshot.creation_txg <= taken);
        let moving: Vec<String> = moving.map(|snapshot| format!("{other}@{}", snapshot.name)).collect();
        if is_volume && let Some(used) = moving.iter().find_map(|snapshot| pool.volumes.in_use(pool.pool().exec(), snapshot)) {
            return Err(failed(DslError::Busy).advise(format!("close what has the volume '{used}' open (losetup, lsof, fuser)")));
        }
        pool.mounts.close_snapshots(&moving, "promote")?;
        once_nobody_looks(pool.pool().exec(), || pool.dsl().promote(name)).map_err(|error| match error {
            DslError::Conflict { name: snapshot } => because(
                ErrorKind::Exists,
                format!("cannot promote '{name}'"),
                format!("conflicting snapshot '{snapshot}' from parent '{origin}'"),
            ),
            DslError::Busy => match moving.iter().find_map(|snapshot| mounted_by_hand(&pool, snapshot)) {
                Some(next) => failed(DslError::Busy).advise(next),
                None => failed(DslError::Busy),
            },
            error => failed(error),
        })?;
        Ok(done())
    }
}
