//! What every local user may ask (OpenZFS: the requests whose policy is `zfs_secpolicy_read` or `zfs_secpolicy_none`), what users may ask as far as
//! it was delegated to them, and how the rest is refused.

use crate::{DirectTarget, ErrorKind, Failure, IscsiReport, PoolWait, ProviderReport, Request, Response};

/// Milliseconds that a stranger's wait may hold a place at the daemon; whoever wants to wait longer asks again.
const WAIT_MS_MAX: u64 = 250;

/// Wait that holds a place no longer than a stranger's may.
fn shorter(wait: &PoolWait) -> PoolWait {
    PoolWait { deadline_ms: wait.deadline_ms.min(WAIT_MS_MAX), ..wait.clone() }
}

impl Request {
    /// True for one of those that change something and that only look here, at what everybody may see.
    fn only_looks(&self) -> bool {
        match self {
            Request::PoolUpgrade(upgrade) => upgrade.dry_run,
            Request::Mount(mount) => *mount == crate::MountRequest::default(),
            Request::Direct(query) => !query.targets.iter().any(|target| matches!(target, DirectTarget::File { .. })),
            _ => false,
        }
    }

    /// Request that asks for nothing private, and does not wait for long.
    fn narrowed(&self) -> Request {
        match self {
            Request::PoolQuery(query) => Request::PoolQuery(crate::PoolQuery { errors: false, ..query.clone() }),
            Request::PoolWait(wait) => Request::PoolWait(shorter(wait)),
            other => other.clone(),
        }
    }

    /// Request as it is done for any local user: what only looks at what OpenZFS shows to everybody, without what is private to the
    /// pool's owner (names of damaged files, sizes of other people's files). None for everything else: those are listed one by
    /// one, so that a new request is closed until somebody opens it.
    pub fn for_everyone(&self) -> Option<Request> {
        match self {
            Request::PoolQuery(_) | Request::PoolWait(_) | Request::PoolIostat(_) | Request::DatasetQuery(_) => Some(self.narrowed()),
            Request::Holds(_) | Request::Allow(_) | Request::FeatureList => Some(self.clone()),
            Request::Info | Request::ProviderList | Request::IscsiList | Request::NbdList => Some(self.clone()),
            _ if self.only_looks() => Some(self.clone()),
            Request::Mount(_)
            | Request::Direct(_)
            | Request::Stop
            | Request::Upgrade(_)
            | Request::PoolCreate(_)
            | Request::PoolDestroy(_)
            | Request::PoolExport(_)
            | Request::PoolImportScan(_)
            | Request::PoolImport(_)
            | Request::PoolSet(_)
            | Request::PoolReguid(_)
            | Request::PoolCheckpoint(_)
            | Request::PoolSplit(_)
            | Request::PoolUpgrade(_)
            | Request::PoolScrub(_)
            | Request::PoolSweep(_)
            | Request::VdevChange(_)
            | Request::PoolAdd(_)
            | Request::VdevRemove(_)
            | Request::VdevRemoveStop(_)
            | Request::PoolReopen(_)
            | Request::PoolClear(_)
            | Request::PoolSync(_)
            | Request::PoolFreeze(_)
            | Request::PoolPrefetch(_)
            | Request::PoolHistory(_)
            | Request::PoolEvents(_)
            | Request::InjectList
            | Request::InjectAdd(_)
            | Request::InjectClear { .. }
            | Request::LabelClear(_)
            | Request::DatasetCreate(_)
            | Request::DatasetDestroy(_)
            | Request::Userspace(_)
            | Request::DatasetSet(_)
            | Request::DatasetInherit(_)
            | Request::Snapshot(_)
            | Request::DatasetRename(_)
            | Request::Hold(_)
            | Request::Release(_)
            | Request::Bookmark(_)
            | Request::Redact(_)
            | Request::DatasetClone(_)
            | Request::DatasetPromote(_)
            | Request::DatasetRollback(_)
            | Request::Project(_)
            | Request::DatasetWait(_)
            | Request::AllowChange(_)
            | Request::Diff(_)
            | Request::Send(_)
            | Request::SendPlan(_)
            | Request::Receive(_)
            | Request::Unmount(_)
            | Request::ProviderLoad(_)
            | Request::ProviderUnload(_)
            | Request::IscsiAllow(_)
            | Request::IscsiDeny(_)
            | Request::IscsiChap(_) => None,
            Request::KeyLoad(_) | Request::KeyUnload(_) | Request::KeyChange(_) => None,
        }
    }

    /// True for what only looks at the daemon itself, whichever pools it has. Of the answer strangers get what [`Response::for_everyone`] leaves.
    pub fn is_about_daemon(&self) -> bool {
        matches!(self, Request::Info | Request::ProviderList | Request::IscsiList | Request::NbdList)
    }

    /// True for what is done for a user as far as that was delegated (`zfs allow`): the daemon decides, by the user who asks. Mounting is not among
    /// it: with OpenZFS on Linux that is root's, too.
    pub fn is_delegable(&self) -> bool {
        matches!(
            self,
            Request::DatasetCreate(_)
                | Request::DatasetDestroy(_)
                | Request::Userspace(_)
                | Request::DatasetSet(_)
                | Request::DatasetInherit(_)
                | Request::Snapshot(_)
                | Request::DatasetRename(_)
                | Request::Hold(_)
                | Request::Release(_)
                | Request::Bookmark(_)
                | Request::DatasetClone(_)
                | Request::DatasetPromote(_)
                | Request::DatasetRollback(_)
                | Request::AllowChange(_)
                | Request::Diff(_)
                | Request::Send(_)
                | Request::SendPlan(_)
                | Request::Receive(_)
        )
    }

    /// Failure for somebody who may not ask that.
    pub fn refusal(&self) -> Failure {
        Failure::new(ErrorKind::Permission, self.cannot(), "permission denied")
    }

    /// First words of a request that fails: `cannot create 'tank'`.
    fn cannot(&self) -> String {
        match self {
            Request::PoolCreate(request) => format!("cannot create '{}'", request.pool),
            Request::PoolDestroy(target) => format!("cannot destroy '{}'", target.pool),
            Request::PoolExport(target) => format!("cannot export '{}'", target.pool),
            Request::PoolImport(request) => pools("import", request.pool.as_slice()),
            Request::PoolImportScan(_) => "cannot discover pools".to_string(),
            Request::PoolSet(request) => format!("cannot set property for '{}'", request.pool),
            Request::PoolReguid(request) => format!("cannot reguid '{}'", request.pool),
            Request::PoolCheckpoint(request) => request.what(),
            Request::PoolSplit(request) => format!("Unable to split {}", request.pool),
            Request::PoolUpgrade(request) => format!("cannot upgrade '{}'", request.pool),
            Request::PoolScrub(request) => format!("cannot scrub {}", request.pool),
            Request::PoolSweep(request) => format!("cannot initialize or trim devices of '{}'", request.pool),
            Request::VdevChange(request) => request.what(),
            Request::PoolAdd(request) => format!("cannot add to '{}'", request.pool),
            Request::VdevRemove(request) => format!("cannot remove {}", request.device),
            Request::VdevRemoveStop(names) => pools("cancel removal of", &names.pools),
            Request::PoolReopen(request) => pools("reopen", &request.pools),
            Request::PoolClear(request) => format!("cannot clear errors for {}", request.pool),
            Request::PoolSync(names) => pools("sync", &names.pools),
            Request::PoolFreeze(request) => format!("cannot freeze '{}'", request.pool),
            Request::PoolPrefetch(request) => format!("cannot prefetch '{}'", request.pool),
            Request::PoolHistory(request) => pools("get history for", &request.pools),
            Request::PoolEvents(_) => "cannot get events".to_string(),
            Request::InjectList | Request::InjectAdd(_) | Request::InjectClear { .. } => "cannot look at or add handlers".to_string(),
            Request::LabelClear(request) => format!("failed to clear label for {}", request.device),
            Request::DatasetCreate(request) => format!("cannot create '{}'", request.name),
            Request::DatasetDestroy(request) => format!("cannot destroy '{}'", request.name),
            Request::Userspace(query) => format!("cannot get used/quota for {}", query.name),
            Request::DatasetSet(request) => format!("cannot set property for '{}'", request.name),
            Request::DatasetInherit(request) => format!("cannot inherit {} for '{}'", request.property, request.name),
            Request::Snapshot(request) => pools("create snapshot", &request.names),
            Request::DatasetRename(request) => format!("cannot rename '{}'", request.from),
            Request::Hold(request) => format!("cannot hold snapshot '{}'", request.name),
            Request::Release(request) => format!("cannot release hold from snapshot '{}'", request.name),
            Request::Bookmark(request) => format!("cannot create bookmark '{}'", request.bookmark),
            Request::Redact(request) => format!("cannot redact '{}'", request.snapshot),
            Request::DatasetClone(request) => format!("cannot create '{}'", request.name),
            Request::DatasetPromote(request) => format!("cannot promote '{}'", request.name),
            Request::DatasetRollback(request) => format!("cannot rollback to '{}'", request.name),
            Request::Project(request) => format!("cannot look at projects of files in '{}'", request.mountpoint),
            Request::DatasetWait(request) => format!("cannot wait for '{}'", request.name),
            Request::AllowChange(request) => format!("cannot set permissions on '{}'", request.name),
            Request::Diff(_) => "Unable to obtain diffs".to_string(),
            Request::Send(request) | Request::SendPlan(request) => format!("warning: cannot send '{}'", request.name),
            Request::Receive(_) => "cannot receive".to_string(),
            Request::KeyLoad(_) => "Key load error".to_string(),
            Request::KeyUnload(_) => "Key unload error".to_string(),
            Request::KeyChange(_) => "Key change error".to_string(),
            Request::Mount(request) => pools("mount", request.name.as_slice()),
            Request::Unmount(request) => pools("unmount", request.target.as_slice()),
            Request::Stop => "cannot stop the daemon".to_string(),
            Request::Upgrade(_) => "cannot replace the daemon".to_string(),
            Request::Direct(_) => "cannot show direct I/O".to_string(),
            Request::ProviderList | Request::ProviderLoad(_) | Request::ProviderUnload(_) => "cannot reach providers".to_string(),
            Request::IscsiList | Request::IscsiAllow(_) | Request::IscsiDeny(_) | Request::IscsiChap(_) | Request::NbdList => {
                "cannot reach targets".to_string()
            }
            Request::Info
            | Request::FeatureList
            | Request::Allow(_)
            | Request::PoolQuery(_)
            | Request::PoolIostat(_)
            | Request::PoolWait(_)
            | Request::DatasetQuery(_)
            | Request::Holds(_) => "cannot ask the daemon".to_string(),
        }
    }
}

/// Word in place of a name that strangers are not told.
const HIDDEN: &str = "(hidden)";

impl Response {
    /// Answer as any local user may have it: without names of initiators, which let whoever knows one use a disk that asks for no secret, and without
    /// paths of files with secrets.
    #[must_use]
    pub fn for_everyone(self) -> Response {
        match self {
            Response::Providers(reports) => Response::Providers(reports.into_iter().map(without_secrets).collect()),
            Response::Iscsi(report) => Response::Iscsi(without_initiators(report)),
            other => other,
        }
    }
}

/// Report of a provider without what stands behind its place, which names a file with a secret, and without a problem that may be with that.
fn without_secrets(report: ProviderReport) -> ProviderReport {
    let Some((place, _)) = report.path.as_deref().and_then(|path| path.split_once('?')) else { return report };
    ProviderReport { path: Some(place.to_string()), problem: None, ..report }
}

fn without_initiators(mut report: IscsiReport) -> IscsiReport {
    for target in &mut report.targets {
        target.rights.iter_mut().for_each(|right| right.initiator = HIDDEN.to_string());
        for session in &mut target.sessions {
            (session.initiator, session.isid) = (HIDDEN.to_string(), 0);
        }
    }
    report
}

/// Words for what cannot be done with the first of `names`, or with all there are: `cannot import 'tank'`.
fn pools(verb: &str, names: &[String]) -> String {
    match names.first() {
        Some(name) => format!("cannot {verb} '{name}'"),
        None => format!("cannot {}", verb.trim_end_matches(" for").trim_end_matches(" of")),
    }
}

#[cfg(test)]
mod tests {
    use crate::*;
    use std::collections::BTreeMap;

    /// If this fails, anybody on the machine reads names of other people's files, or holds the daemon's threads.
    #[test]
    fn strangers_see_what_openzfs_shows_to_everybody_and_no_more() {
        let query = Request::PoolQuery(PoolQuery { pools: vec!["tank".into()], errors: true });
        let open = Request::PoolQuery(PoolQuery { pools: vec!["tank".into()], errors: false });
        assert_eq!(query.for_everyone(), Some(open));
        let wait =
            |deadline_ms| Request::PoolWait(PoolWait { pool: "tank".into(), activities: Vec::new(), devices: Vec::new(), deadline_ms });
        assert_eq!(wait(60_000).for_everyone(), Some(wait(WAIT_MS)));
        assert_eq!(Request::Mount(MountRequest::default()).for_everyone(), Some(Request::Mount(MountRequest::default())));
        let holds = Request::Holds(HoldsQuery { name: "tank@s".into(), recursive: true });
        assert_eq!(holds.for_everyone(), Some(holds.clone()));
        let file = DirectTarget::File { path: "/tank/secret".into(), inode: 7 };
        for closed in [
            Request::Stop,
            Request::Upgrade(Upgrade { program: "/bin/true".into() }),
            Request::Mount(MountRequest { all: true, ..MountRequest::default() }),
            Request::Mount(MountRequest { name: Some("tank".into()), ..MountRequest::default() }),
            Request::Direct(DirectQuery { targets: vec![file] }),
            Request::PoolUpgrade(PoolUpgrade { pool: "tank".into(), dry_run: false }),
            Request::PoolHistory(PoolHistory::default()),
            Request::PoolEvents(PoolEvents::default()),
            Request::PoolImportScan(ImportSearch::default()),
            Request::Hold(SnapshotHold::default()),
            Request::Release(SnapshotHold::default()),
            Request::Bookmark(BookmarkCreate::default()),
            Request::Redact(RedactRequest::default()),
            Request::Diff(DiffQuery::default()),
            Request::Project(ProjectRequest::default()),
            Request::ProviderUnload(ProviderUnload { name: "x".into(), force: true }),
            Request::IscsiAllow(IscsiAllow { target: "tank/v".into(), initiator: "iqn.a".into(), read_only: false }),
            Request::IscsiDeny(IscsiDeny { target: "tank/v".into(), initiator: "iqn.a".into() }),
        ] {
            assert_eq!(closed.for_everyone(), None, "{closed:?}");
            let delegable = matches!(closed, Request::Hold(_) | Request::Release(_) | Request::Bookmark(_) | Request::Diff(_));
            assert_eq!(closed.is_delegable(), delegable, "{closed:?}");
            assert_eq!(closed.refusal().kind, ErrorKind::Permission);
        }
    }

    /// If this fails, ordinary users cannot look at the daemon; or whoever looks learns the name by which a disk can be had, or where its secret lies.
    #[test]
    fn strangers_see_the_daemon_without_its_secrets() {
        for open in [Request::Info, Request::ProviderList, Request::IscsiList, Request::NbdList] {
            assert_eq!(open.for_everyone(), Some(open.clone()));
        }
        let provider = |path: &str, problem: Option<&str>| ProviderReport {
            name: "target".to_string(),
            path: Some(path.to_string()),
            problem: problem.map(str::to_string),
            version: "1".to_string(),
            state: "down".to_string(),
            generation: 1,
            sessions: 0,
            live_handles: 0,
            capabilities: Vec::new(),
            disabled: Vec::new(),
            measured: BTreeMap::new(),
            counters: BTreeMap::new(),
        };
        let reports = vec![provider("tcp:storage:4421?secret-file=/etc/key", Some("/etc/key: no")), provider("/lib/x.so", Some("it died"))];
        let shown = vec![provider("tcp:storage:4421", None), provider("/lib/x.so", Some("it died"))];
        assert_eq!(Response::Providers(reports).for_everyone(), Response::Providers(shown));
        let named = |initiator: &str, isid| {
            let right = IscsiRight { initiator: initiator.to_string(), chap: true, ..IscsiRight::default() };
            let session = IscsiSession { initiator: initiator.to_string(), isid };
            let target = IscsiTarget { name: "iqn.t".to_string(), rights: vec![right], sessions: vec![session], ..IscsiTarget::default() };
            Response::Iscsi(IscsiReport { targets: vec![target], ..IscsiReport::default() })
        };
        assert_eq!(named("iqn.a", 7).for_everyone(), named(super::HIDDEN, 0));
    }

    /// If this fails, whoever may not change a device is not told what was refused.
    #[test]
    fn changes_of_devices_are_refused_in_their_own_words() {
        let refused = |change: VdevVerb| {
            let request = VdevChange { pool: "t".into(), device: "a".into(), change };
            Request::VdevChange(request).refusal().to_string()
        };
        assert!(refused(VdevVerb::Offline { temporary: false }).starts_with("cannot offline a: permission denied"));
        assert!(refused(VdevVerb::Fault { temporary: false }).starts_with("cannot offline a: permission denied"));
        assert!(refused(VdevVerb::Online { expand: false }).starts_with("cannot online a: permission denied"));
        assert!(refused(VdevVerb::Online { expand: true }).starts_with("cannot expand a: permission denied"));
        assert!(refused(VdevVerb::Detach).starts_with("cannot detach a: permission denied"));
    }

    const WAIT_MS: u64 = super::WAIT_MS_MAX;
}
