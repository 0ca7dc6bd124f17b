//! One substream: where it goes, what has to be so before, and what becomes of mounts (OpenZFS: `zfs_receive_one`).

use super::package::Part;
use super::properties::Moment;
use super::refusal::Refused;
use super::{RECEIVE, Receiving, names};
use crate::dataset::clearing::{Cleared, Purpose};
use crate::dataset::datasets::kind;
use crate::dataset::destroying::once_nobody_looks;
use crate::dataset::names::filesystem_of;
use crate::dataset::rights::{Asker, MAKE};
use crate::failure::{self, because};
use crate::mount::mounts::Directory;
use crate::pool::OpenPool;
use crate::pool::streams::Way;
use control_api::{DatasetReceive, ErrorKind, Failure, SentName};
use dmu::Objset;
use dsl::DslError;
use nvlist::NvList;
use ondisk::ObjsetType;
use receive::{ReceiveError, Receiver, Target};
use std::sync::Arc;
use stream::{Begin, Features, begin_flags};

/// Substream whose place is known.
struct Known {
    pool: Arc<OpenPool>,
    /// Words for what cannot be done.
    what: &'static str,
    /// Full name of the dataset.
    dataset: String,
    /// The part behind `@`.
    snapshot: String,
    /// True for a dataset that is not there, or not whole.
    is_new: bool,
    is_volume: bool,
    /// True for a stream that makes a dataset, or replaces one.
    makes: bool,
    /// True for one that goes on with a receive that was interrupted.
    resumes: bool,
    /// True for one that goes on with one that makes a dataset, or replaces one.
    resumes_whole: bool,
    /// True for a raw stream.
    is_raw: bool,
    /// Name of the snapshot that the dataset becomes a clone of.
    origin: Option<String>,
}

impl Known {
    fn full(&self) -> String {
        format!("{}@{}", self.dataset, self.snapshot)
    }

    fn refused(&self, error: &ReceiveError) -> Failure {
        let (dataset, full) = (self.dataset.as_str(), self.full());
        let kept = self.pool.dsl().resume_state(dataset).ok().flatten();
        // This one is among them.
        let has_other = self.pool.streams.received_into(dataset) > 1;
        Refused { what: self.what, dataset, snapshot: &full, is_new: self.is_new, has_other, kept }.by(error)
    }

    fn because(&self, kind: ErrorKind, why: String) -> Failure {
        because(kind, self.what, why)
    }
}

/// Has what owners use counted from the first object on.
fn count(objset: &Arc<Objset>) {
    if objset.kind() == ObjsetType::ZFS {
        zpl::Accounting::install(objset);
    }
}

impl Receiving<'_> {
    /// Receives the substream with this head and list; `part` is what a package says of it.
    pub(super) fn substream(&mut self, begin: &Begin, list: &NvList, part: Option<&Part>) -> Result<(), Failure> {
        let known = self.known(begin, part)?;
        let cut = self.cut.clone();
        let begins = || known.pool.streams.begin(Way::Received, known.full(), cut);
        self.under_way.get_or_insert_with(begins).now(known.full());
        if part.is_some() && is_there(&known.pool, &known.dataset, begin.toguid) {
            self.say(format!("snap {} already exists; ignoring", known.full()));
            return self.skip();
        }
        // A name means the same dataset until the one is held that is received into.
        let alone = self.asker.map(|_| known.pool.delegated());
        self.permit(&known)?;
        self.check(&known, part.is_some_and(|part| part.is_recursive))?;
        let verb = if self.request.dry_run { "would receive" } else { "receiving" };
        let kind = if begin.fromguid == 0 { "full" } else { "incremental" };
        self.say(format!("{verb} {kind} stream of {} into {}", begin.toname, known.full()));
        if self.request.dry_run {
            drop(alone);
            return self.skip();
        }
        let target = Target {
            name: known.dataset.clone(),
            snapshot: known.snapshot.clone(),
            origin: known.origin.clone(),
            force: self.request.force,
            resumable: self.request.resumable,
        };
        let begun = Receiver::begin(known.pool.dsl(), begin, list, &target, &count).map_err(|error| known.refused(&error))?;
        if known.is_new && !known.resumes {
            self.maker.take_over(known.pool.dsl(), &known.dataset);
        }
        drop(alone);
        self.go_through(&known, begin, begun, part)
    }

    /// Refuses a substream that the user may not receive there (OpenZFS: `zfs_secpolicy_recv`), or that would become a clone of what the user may
    /// not clone: it would have what is in there.
    fn permit(&self, known: &Known) -> Result<(), Failure> {
        let Some(asker) = self.asker else { return Ok(()) };
        let asker = asker.about(known.what);
        match (receivable(&asker, known, "receive", self.request), self.request.force) {
            (Err(_), false) => receivable(&asker, known, "receive:append", self.request)?,
            (result, _) => result?,
        }
        asker.check_places(&known.pool, &known.dataset)?;
        asker.check_limit(&known.pool, &known.dataset, "snapshot", &|_| 1)?;
        known.origin.as_ref().map_or(Ok(()), |origin| asker.check(origin, &["clone"]))
    }

    /// Looks where a substream goes.
    fn known(&self, begin: &Begin, part: Option<&Part>) -> Result<Known, Failure> {
        let bad_name = || because(ErrorKind::Invalid, RECEIVE, "invalid stream (bad snapshot name)");
        let sent = begin.toname.to_str().ok_or_else(bad_name)?;
        let (sent_dataset, _) = sent.split_once('@').ok_or_else(bad_name)?;
        let full = names::destination(self.request, sent, part.map_or(sent_dataset, |part| part.top.as_str()))?;
        let features = Features::of_versioninfo(begin.versioninfo);
        let resumes = features.has(Features::RESUMING);
        let is_clone = begin.flags & begin_flags::CLONE != 0;
        let is_whole = begin.fromguid == 0 || is_clone || self.request.origin.is_some();
        let makes = is_whole && !resumes;
        let what = match (resumes, makes) {
            (true, _) => "cannot receive resume stream",
            (false, true) => "cannot receive new filesystem stream",
            (false, false) => "cannot receive incremental stream",
        };
        let pool = self.datasets.pools.pool_of(filesystem_of(&full), "open")?;
        let target = &self.request.target;
        if self.request.sent_name != SentName::Below && pool.dsl().hold(target).is_err() {
            return Err(because(ErrorKind::NotFound, RECEIVE, format!("specified fs ({target}) does not exist")));
        }
        let full = if is_whole { full } else { self.moved(&pool, full, begin)? };
        let (dataset, snapshot) = full.split_once('@').ok_or_else(bad_name)?;
        let origin = match (&self.request.origin, is_clone) {
            (Some(origin), _) if pool.dsl().hold(origin).is_ok() => Some(origin.clone()),
            (Some(origin), _) => {
                let failure = because(ErrorKind::NotFound, what, format!("local origin for clone {full} does not exist"));
                return Err(failure.advise(format!("'{origin}' is no snapshot of the pool '{}'", pool.name())));
            }
            (None, true) => {
                let failed = |error: DslError| failure::dataset("receive", dataset, &error);
                let found = names::snapshot_of_guid(&pool, begin.fromguid, dataset).map_err(failed)?;
                let why = || format!("local origin for clone {full} does not exist");
                Some(found.ok_or_else(|| because(ErrorKind::NotFound, what, why()))?)
            }
            (None, false) => None,
        };
        Ok(Known {
            what,
            // What was received half becomes one with its end.
            is_new: pool.dsl().hold(dataset).map_or(true, |handle| handle.is_inconsistent()),
            is_volume: u64::from(begin.kind) == ObjsetType::ZVOL.0,
            dataset: dataset.to_string(),
            snapshot: snapshot.to_string(),
            makes,
            resumes,
            resumes_whole: is_whole && resumes,
            is_raw: features.has(Features::RAW),
            origin,
            pool,
        })
    }

    /// Full name of the snapshot that changes lead to, of the dataset that has their base where none has the name that was sent: it got another
    /// one here. A name that was given in full is meant (OpenZFS: `zfs_receive_one`, where it looks for the guid).
    fn moved(&self, pool: &OpenPool, full: String, begin: &Begin) -> Result<String, Failure> {
        let dataset = filesystem_of(&full);
        if self.request.sent_name == SentName::Below || pool.dsl().hold(dataset).is_ok() {
            return Ok(full);
        }
        let found = names::snapshot_of_guid(pool, begin.fromguid, dataset).map_err(|error| failure::dataset("receive", dataset, &error))?;
        let (_, snapshot) = full.split_once('@').unwrap_or_default();
        Ok(found.map_or_else(|| full.clone(), |base| format!("{}@{snapshot}", filesystem_of(&base))))
    }

    /// Looks whether the dataset can take it, in OpenZFS's order and words.
    fn check(&mut self, known: &Known, is_recursive: bool) -> Result<(), Failure> {
        let (pool, dataset) = (&known.pool, &known.dataset);
        self.check_properties(known.what, dataset, (kind(known.is_volume), known.is_new), (is_recursive, known.is_raw))?;
        if known.is_new {
            if !known.makes && !known.resumes || !dataset.contains('/') {
                return Err(known.because(ErrorKind::NotFound, format!("destination '{dataset}' does not exist")));
            }
            names::make_parents((self.datasets, self.maker), pool, self.request, dataset)?;
            let parent = dataset.rsplit_once('/').map_or("", |(parent, _)| parent);
            return match pool.dsl().hold(parent) {
                Ok(_) => Ok(()),
                Err(_) if self.request.dry_run => Ok(()),
                Err(error) => Err(failure::dataset("open", parent, &error)),
            };
        }
        if known.resumes_whole && !self.request.force {
            let why = format!("Resuming recv on existing destination '{dataset}'\nmust specify -F to overwrite it");
            return Err(known.because(ErrorKind::Exists, why));
        }
        let is_partial = pool.dsl().resume_state(dataset).is_ok_and(|state| state.is_some());
        if known.makes && !is_partial {
            if !self.request.force {
                return Err(known.because(ErrorKind::Exists, format!("destination '{dataset}' exists\nmust specify -F to overwrite it")));
            }
            let snapshots = pool.dsl().snapshots(dataset).map_err(|error| known.refused(&error.into()))?;
            if let Some(first) = snapshots.first() {
                let why = format!("destination has snapshots (eg. {dataset}@{})\nmust destroy them to overwrite it", first.name);
                return Err(known.because(ErrorKind::Exists, why));
            }
            if known.is_volume && !dataset.contains('/') {
                let why = format!("destination {dataset} is the root dataset\ncannot overwrite with a ZVOL");
                return Err(known.because(ErrorKind::Exists, why));
            }
        }
        Ok(())
    }

    /// Applies the records, and has what came take its place while nobody uses what it replaces.
    fn go_through(&mut self, known: &Known, begin: &Begin, mut receiver: Receiver, part: Option<&Part>) -> Result<(), Failure> {
        let sent = part.and_then(|part| part.properties(begin.toguid));
        let is_top = part.is_none_or(|part| part.is_top(begin));
        let moment = if part.is_none_or(|part| part.is_last(begin)) { Moment::Last } else { Moment::Between };
        if known.is_new
            && let Err(failure) = self.give_properties(receiver.handle(), (sent.as_ref(), is_top), Moment::Before)
        {
            receiver.abandon();
            return Err(failure);
        }
        let begun = (known.pool.pool().exec().now_ns(), self.reader.offset());
        if let Err(error) = receiver.apply_rest(&mut self.reader) {
            receiver.abandon();
            return Err(known.refused(&error));
        }
        if known.is_new {
            receiver.end().map_err(|error| known.refused(&error))?;
            if self.is_limited(sent.as_ref(), is_top) {
                let handle = known.pool.dsl().hold(&known.dataset).map_err(|error| known.refused(&error.into()))?;
                self.give_properties(&handle, (sent.as_ref(), is_top), moment)?;
            }
            let (pool, name) = (known.pool.clone(), known.dataset.clone());
            // What came raw waits for its key.
            let is_locked = pool.dsl().hold(&name).is_ok_and(|handle| handle.is_locked().unwrap_or(true));
            if !known.is_volume && !is_locked && !self.made.iter().any(|(_, made)| *made == name) {
                self.made.push((pool, name));
            }
        } else {
            self.replace(known, begin, receiver)?;
            let handle = known.pool.dsl().hold(&known.dataset).map_err(|error| known.refused(&error.into()))?;
            self.give_properties(&handle, (sent.as_ref(), is_top), moment)?;
        }
        self.give_snapshot_properties(known, begin, part)?;
        self.give_holds(known, begin, part);
        let seconds = known.pool.pool().exec().now_ns().saturating_sub(begun.0) as f64 / 1e9;
        let bytes = self.reader.offset().saturating_sub(begun.1);
        let rate = bytes as f64 / seconds.max(0.001);
        self.say(format!("received {}B stream in {seconds:.2} seconds ({}B/sec)", nice(bytes as f64), nice(rate)));
        Ok(())
    }

    fn give_snapshot_properties(&mut self, known: &Known, begin: &Begin, part: Option<&Part>) -> Result<(), Failure> {
        let Some(list) = part.and_then(|part| part.snapshot_properties(begin.toguid)) else { return Ok(()) };
        let handle = known.pool.dsl().hold(&known.full()).map_err(|error| known.refused(&error.into()))?;
        self.give_properties(&handle, (Some(&list), false), Moment::Last)
    }

    /// Holds the snapshot as it is held where it was sent. One that cannot be, or that the user may not take (OpenZFS: `zfs_secpolicy_hold`), keeps
    /// nobody from anything (as in OpenZFS).
    fn give_holds(&mut self, known: &Known, begin: &Begin, part: Option<&Part>) {
        let Some(part) = part.filter(|_| !self.request.no_holds) else { return };
        for tag in part.holds(begin.toguid) {
            let _alone = self.asker.map(|_| known.pool.delegated());
            if self.asker.is_some_and(|asker| !asker.has(&known.dataset, "hold")) {
                self.warn(format!("cannot hold snapshot '{}': permission denied", known.full()));
                return;
            }
            if let Err(error) = known.pool.dsl().hold_snapshots(&[known.full()], &tag) {
                tracing::warn!("snapshot {} is not held as '{tag}': {error}", known.full());
            }
        }
    }

    /// Has what came replace the contents of a dataset that is there. What is mounted of it leaves for that, and comes back.
    fn replace(&self, known: &Known, begin: &Begin, receiver: Receiver) -> Result<(), Failure> {
        let (pool, through) = (&known.pool, receiver.through());
        let newer = newer_snapshots(pool, &known.dataset, begin.fromguid);
        let purpose = Purpose {
            what: known.what.to_string(),
            verb: "received",
            directory: Directory::Keep,
            doomed: newer.clone(),
            force: self.request.force_unmount,
            volumes: known.is_volume,
        };
        // The stream took its time: it may be mounted by now where others than root can change the path.
        let permitted = self.permit(known);
        let close = || if self.request.force { pool.mounts.close_snapshots(&newer, "receive") } else { Ok(()) };
        let cleared = permitted
            .and_then(|()| close())
            .and_then(|()| Cleared::clear(self.datasets, pool, std::slice::from_ref(&known.dataset), &purpose));
        let cleared = match cleared {
            Ok(cleared) => cleared,
            Err(failure) => {
                through.give_up();
                return Err(failure);
            }
        };
        let ended = once_nobody_looks(pool.pool().exec(), || through.end());
        // Users unmount nothing.
        let stays_away = self.request.no_mount && self.asker.is_none();
        let failures = if stays_away { Vec::new() } else { cleared.bring_back(&self.datasets.mounter) };
        if let Err(error) = ended {
            through.give_up();
            return Err(known.refused(&error.into()));
        }
        failure::joined(failures)
    }
}

/// Refuses to receive without this permission, and those to make and mount: on the dataset, or where there is none on what it is made in.
fn receivable(asker: &Asker<'_>, known: &Known, permission: &str, request: &DatasetReceive) -> Result<(), Failure> {
    let needed = [permission, MAKE[0], MAKE[1]];
    if !matches!(known.pool.dsl().hold(&known.dataset), Err(DslError::NotFound)) {
        return asker.check(&known.dataset, &needed);
    }
    let above = asker.check_made(&known.dataset, names::are_made(&known.pool, request), &needed)?;
    asker.check_room(&known.dataset, &above)
}

/// True when a dataset has a snapshot with this guid.
fn is_there(pool: &OpenPool, dataset: &str, guid: u64) -> bool {
    let snapshots = pool.dsl().snapshots(dataset).unwrap_or_default();
    snapshots.iter().any(|snapshot| pool.dsl().hold_object(snapshot.object).is_ok_and(|handle| handle.guid() == guid))
}

/// Full names of the snapshots that came after the one with this guid.
fn newer_snapshots(pool: &OpenPool, dataset: &str, guid: u64) -> Vec<String> {
    let snapshots = pool.dsl().snapshots(dataset).unwrap_or_default();
    let is_source = |object: u64| pool.dsl().hold_object(object).is_ok_and(|handle| handle.guid() == guid);
    let after = snapshots.iter().position(|snapshot| is_source(snapshot.object)).map_or(snapshots.len(), |at| at + 1);
    snapshots[after..].iter().map(|snapshot| format!("{dataset}@{}", snapshot.name)).collect()
}

/// Number of bytes as OpenZFS's commands have it: three digits and a letter.
fn nice(bytes: f64) -> String {
    let (mut value, mut letters) = (bytes, ["", "K", "M", "G", "T", "P"].iter());
    let mut letter = letters.next().copied().unwrap_or_default();
    while value >= 1024.0
        && let Some(next) = letters.next()
    {
        value /= 1024.0;
        letter = next;
    }
    match (letter, value) {
        ("", value) => format!("{value:.0}"),
        (letter, value) if value < 10.0 => format!("{value:.2}{letter}"),
        (letter, value) if value < 100.0 => format!("{value:.1}{letter}"),
        (letter, value) => format!("{value:.0}{letter}"),
    }
}

#[cfg(test)]
mod tests {
    use super::nice;

    /// Scripts and people read how much came.
    #[test]
    fn bytes_are_told_as_openzfs_tells_them() {
        let told: Vec<String> = [312.0, 1536.0, 46_080.0, 524_288_000.0].into_iter().map(nice).collect();
        assert_eq!(told, ["312", "1.50K", "45.0K", "500M"]);
    }
}
