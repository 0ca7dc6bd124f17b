//! `zfs send`: which snapshots a request comes to, how large that is, and their streams, one after the other.

use crate::dataset::names::{descendants, filesystem_of};
use crate::dataset::package;
use crate::dataset::passing::Passing;
use crate::dataset::redacting;
use crate::failure::{self, because};
use crate::pool::streams::{Cut, UnderWay, Way};
use crate::pool::{OpenPool, Pools};
use control_api::{ErrorKind, Failure, Response, SendNote, SendPlan, SendRequest, SendStep};
use dsl::{BookmarkEntry, DatasetHandle, DslError};
use nvlist::NvList;
use send::{Base, Identity, SendError, SendOptions, Sending};
use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use stream::{Begin, Writer, token};

/// Way out for a stream. Both fail when nobody takes it any more.
pub trait Outlet {
    /// Hands on bytes of the stream.
    ///
    /// # Errors
    /// Those of whoever takes them.
    fn data(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// Hands on a message, behind the bytes so far.
    ///
    /// # Errors
    /// Those of whoever takes it.
    fn note(&mut self, note: &SendNote) -> io::Result<()>;
}

/// Outlet as a sink of bytes.
struct Data<'a>(&'a mut dyn Outlet);

impl io::Write for Data<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.data(bytes).map(|()| bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// End of the name of a snapshot that is received from a dataset as it was.
const HEAD: &str = "@--head--";

/// One stream of a request: its snapshot and its base are held.
struct Leg {
    /// Full name of what is sent.
    name: String,
    to: DatasetHandle,
    from: Option<Base>,
    /// Base as messages name it.
    shown: Option<String>,
    /// Names of the stream, where they are not those of what is held.
    identity: Option<Identity>,
    /// Full name of the bookmark by which the stream is redacted.
    redact: Option<String>,
}

impl Leg {
    /// The stream of a snapshot.
    fn new(to: DatasetHandle, from: Option<Base>, shown: Option<String>) -> Leg {
        Leg { name: to.name(), to, from, shown, identity: None, redact: None }
    }

    fn sending(self, options: &SendOptions) -> Result<Sending, SendError> {
        let mut sending = Sending::new(self.to, self.from, options.clone())?;
        if let Some(bookmark) = &self.redact {
            sending = sending.redacted(bookmark)?;
        }
        Ok(match self.identity {
            Some(identity) => sending.known_as(identity),
            None => sending,
        })
    }
}

/// Refusal to send a dataset or snapshot, by its name: before a snapshot is taken for that, or much is held.
pub(crate) type Refusal<'a> = &'a dyn Fn(&str) -> Result<(), Failure>;

/// Streams that a request comes to. What they are of is not destroyed while this lives.
pub struct Outgoing {
    legs: Vec<Leg>,
    options: SendOptions,
    package: Option<(Begin, NvList)>,
    warnings: Vec<String>,
    /// Contents of the token that was given, and the bytes that are there already.
    resumed: Option<(String, u64)>,
    /// Snapshot that was taken to send a dataset as it is now.
    _passing: Option<Passing>,
    under_way: Option<UnderWay>,
    /// Last, so that it is there as long as what is held in it.
    pool: Arc<OpenPool>,
}

/// Does `zfs send -n`.
pub(crate) fn plan(pools: &Pools, request: &SendRequest) -> Result<Response, Failure> {
    let outgoing = prepare(pools, request, &|_| Ok(()))?;
    let (text, there) = outgoing.resumed.clone().unwrap_or_default();
    let mut plan = SendPlan { steps: Vec::new(), warnings: outgoing.warnings.clone(), token: text };
    for leg in outgoing.legs {
        let (name, shown) = (leg.name.clone(), leg.shown.clone());
        let sending = leg.sending(&outgoing.options);
        let bytes = sending.and_then(|sending| sending.estimate()).map_err(|error| failed(&name, &error))?;
        plan.steps.push(SendStep { from: shown, to: name, bytes: bytes.saturating_sub(there) });
    }
    Ok(Response::SendPlan(plan))
}

impl Outgoing {
    /// Full names of the snapshots that are sent.
    pub(super) fn names(&self) -> impl Iterator<Item = String> {
        self.legs.iter().map(|leg| leg.to.name())
    }

    /// Notes that the streams are being sent from now on; `cut` ends that.
    pub(crate) fn begin(&mut self, cut: Cut) {
        let name = self.legs.first().map(|leg| leg.name.clone()).unwrap_or_default();
        self.under_way = Some(self.pool.streams.begin(Way::Sent, name, cut));
    }

    /// Writes the streams, as fast as they are taken. The last message says how that ended; nothing is said to whoever went away.
    pub fn run(self, outlet: &mut dyn Outlet) {
        let note = match self.write(&mut Writer::new(Data(outlet))) {
            Ok(()) => SendNote::Ended,
            Err(None) => return,
            Err(Some(failure)) => SendNote::Failed(failure),
        };
        // Whoever went away wants no message either.
        let _ = outlet.note(&note);
    }

    /// Writes the streams; the failure is None when nobody takes them any more.
    fn write(self, writer: &mut Writer<Data<'_>>) -> Result<(), Option<Failure>> {
        let gone = |_: io::Error| -> Option<Failure> { None };
        for text in &self.warnings {
            writer.sink().0.note(&SendNote::Warning { text: text.clone() }).map_err(gone)?;
        }
        let is_package = self.package.is_some();
        if let Some((begin, list)) = self.package {
            writer.begin(begin, Some(&list)).and_then(|()| writer.end_list()).map_err(gone)?;
        }
        for leg in self.legs {
            let name = leg.name.clone();
            self.under_way.iter().for_each(|under_way| under_way.now(name.clone()));
            writer.sink().0.note(&SendNote::Begins { name: name.clone() }).map_err(gone)?;
            let sent = leg.sending(&self.options).and_then(|sending| sending.run(writer));
            sent.map_err(|error| if matches!(error, SendError::Sink(_)) { None } else { Some(failed(&name, &error)) })?;
        }
        if is_package { writer.end_package().map_err(gone) } else { Ok(()) }
    }
}

/// Failure of sending a snapshot, in OpenZFS's words.
fn failed(name: &str, error: &SendError) -> Failure {
    let kind = match error {
        SendError::Source(_) | SendError::Sink(_) => ErrorKind::Io,
        SendError::NotEarlier
        | SendError::NameTooLong
        | SendError::OldKeys
        | SendError::Redacted
        | SendError::NoRedactionList
        | SendError::UnfinishedList
        | SendError::RawRedacted => ErrorKind::Invalid,
        SendError::LargeMicrozap => ErrorKind::Unsupported,
    };
    because(kind, format!("warning: cannot send '{name}'"), error)
}

/// Makes ready what a request comes to: everything is held from now on.
pub(crate) fn prepare(pools: &Pools, request: &SendRequest, refusal: Refusal<'_>) -> Result<Outgoing, Failure> {
    let options = SendOptions {
        large_blocks: request.large_blocks,
        embedded: request.embedded,
        compressed: request.compressed,
        raw: request.raw,
        skips_unborn: send::skips_unborn(),
        resume: None,
    };
    check_redactable(request)?;
    if let Some(text) = &request.token {
        return resumed(pools, text, options, refusal);
    }
    let name = &request.name;
    let pool = pools.pool_of(name, "open")?;
    if request.saved {
        return saved(pool, request, &options);
    }
    let Some((filesystem, snapshot)) = name.split_once('@') else { return as_it_is(pool, request, options, refusal) };
    // Before everything that it comes to is held, and cannot be destroyed.
    drop(hold(&pool, name)?);
    refusal(name)?;
    let mut warnings = Vec::new();
    let wants_package = request.replicate || request.all || request.props || request.backup || request.holds;
    let (legs, package) = if request.replicate || request.all {
        let names = package::members(&pool, (filesystem, snapshot), request, &mut warnings)?;
        // What a clone was made of is a base that its own snapshots need not name.
        let origin = hold(&pool, filesystem)?.origin().map_err(|error| failure::dataset("open", filesystem, &error))?;
        let is_from_origin = request.from.is_some() && request.from == origin;
        let from = request.from.as_deref().filter(|_| !is_from_origin).map(|from| from.rsplit('@').next().unwrap_or(from));
        let legs = several(&pool, &names, (from, snapshot), request)?;
        (legs, Some(package::head(&pool, &names, (from, snapshot), request)?))
    } else {
        let to = hold(&pool, name)?;
        let from = request.from.as_deref().map(|from| base(&pool, &to, from)).transpose()?;
        request.redact.as_deref().map_or(Ok(()), |bookmark| redactable(&pool, name, bookmark))?;
        let leg = Leg { redact: request.redact.clone(), ..Leg::new(to, from, request.from.clone()) };
        let names = [filesystem.to_string()];
        let package = wants_package.then(|| package::head(&pool, &names, (None, snapshot), request)).transpose()?;
        (vec![leg], package)
    };
    check_encrypted(&legs, request)?;
    Ok(Outgoing { legs, options, package, warnings, resumed: None, _passing: None, under_way: None, pool })
}

/// Stream of a file system or volume as it is now.
fn as_it_is(pool: Arc<OpenPool>, request: &SendRequest, options: SendOptions, refusal: Refusal<'_>) -> Result<Outgoing, Failure> {
    let (passing, to, identity) = head_of(&pool, &request.name, refusal)?;
    let from = request.from.as_deref().map(|from| base(&pool, &to, from)).transpose()?;
    let leg = Leg { name: request.name.clone(), to, from, shown: request.from.clone(), identity: Some(identity), redact: None };
    check_encrypted(std::slice::from_ref(&leg), request)?;
    Ok(Outgoing { legs: vec![leg], options, package: None, warnings: Vec::new(), resumed: None, _passing: passing, under_way: None, pool })
}

/// A dataset as it is now, behind the snapshot that was taken for that where it can change. What is mounted is refused, as OpenZFS does
/// (`dmu_send`).
fn head_of(pool: &Arc<OpenPool>, name: &str, refusal: Refusal<'_>) -> Result<(Option<Passing>, DatasetHandle, Identity), Failure> {
    let head = hold(pool, name)?;
    refusal(name)?;
    let is_written = !pool.is_read_only();
    if is_written && pool.mounts.mounted(name).is_some() {
        let why = "target is busy; if a filesystem, it must not be mounted";
        return Err(because(ErrorKind::Busy, format!("warning: cannot send '{name}'"), why).advise("unmount it, or send a snapshot of it"));
    }
    let identity = Identity { name: format!("{name}{HEAD}"), guid: head.guid(), is_whole: true };
    if !is_written {
        return Ok((None, head, identity));
    }
    let passing = Passing::take(pool, name, "zfs-send")?;
    let to = hold(pool, passing.name())?;
    Ok((Some(passing), to, identity))
}

/// Stream of what came of an interrupted receive (OpenZFS: `zfs_send_saved`). It has no END: whoever receives it can ask for the rest.
fn saved(pool: Arc<OpenPool>, request: &SendRequest, options: &SendOptions) -> Result<Outgoing, Failure> {
    let name = request.name.as_str();
    let failed = |error: DslError| failure::dataset("open", name, &error);
    let head = hold(&pool, name)?;
    let partial = pool.dsl().partial_receive(name).map_err(failed)?;
    let (Some(to), Some(state)) = (partial, pool.dsl().resume_state(name).map_err(failed)?) else {
        let why = format!("'{name}' does not have any resumable receive state");
        return Err(because(ErrorKind::NotFound, "saved send failed", why));
    };
    let origin = to.origin().map_err(failed)?.filter(|_| state.from_guid != 0);
    let from = origin.as_deref().map(|origin| base(&pool, &head, origin)).transpose()?;
    let options = SendOptions {
        large_blocks: options.large_blocks || state.large_blocks,
        embedded: options.embedded || state.embedded,
        compressed: options.compressed || state.compressed,
        ..options.clone()
    };
    let identity = Identity { name: state.to_name, guid: state.to_guid, is_whole: false };
    let leg = Leg { name: name.to_string(), to, from, shown: origin, identity: Some(identity), redact: None };
    check_encrypted(std::slice::from_ref(&leg), request)?;
    Ok(Outgoing { legs: vec![leg], options, package: None, warnings: Vec::new(), resumed: None, _passing: None, under_way: None, pool })
}

/// Refuses what is encrypted and locked, or would be sent otherwise than it was asked for, before anything of a package is sent.
fn check_encrypted(legs: &[Leg], request: &SendRequest) -> Result<(), Failure> {
    for Leg { to, .. } in legs.iter().filter(|leg| leg.to.is_encrypted().unwrap_or(true)) {
        let name = to.name();
        if request.raw {
            continue;
        }
        // Its properties would make it one that is not encrypted (OpenZFS: `send_iterate_fs`).
        if request.replicate || request.props || request.backup {
            let what = format!("cannot send {name}");
            let why = format!("encrypted dataset {} may not be sent with properties without the raw flag", filesystem_of(&name));
            return Err(because(ErrorKind::Invalid, what, why));
        }
        if to.is_locked().unwrap_or(true) {
            return Err(because(ErrorKind::Permission, format!("warning: cannot send '{name}'"), "dataset key must be loaded"));
        }
    }
    Ok(())
}

/// Refuses to redact what is not one stream of a snapshot.
fn check_redactable(request: &SendRequest) -> Result<(), Failure> {
    let why = match (&request.redact, request.replicate || request.all, request.name.contains('@')) {
        (Some(_), true, _) => "multiple snapshots cannot be sent redacted",
        (Some(_), false, false) => "cannot do a redacted send to a filesystem",
        _ => return Ok(()),
    };
    Err(because(ErrorKind::Invalid, format!("warning: cannot send '{}'", request.name), why))
}

/// A look that a stream of a snapshot can be redacted by a bookmark (full name).
fn redactable(pool: &OpenPool, name: &str, bookmark: &str) -> Result<(), Failure> {
    redacting::check_list(pool, bookmark).map_err(|error| match error {
        SendError::Source(error) => failure::dataset("open", bookmark, &error),
        error => failed(name, &error),
    })
}

fn hold(pool: &OpenPool, name: &str) -> Result<DatasetHandle, Failure> {
    pool.dsl().hold(name).map_err(|error| failure::dataset("open", name, &error))
}

/// Base of a stream of `to` by its full name.
fn base(pool: &OpenPool, to: &DatasetHandle, from: &str) -> Result<Base, Failure> {
    let made = match from.split_once('#') {
        Some((dataset, name)) => {
            let missing = || {
                let why = format!("incremental source ({from}) does not exist");
                because(ErrorKind::NotFound, format!("warning: cannot send '{}'", to.name()), why)
            };
            let known = pool.dsl().bookmarks(dataset).map_err(|_| missing())?;
            let bookmark = known.into_iter().find(|bookmark| bookmark.name == name).ok_or_else(missing)?;
            Base::bookmark(to, dataset, &bookmark)
        }
        None => Base::snapshot(to, hold(pool, from)?),
    };
    made.map_err(|error| failed(&to.name(), &error))
}

/// Legs of a package: of each dataset the snapshots behind `from` up to `to`, and before clones what they are of.
fn several(pool: &OpenPool, names: &[String], (from, to): (Option<&str>, &str), request: &SendRequest) -> Result<Vec<Leg>, Failure> {
    let mut legs = Vec::new();
    let starts_at_origin = request.replicate || from.is_none();
    for name in package::in_order(pool, names)? {
        let known = snapshots_of(pool, &name)?;
        let last = known.iter().position(|snapshot| snapshot == to);
        let first = from.and_then(|from| known.iter().position(|snapshot| snapshot == from));
        let Some(last) = last else { continue };
        if let Some(from) = from
            && first.is_none_or(|first| first >= last)
        {
            let why = if first.is_some() { "is not earlier than it" } else { "does not exist" };
            if !request.replicate || first.is_some() {
                let text = format!("WARNING: could not send {name}@{to}:\nincremental source ({name}@{from}) {why}");
                return Err(because(ErrorKind::NotFound, text, ""));
            }
        }
        let start = first.map_or(0, |first| first + 1);
        let is_wanted = |index: usize| index == last || request.all || from.is_none() || is_origin(pool, &name, &known[index]);
        let mut before = first.map(|first| known[first].clone());
        for index in (start..=last).filter(|index| is_wanted(*index)) {
            legs.push(leg(pool, &name, before.as_deref(), &known[index], starts_at_origin)?);
            before = Some(known[index].clone());
        }
    }
    Ok(legs)
}

/// One leg of a package; the first of a clone starts from what it was made of.
fn leg(pool: &OpenPool, name: &str, before: Option<&str>, snapshot: &str, starts_at_origin: bool) -> Result<Leg, Failure> {
    let to = hold(pool, &format!("{name}@{snapshot}"))?;
    let own = before.map(|before| format!("{name}@{before}"));
    let origin = || hold(pool, name)?.origin().map_err(|error| failure::dataset("open", name, &error));
    let from = match own {
        Some(own) => Some(own),
        None if starts_at_origin => origin()?,
        None => None,
    };
    let from = from.map(|from| base(pool, &to, &from)).transpose()?;
    Ok(Leg::new(to, from, before.map(String::from)))
}

/// True when there are clones of the snapshot.
fn is_origin(pool: &OpenPool, name: &str, snapshot: &str) -> bool {
    pool.dsl().hold(&format!("{name}@{snapshot}")).and_then(|handle| handle.clones()).is_ok_and(|clones| !clones.is_empty())
}

/// Parts behind `@` of a dataset's snapshots, oldest first.
pub(super) fn snapshots_of(pool: &OpenPool, name: &str) -> Result<Vec<String>, Failure> {
    let known = pool.dsl().snapshots(name).map_err(|error| failure::dataset("list snapshots of", name, &error))?;
    Ok(known.into_iter().map(|snapshot| snapshot.name).collect())
}

/// Stream that goes on where the other end says that it broke off (OpenZFS: `zfs_send_resume`).
fn resumed(pools: &Pools, text: &str, options: SendOptions, refusal: Refusal<'_>) -> Result<Outgoing, Failure> {
    let cannot = |why: String| because(ErrorKind::Invalid, "cannot resume send", why);
    let list = token::decode(text).map_err(|error| cannot(error.to_string()))?;
    let number = |name: &str| list.get_u64(name).ok_or_else(|| cannot("resume token is corrupt".to_string()));
    let name = list.get_str("toname").ok_or_else(|| cannot("resume token is corrupt".to_string()))?;
    let (object, offset, bytes, guid) = (number("object")?, number("offset")?, number("bytes")?, number("toguid")?);
    let gone = || cannot(format!("'{name}' used in the initial send no longer exists"));
    let pool = pools.pool_of(name, "open").map_err(|_| gone())?;
    let (passing, to, identity) = match name.strip_suffix(HEAD) {
        Some(dataset) => head_of(&pool, dataset, refusal).map(|(passing, to, identity)| (passing, to, Some(identity)))?,
        None => (None, pool.dsl().hold(name).map_err(|_| gone())?, None),
    };
    if identity.as_ref().map_or_else(|| to.guid(), |identity| identity.guid) != guid {
        return Err(cannot(format!("'{name}' is no longer the same snapshot used in the initial send")));
    }
    let from = match list.get_u64("fromguid") {
        None | Some(0) => None,
        Some(guid) => {
            let found = named(&pool, name, (guid, list.get_u64_array("book_redact_snaps")))
                .map_err(|error| failure::dataset("open", name, &error))?;
            Some(found.ok_or_else(|| cannot(format!("incremental source {guid:#x} no longer exists")))?)
        }
    };
    let made = from.as_deref().map(|from| base(&pool, &to, from)).transpose()?;
    let redact = match list.get_u64_array("redact_snaps") {
        None => None,
        // It lacks that by itself.
        Some(guids) if redacting::is_by(&to, guids) => None,
        Some(guids) => Some(redacting::named_by(&pool, filesystem_of(name), guids, to.guid()).map_err(|why| cannot(why.to_string()))?),
    };
    let options = SendOptions {
        large_blocks: options.large_blocks || list.contains("largeblockok"),
        embedded: options.embedded || list.contains("embedok"),
        compressed: options.compressed || list.contains("compressok"),
        raw: options.raw || list.contains("rawok"),
        resume: Some((object, offset)),
        ..options
    };
    let legs = vec![Leg { name: name.to_string(), identity, redact, ..Leg::new(to, made, from) }];
    let resumed = Some((list.listing(), bytes));
    Ok(Outgoing { legs, options, package: None, warnings: Vec::new(), resumed, _passing: passing, under_way: None, pool })
}

/// Full name of the snapshot or bookmark with this guid that is of the same dataset, or of what that was cloned from; where it was redacted, of one
/// that was by these snapshots (libzfs: `guid_to_name_redact_snaps`).
fn named(pool: &OpenPool, snapshot: &str, (guid, redacted): (u64, Option<&[u64]>)) -> Result<Option<String>, DslError> {
    let is_meant = |bookmark: &BookmarkEntry| {
        let list = bookmark.redaction.as_ref();
        bookmark.guid == guid && redacted.is_none_or(|guids| list.is_some_and(|list| dsl::same_snapshots(&list.snapshots, guids)))
    };
    let (mut dataset, mut seen) = (filesystem_of(snapshot).to_string(), BTreeSet::new());
    while seen.insert(dataset.clone()) {
        for entry in pool.dsl().snapshots(&dataset)? {
            let name = format!("{dataset}@{}", entry.name);
            let is_it = |handle: DatasetHandle| handle.guid() == guid && redacted.is_none_or(|guids| redacting::is_by(&handle, guids));
            if pool.dsl().hold(&name).is_ok_and(is_it) {
                return Ok(Some(name));
            }
        }
        if let Some(bookmark) = pool.dsl().bookmarks(&dataset)?.into_iter().find(is_meant) {
            return Ok(Some(format!("{dataset}#{}", bookmark.name)));
        }
        match pool.dsl().hold(&dataset)?.origin()? {
            Some(origin) => dataset = filesystem_of(&origin).to_string(),
            None => return Ok(None),
        }
    }
    Ok(None)
}

/// Names of a dataset and all below it.
pub(super) fn below(pool: &OpenPool, name: &str, recursive: bool) -> Result<Vec<String>, Failure> {
    if recursive { descendants(pool, name) } else { Ok(vec![name.to_string()]) }
}
