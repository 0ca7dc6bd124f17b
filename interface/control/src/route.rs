//! Which of the daemon's parts does what a request asks for.

use crate::control::{Caller, Control};
use crate::dataset::maker::Maker;
use crate::dataset::rights::{self, Asker};
use crate::dataset::sending::{self, Outgoing};
use crate::dataset::{allow, diff, effects, keys, listing, owners, projects, receiving, redacting, references, waiting};
use crate::device::labels;
use crate::pool::{create, import, lifecycle, properties, queries, reguid, scrub, split, sweeps, upgrade};
use crate::report::direct;
use crate::requests::{changed_pool, done};
use control_api::{
    DatasetClone, DatasetCreate, DatasetSet, Failure, InjectAdd, PoolClear, PoolCreate, PoolImport, PoolSet, PoolSplit, ProviderLoad,
    ProviderReport, ProviderUnload, Request, Response, SendRequest,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use vdev::Bias;

impl Control {
    /// Does a request, for others than the daemon's owner as far as they may ask it and were allowed to.
    pub(crate) fn perform_for(&self, request: &Request, caller: &Caller) -> Result<Response, Failure> {
        let Some(user) = &caller.user else { return self.perform(request, caller) };
        let asker = Asker { pools: &self.pools, user, what: request.refusal().what };
        match request {
            Request::Receive(request) => receiving::receive(&self.datasets, request, caller.attached.as_ref(), Some(&asker)),
            Request::DatasetQuery(query) => self.perform(&Request::DatasetQuery(rights::visible(&asker, query)), caller),
            other if other.is_delegable() => self.perform_delegated(other, caller, &asker),
            other => match other.for_everyone() {
                Some(open) => self.perform(&open, caller).map(Response::for_everyone),
                None => Err(other.refusal()),
            },
        }
    }

    /// Does what was delegated to a user; nobody else does so in the pool meanwhile.
    fn perform_delegated(&self, request: &Request, caller: &Caller, asker: &Asker<'_>) -> Result<Response, Failure> {
        let pool = changed_pool(request).and_then(|name| self.pools.get(name));
        let _alone = pool.as_ref().map(|open| open.delegated());
        if let Request::DatasetDestroy(request) = request {
            return rights::destroy(asker, &self.datasets, request);
        }
        self.perform(&rights::permitted(asker, &self.datasets, request)?, caller)
    }

    pub(crate) fn perform(&self, request: &Request, caller: &Caller) -> Result<Response, Failure> {
        let maker = Maker::of(caller.user.as_ref());
        match request {
            Request::Info => Ok(Response::Info(self.info())),
            // The daemon's main loop does what these are about; streams: see [`Control::send`].
            Request::Stop | Request::Upgrade(_) | Request::Send(_) => Ok(done()),
            Request::PoolCreate(request) => self.create_pool(request),
            Request::PoolDestroy(target) => self.closer.destroy(target),
            Request::PoolExport(target) => self.closer.export(target),
            Request::PoolImportScan(search) => import::scan(&self.intake, search),
            Request::PoolImport(request) => self.import_pool(request),
            Request::PoolQuery(query) => queries::query(&self.pools, query),
            Request::PoolSet(request) => self.set_pool(request),
            Request::PoolReguid(request) => reguid::reguid(&self.pools, &self.file, request),
            Request::PoolCheckpoint(request) => queries::checkpoint(&self.pools, request),
            Request::PoolSplit(request) => self.split_pool(request),
            Request::PoolUpgrade(request) => upgrade::upgrade(&self.pools, request),
            Request::FeatureList => Ok(upgrade::features()),
            Request::PoolScrub(request) => scrub::scrub(&self.devices, request),
            Request::PoolSweep(request) => sweeps::sweep(&self.pools, request),
            Request::VdevChange(request) => self.vdevs.change(request),
            Request::PoolAdd(request) => lifecycle::add(&self.devices, &self.file, request),
            Request::VdevRemove(request) => lifecycle::remove(&self.devices, &self.file, request),
            Request::VdevRemoveStop(request) => lifecycle::remove_stop(&self.pools, request),
            Request::PoolReopen(request) => self.vdevs.reopen(request),
            Request::PoolClear(request) => self.clear(request),
            Request::PoolSync(names) => queries::sync(&self.pools, names),
            Request::PoolFreeze(request) => queries::freeze(&self.pools, request),
            Request::PoolPrefetch(request) => queries::prefetch(&self.pools, request),
            Request::PoolHistory(request) => queries::history(&self.pools, request),
            Request::PoolIostat(names) => queries::counters(&self.exec, &self.pools, names),
            Request::PoolWait(request) => queries::wait(&self.exec, &self.pools, request),
            Request::PoolEvents(request) => Ok(self.events.query(request)),
            Request::InjectList => Ok(Response::Injections(self.injections.handlers())),
            Request::InjectAdd(request) => self.inject(request),
            Request::InjectClear { id } => self.injections.clear(*id),
            Request::LabelClear(request) => labels::clear(&self.devices, request),
            Request::DatasetCreate(request) => self.create_dataset(request, maker),
            Request::DatasetDestroy(request) => self.datasets.destroy(request),
            Request::DatasetQuery(query) => listing::query(&self.pools, query),
            Request::Userspace(query) => owners::userspace(&self.pools, query),
            Request::DatasetSet(request) => self.set_dataset(request),
            Request::DatasetInherit(request) => self.datasets.inherit(request, !maker.may_mount),
            Request::Snapshot(request) => self.datasets.snapshot(request),
            Request::DatasetRename(request) => self.datasets.rename(request),
            Request::Hold(request) => references::hold(&self.pools, request),
            Request::Release(request) => references::release(&self.pools, request),
            Request::Holds(query) => references::holds(&self.pools, query),
            Request::Bookmark(_) | Request::Redact(_) => self.bookmark(request),
            Request::DatasetClone(request) => self.clone_dataset(request, maker),
            Request::DatasetPromote(request) => self.datasets.promote(request),
            Request::DatasetRollback(request) => self.datasets.roll_back(request),
            Request::Allow(query) => allow::allowed(&self.pools, query),
            Request::AllowChange(request) => allow::change(&self.pools, request),
            Request::DatasetWait(request) => waiting::wait(&self.exec, &self.pools, request),
            Request::Project(request) => projects::projects(&self.pools, request),
            Request::Diff(query) => diff::diff(&self.pools, query),
            Request::SendPlan(request) => sending::plan(&self.pools, request),
            Request::Receive(request) => receiving::receive(&self.datasets, request, caller.attached.as_ref(), None),
            Request::KeyLoad(_) | Request::KeyUnload(_) | Request::KeyChange(_) => self.keys(request),
            Request::Mount(request) => self.mounter.mount(request),
            Request::Unmount(request) => self.unmounter.unmount(request),
            Request::Direct(query) => direct::query(&self.pools, query),
            Request::ProviderList => Ok(Response::Providers(self.provider_reports())),
            Request::ProviderLoad(request) => self.provider_load(request),
            Request::ProviderUnload(request) => self.provider_unload(request),
            Request::NbdList => Ok(self.nbd.report()),
            Request::IscsiList | Request::IscsiAllow(_) | Request::IscsiDeny(_) | Request::IscsiChap(_) => self.iscsi(request),
        }
    }

    /// Tells, or changes, who may use the iSCSI target.
    fn iscsi(&self, request: &Request) -> Result<Response, Failure> {
        match request {
            Request::IscsiAllow(request) => self.portal.allow(request),
            Request::IscsiDeny(request) => self.portal.deny(request),
            Request::IscsiChap(request) => self.portal.chap(request),
            _ => Ok(self.portal.report()),
        }
    }

    /// Makes a bookmark, with a list of what is not to be sent or without.
    fn bookmark(&self, request: &Request) -> Result<Response, Failure> {
        match request {
            Request::Bookmark(request) => references::bookmark(&self.pools, request),
            Request::Redact(request) => redacting::redact(&self.pools, request),
            _ => Ok(done()),
        }
    }

    /// Does what is asked with keys of datasets.
    fn keys(&self, request: &Request) -> Result<Response, Failure> {
        match request {
            Request::KeyLoad(request) => keys::load(&self.pools, request),
            Request::KeyUnload(request) => keys::unload(&self.pools, request),
            Request::KeyChange(request) => keys::change(&self.pools, request),
            _ => Ok(done()),
        }
    }

    /// Makes a pool.
    fn create_pool(&self, request: &PoolCreate) -> Result<Response, Failure> {
        effects::around(effects::of_creation(request), || create::create(&self.intake, request))
    }

    /// Imports pools.
    fn import_pool(&self, request: &PoolImport) -> Result<Response, Failure> {
        effects::around(effects::of_pool(&request.properties), || import::import(&self.intake, request))
    }

    /// Divides a pool.
    fn split_pool(&self, request: &PoolSplit) -> Result<Response, Failure> {
        effects::around(effects::of_pool(&request.properties), || split::split(&self.intake, request))
    }

    /// Makes a clone of a snapshot.
    fn clone_dataset(&self, request: &DatasetClone, maker: Maker) -> Result<Response, Failure> {
        effects::around(self.effects_of(&request.name, &request.properties), || self.datasets.clone_snapshot(request, maker))
    }

    /// Warnings about properties of a dataset. Of a pool that is not there something else is told.
    fn effects_of(&self, dataset: &str, properties: &BTreeMap<String, String>) -> Vec<String> {
        let pool = self.pools.get(dataset.split(['/', '@']).next().unwrap_or_default());
        effects::of_dataset(properties, || pool.is_none_or(|open| open.pool().tree().tops.iter().any(|top| top.bias == Bias::Special)))
    }

    /// Makes ready what `zfs send` asked for; [`Outgoing::run`] then waits for whoever takes it, unless `cut` is called: by whoever gives the pool up.
    ///
    /// # Errors
    /// What cannot be sent, and why.
    pub fn send(&self, request: &SendRequest, caller: &Caller, cut: Arc<dyn Fn() + Send + Sync>) -> Result<Outgoing, Failure> {
        let asked = Request::Send(request.clone());
        self.opening.await_pools(&self.exec, &asked)?;
        let asker = caller.user.as_ref().map(|user| Asker { pools: &self.pools, user, what: asked.refusal().what });
        let refusal = |name: &str| asker.as_ref().map_or(Ok(()), |asker| asker.check_send(name));
        let mut outgoing = sending::prepare(&self.pools, request, &refusal)?;
        asker.as_ref().map_or(Ok(()), |asker| rights::may_send(asker, &outgoing))?;
        outgoing.begin(cut);
        Ok(outgoing)
    }

    /// Sets a property of a pool.
    fn set_pool(&self, request: &PoolSet) -> Result<Response, Failure> {
        effects::around(effects::of_pool([(&request.property, &request.value)]), || {
            properties::set(&self.pools, &self.file, &self.settings.accelerators, request)
        })
    }

    /// Makes a file system or volume.
    fn create_dataset(&self, request: &DatasetCreate, maker: Maker) -> Result<Response, Failure> {
        effects::around(self.effects_of(&request.name, &request.properties), || self.datasets.create(request, maker))
    }

    /// Sets properties of a dataset.
    fn set_dataset(&self, request: &DatasetSet) -> Result<Response, Failure> {
        effects::around(self.effects_of(&request.name, &request.properties), || self.datasets.set(request))
    }

    /// Opens a pool that is not open, or has one that is forget its errors.
    fn clear(&self, request: &PoolClear) -> Result<Response, Failure> {
        if self.pools.absent.contains(&request.pool) {
            return self.reopening.clear(request);
        }
        if request.dry_run {
            // An open pool has nothing to go back from.
            return Ok(done());
        }
        self.vdevs.clear(request)
    }

    /// Does `zinject`.
    fn inject(&self, request: &InjectAdd) -> Result<Response, Failure> {
        let pool = self.injections.pool_of(request)?;
        if let (true, Some(pool)) = (request.reopen, &pool) {
            self.intake.reopen_pool(pool)?;
        }
        self.injections.add(request, pool.as_deref())
    }

    /// Reports of all providers. Pools that name one count as its users also while it is not there.
    fn provider_reports(&self) -> Vec<ProviderReport> {
        let mut reports = self.settings.accelerators.reports();
        reports.iter_mut().for_each(|report| report.sessions = self.pools.naming(&report.name) as u64);
        reports
    }

    /// Does `zirconia provider load`: pools that name it in `zia_provider` go on with it.
    fn provider_load(&self, request: &ProviderLoad) -> Result<Response, Failure> {
        let name = self.settings.accelerators.load(request)?;
        self.pools.follow_providers();
        let mut reports = self.provider_reports();
        reports.retain(|report| report.name == name);
        Ok(Response::Providers(reports))
    }

    /// Does `zirconia provider unload`.
    fn provider_unload(&self, request: &ProviderUnload) -> Result<Response, Failure> {
        self.settings.accelerators.unload(request, self.pools.naming(&request.name))?;
        self.pools.follow_providers();
        Ok(done())
    }
}
