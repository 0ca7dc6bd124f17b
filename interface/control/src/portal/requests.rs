//! `zirconia target`: which volumes the network sees, and who may use them.

use super::door::{Portal, SESSIONS_END, Shown};
use super::{names, reservations};
use crate::volume::there::{SHARE_ISCSI, volumes};
use control_api::{Failure, IscsiAllow, IscsiChap, IscsiDeny, IscsiReport, IscsiSession, IscsiTarget, Remark, Request, Response};
use dsl::DatasetHandle;
use iscsi::UnitError;
use std::collections::BTreeMap;

/// True for requests after which other volumes may have to be served than before.
pub(crate) fn changes_volumes(request: &Request) -> bool {
    matches!(
        request,
        Request::DatasetCreate(_)
            | Request::DatasetDestroy(_)
            | Request::DatasetSet(_)
            | Request::DatasetInherit(_)
            | Request::DatasetRename(_)
            | Request::DatasetClone(_)
            | Request::DatasetRollback(_)
            | Request::Receive(_)
            | Request::KeyLoad(_)
            | Request::KeyUnload(_)
            | Request::PoolCreate(_)
            | Request::PoolDestroy(_)
            | Request::PoolExport(_)
            | Request::PoolImport(_)
    )
}

fn sessions(shown: &Shown) -> Vec<IscsiSession> {
    let sessions = shown.target.sessions();
    sessions.iter().map(|session| IscsiSession { initiator: session.initiator.clone(), isid: session.isid }).collect()
}

impl Portal {
    /// Does `zirconia target list` and `sessions`.
    pub(crate) fn report(&self) -> Response {
        let mut targets: BTreeMap<String, IscsiTarget> = BTreeMap::new();
        for (name, rights) in self.rights.list() {
            targets.entry(name).or_default().rights = rights;
        }
        for (name, shown) in self.shown.lock().iter() {
            let target = targets.entry(name.clone()).or_default();
            (target.volume, target.sessions) = (Some(shown.volume.clone()), sessions(shown));
        }
        targets.iter_mut().for_each(|(name, target)| target.name.clone_from(name));
        let open = self.open.lock().clone();
        let crowd = open.as_ref().map(|open| open.targets.waiting()).unwrap_or_default();
        Response::Iscsi(IscsiReport {
            address: open.map(|open| open.address.to_string()),
            targets: targets.into_values().collect(),
            waiting: crowd.connections as u64,
            turned_away: crowd.turned_away,
        })
    }

    /// Does `zirconia target allow`.
    ///
    /// # Errors
    /// Names that nobody can have, and those of writing it down.
    pub(crate) fn allow(&self, request: &IscsiAllow) -> Result<Response, Failure> {
        let target = names::meant(&request.target);
        self.rights.allow(&target, &request.initiator, request.read_only)?;
        let stripped = if request.read_only { self.strip(&target, &request.initiator) } else { None };
        Ok(self.changed_right(&target, &request.initiator, stripped))
    }

    /// Does `zirconia target deny`.
    ///
    /// # Errors
    /// A right that there is not, and those of writing it down.
    pub(crate) fn deny(&self, request: &IscsiDeny) -> Result<Response, Failure> {
        let target = names::meant(&request.target);
        self.rights.deny(&target, &request.initiator)?;
        let stripped = self.strip(&target, &request.initiator);
        Ok(Response::Done { remarks: stripped.into_iter().collect() })
    }

    /// Does `zirconia target chap`.
    ///
    /// # Errors
    /// A right that there is not, a secret that cannot be one, and those of writing it down.
    pub(crate) fn chap(&self, request: &IscsiChap) -> Result<Response, Failure> {
        let target = names::meant(&request.target);
        self.rights.set_chap(&target, &request.initiator, &request.secret, request.mutual.as_ref())?;
        Ok(self.changed_right(&target, &request.initiator, None))
    }

    /// Ends sessions that began with another right; initiators log in again. The answer says what is missing for that.
    fn changed_right(&self, target: &str, initiator: &str, remark: Option<Remark>) -> Response {
        self.end_sessions(target, initiator);
        let mut remarks: Vec<Remark> = remark.into_iter().collect();
        if self.open.lock().is_none() {
            let why = "ZIRCONIA_ISCSI in the daemon's environment says where (zirconiad(8))";
            remarks.push(Remark::Warning(format!("no volume is served now: {why}")));
        } else if !self.shown.lock().contains_key(target) {
            let next = format!("'zfs set {SHARE_ISCSI}=on POOL/VOLUME' has that done");
            remarks.push(Remark::Warning(format!("no volume is served as {target} now: {next}")));
        }
        Response::Done { remarks }
    }

    /// Ends the sessions of an initiator that may not write any more, and takes its reservations from it, on disk too: nobody else could release
    /// them. Gives words for who has to know that this could not be.
    fn strip(&self, target: &str, initiator: &str) -> Option<Remark> {
        self.end_sessions(target, initiator);
        let disk = self.shown.lock().get(target).map(|shown| shown.disk.clone());
        let open = self.open.lock().clone();
        let stripped = match (disk, open) {
            (Some(disk), Some(open)) => {
                let strip = async { tokio::time::timeout(SESSIONS_END, disk.strip(initiator)).await.unwrap_or(Err(UnitError::Gone)) };
                open.handle.block_on(strip)
            }
            _ => self.volume_of(target).map_or(Ok(false), |volume| reservations::strip(&volume, initiator)),
        };
        match stripped {
            Ok(is_less) => {
                if is_less {
                    tracing::info!("reservations of {initiator} on {target} are gone with its right");
                }
                None
            }
            Err(_) => {
                let next = format!("'zfs inherit {} POOL/VOLUME' releases all of the volume's", reservations::PROPERTY);
                Some(Remark::Warning(format!("reservations of {initiator} on {target} may still be on disk: {next}")))
            }
        }
    }

    /// Volume of a target that nobody is served at, if its pool is open and can be looked at.
    fn volume_of(&self, target: &str) -> Option<DatasetHandle> {
        let pools = self.pools.all();
        let awake = pools.iter().filter(|pool| !pool.pool().zio().is_suspended());
        awake.flat_map(|pool| volumes(pool)).find(|volume| names::target(&volume.name()) == target)
    }

    fn end_sessions(&self, target: &str, initiator: &str) {
        let shown = self.shown.lock().get(target).map(|shown| shown.target.clone());
        let open = self.open.lock().clone();
        let (Some(shown), Some(open)) = (shown, open) else { return };
        let end = async { tokio::time::timeout(SESSIONS_END, shown.end_sessions_of(initiator)).await.is_ok() };
        if !open.handle.block_on(end) {
            tracing::warn!("requests of {initiator} to {target} do not end");
        }
    }
}
