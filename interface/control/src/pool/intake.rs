//! Pools that come into the daemon's care: made, imported, opened again.

use crate::device::devices::Devices;
use crate::events::Events;
use crate::failure::pool_failure;
use crate::inject::Injections;
use crate::mount::holding::Holding;
use crate::mount::mounting::Mounter;
use crate::pool::cache_file::PoolsFile;
use crate::pool::closing::Closer;
use crate::pool::hostid::host;
use crate::pool::properties::{altroot_of, known_cachefile};
use crate::pool::rewinding::{advised, rewind_of};
use crate::pool::{OpenPool, Pools};
use crate::settings::Settings;
use crate::watch::policy::{self, Care};
use control_api::{ErrorKind, Failure, PoolImport, PoolTarget, Remark, Response};
use dsl::ReplayedLog;
use exec::Exec;
use metrics::Parameters;
use ondisk::Guid;
use pool::{ArenaOutcome, ImportOptions, Pool};
use std::sync::Arc;
use zil::{ARENA_BYTES, Arena};

/// Taking of pools into the daemon's care.
pub(crate) struct Intake {
    pub exec: Exec,
    pub pools: Arc<Pools>,
    pub file: Arc<PoolsFile>,
    pub devices: Arc<Devices>,
    pub mounter: Arc<Mounter>,
    pub settings: Arc<Settings>,
    pub events: Arc<Events>,
    pub injections: Arc<Injections>,
    pub closer: Arc<Closer>,
    /// Policy that looks after the devices of open pools.
    pub care: Arc<Care>,
    pub holding: Arc<Holding>,
    pub parameters: Arc<Parameters>,
}

/// Import as one request wants it.
pub(crate) struct ImportWish<'a> {
    request: &'a PoolImport,
    read_only: bool,
    /// True to go on without devices that somebody else holds.
    is_tolerant: bool,
    what: String,
}

impl<'a> ImportWish<'a> {
    pub(crate) fn new(request: &'a PoolImport, read_only: bool, is_tolerant: bool, what: String) -> ImportWish<'a> {
        ImportWish { request, read_only, is_tolerant, what }
    }
}

/// Warnings of logs that an import could not replay to their ends.
fn lost_records(replayed: &[ReplayedLog]) -> Vec<Remark> {
    let warning = |log: &ReplayedLog| {
        let failure = log.failure.as_ref()?;
        Some(Remark::Warning(format!("warning: the intent log of '{}': {failure}", log.dataset)))
    };
    replayed.iter().filter_map(warning).collect()
}

impl Intake {
    /// Takes a pool into the daemon's care: registers, remembers, mounts.
    pub(crate) fn adopt(&self, pool: Pool, (altroot, cachefile): (Option<String>, Option<Option<String>>), mount: bool) -> Vec<Failure> {
        self.settings.tune(&pool);
        self.keep(&pool);
        // A pool that has its name, or its place, for now only is in nobody's cache file, unless somebody wants that.
        let is_for_now = pool.has_temporary_name() || altroot.is_some();
        let cachefile = cachefile.unwrap_or_else(|| is_for_now.then(|| "none".to_string()));
        let open = Arc::new(OpenPool::new(pool, altroot));
        open.set_cachefile(cachefile);
        self.devices.open_caches(&open);
        self.pools.insert(open.clone());
        self.pools.absent.forget(|entry| entry.guid == open.pool().guid().0);
        self.file.remember();
        policy::keep(&self.care, &open);
        if mount { self.mounter.mount_all(&[open]) } else { Vec::new() }
    }

    /// Gives a pool that was opened an arena, where its mounts are to outlive the daemon.
    fn keep(&self, pool: &Pool) {
        match pool.arena_outcome() {
            ArenaOutcome::Refused(why) => tracing::error!("{}: what the daemon that died had acknowledged is lost: {why}", pool.name()),
            ArenaOutcome::TakenOver { .. } | ArenaOutcome::None => {}
        }
        let is_wanted = self.parameters.get("zirconia_keep_mounts") == Some(1) && self.holding.is_there() && pool.is_writeable();
        if pool.arena().is_some() || !is_wanted {
            return;
        }
        match Arena::create(ARENA_BYTES) {
            Ok(arena) => {
                tracing::warn!("{}: zirconia_keep_mounts is an experiment that loses data when the daemon dies", pool.name());
                pool.set_arena(arena);
            }
            Err(error) => tracing::warn!("{}: mounts do not outlive the daemon: {error}", pool.name()),
        }
    }

    /// Imports the pool of this guid from the devices at these paths.
    pub(crate) fn import_devices(&self, paths: &[String], guid: Guid, wish: &ImportWish<'_>) -> Result<Response, Failure> {
        let began_ns = self.exec.now_ns();
        let (mut opened, mut failed) = (Vec::new(), Vec::new());
        for path in paths {
            match self.devices.open_device(path, wish.read_only, &wish.what) {
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
            missing_log: wish.request.missing_log,
            missing_idle_log: wish.is_tolerant,
            rewind: rewind_of(wish.request),
            host: host(),
            arena: self.holding.take_arena(guid.0).map(Arc::new),
            ..ImportOptions::default()
        };
        let has_arena = options.arena.is_some();
        let pool = Pool::import(&self.exec, opened, &options, &self.settings.runtime());
        if has_arena && !pool.as_ref().is_ok_and(Pool::has_taken_over) {
            self.holding.drop_arena(guid.0);
        }
        let pool = pool.map_err(|error| match failed.first() {
            // A device that is there and can't be opened explains it better than that it is missing.
            Some(failure) if error.is_of_missing_devices() => failure.clone(),
            _ => advised(pool_failure(wish.what.clone(), &error), &error, options.rewind),
        })?;
        self.injections.injected_delay(&pool.name(), true, began_ns);
        self.events.tell("sysevent.fs.zfs.config_sync", &pool.name(), pool.guid());
        self.events.tell("sysevent.fs.zfs.pool_import", &pool.name(), pool.guid());
        pool.log_import();
        let status = pool.status();
        let damaged = status.damaged_labels + status.damaged_uberblocks;
        let properties = &wish.request.properties;
        let cachefile = properties.get("cachefile").map(|value| known_cachefile(value));
        let altroot = altroot_of(wish.request.altroot.as_ref(), properties, &wish.what)?;
        let lost = lost_records(pool.replayed());
        if !wish.is_tolerant {
            self.devices.find_caches(&pool, &wish.request.search);
        }
        let failures = self.adopt(pool, (altroot, cachefile), !wish.request.no_mount);
        let mut remarks: Vec<Remark> = failures.iter().map(|failure| Remark::Warning(failure.to_string())).collect();
        if !remarks.is_empty() {
            remarks.push(Remark::Output("Import was successful, but unable to mount some datasets".to_string()));
        }
        remarks.extend(lost);
        let without = |failure: &Failure| Remark::Warning(format!("warning: the pool is opened without a device: {}", failure.why));
        remarks.extend(failed.iter().map(without));
        if damaged > 0 {
            let more = "'zpool scrub' and 'zpool status' tell more";
            remarks.push(Remark::Output(format!("{damaged} damaged labels or uberblocks were passed over; {more}")));
        }
        Ok(Response::Done { remarks })
    }

    /// Closes a pool and opens it again (OpenZFS: `spa_reset`).
    pub(crate) fn reopen_pool(&self, name: &str) -> Result<(), Failure> {
        let open = self.pools.open_pool(name)?;
        let paths: Vec<String> =
            open.pool().devices().iter().flatten().map(|device| device.path().to_string_lossy().into_owned()).collect();
        let (guid, altroot, read_only) = (open.pool().guid(), open.altroot().map(str::to_string), open.is_read_only());
        let (temporary, new_name) = (open.pool().has_temporary_name(), Some(open.name()));
        let properties = [("cachefile".to_string(), open.cachefile().unwrap_or_default())].into();
        drop(open);
        let handlers = self.injections.set_handlers_aside(name);
        let reopened =
            self.closer.close(&PoolTarget { pool: name.to_string(), force: false, hard: false }, "unload", Pool::export).and_then(|_| {
                let pool = Some(name.to_string());
                let request = PoolImport { pool, altroot, temporary, new_name, properties, missing_log: true, ..PoolImport::default() };
                self.import_devices(&paths, guid, &ImportWish::new(&request, read_only, false, format!("cannot load '{name}'")))
            });
        self.injections.put_handlers_back(handlers);
        reopened.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, nobody hears that what a program had made durable is lost.
    #[test]
    fn what_a_replay_lost_is_told() {
        let log = |failure: Option<&str>| ReplayedLog { dataset: "tank/a".into(), records: 3, failure: failure.map(str::to_string) };
        assert_eq!(lost_records(&[log(None)]), []);
        let told = Remark::Warning("warning: the intent log of 'tank/a': record 4".to_string());
        assert_eq!(lost_records(&[log(None), log(Some("record 4"))]), [told]);
    }
}
