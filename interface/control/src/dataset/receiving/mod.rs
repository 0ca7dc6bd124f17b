//! `zfs receive`: streams, single ones and packages, from the descriptor that came with the request (OpenZFS: `zfs_receive`).

mod heal;
mod names;
mod package;
mod properties;
mod refusal;
mod substream;

use crate::attached::Attached;
use crate::dataset::datasets::{Datasets, wants_mount};
use crate::dataset::maker::Maker;
use crate::dataset::names::{descendants, filesystem_of};
use crate::dataset::rights::{Asker, DESTROY};
use crate::failure::{self, because};
use crate::mount::wish::Wish;
use crate::pool::OpenPool;
use crate::pool::streams::{Cut, UnderWay};
use control_api::{DatasetReceive, ErrorKind, Failure, Remark, Response, SentName};
use dsl::DslError;
use exec::Mutex;
use std::sync::Arc;
use stream::{HeaderType, Reader, Record, begin_list};

/// Words for a receive as long as nobody knows more of it.
const RECEIVE: &str = "cannot receive";
/// Lines that a user is told of one receive, at most: the stream says how many there are.
const REMARKS_MAX: usize = 10_000;
/// Permissions of which whoever receives something has one.
const TO_RECEIVE: [&str; 2] = ["receive", "receive:append"];

/// One run of `zfs receive`.
struct Receiving<'a> {
    datasets: &'a Datasets,
    request: &'a DatasetReceive,
    reader: Reader<Attached>,
    payload: Vec<u8>,
    remarks: Vec<Remark>,
    /// New file systems, which are mounted at the end.
    made: Vec<(Arc<OpenPool>, String)>,
    /// User that it is done for, where that is not the daemon's owner.
    asker: Option<&'a Asker<'a>>,
    maker: Maker,
    /// Ends it.
    cut: Cut,
    /// Note of it in the pool, once that is known.
    under_way: Option<UnderWay>,
}

impl Receiving<'_> {
    fn say(&mut self, text: String) {
        if self.request.verbose {
            self.remark(Remark::Output(text));
        }
    }

    fn warn(&mut self, text: String) {
        self.remark(Remark::Warning(text));
    }

    fn remark(&mut self, remark: Remark) {
        if self.asker.is_none() || self.remarks.len() < REMARKS_MAX {
            self.remarks.push(remark);
        }
    }

    /// Receives all that comes.
    fn all(&mut self) -> Result<(), Failure> {
        let Some(record) = self.next_record()? else {
            return Err(because(ErrorKind::Io, RECEIVE, "failed to read from stream"));
        };
        let Record::Begin(begin) = record else {
            return Err(because(ErrorKind::Invalid, RECEIVE, "invalid stream (bad magic number)"));
        };
        let list = begin_list(&self.payload).map_err(|_| because(ErrorKind::Invalid, RECEIVE, "invalid stream (bad nvlist)"))?;
        let is_package = HeaderType::of_versioninfo(begin.versioninfo) == Some(HeaderType::Compound);
        match (is_package, self.request.heal) {
            (true, true) => Err(heal::refuse_package()),
            (true, false) => self.package(&begin, &list),
            (false, true) => heal::heal(self, &begin),
            (false, false) => self.substream(&begin, &list, None),
        }
    }

    /// The next record, with its payload in place.
    fn next_record(&mut self) -> Result<Option<Record>, Failure> {
        self.reader.read_record(&mut self.payload).map_err(|error| refusal::unreadable(RECEIVE, &error))
    }

    /// Passes over the rest of a substream.
    fn skip(&mut self) -> Result<(), Failure> {
        loop {
            match self.next_record()? {
                Some(Record::End(_)) => return Ok(()),
                Some(_) => {}
                None => return Err(because(ErrorKind::Io, RECEIVE, "failed to read from stream")),
            }
        }
    }

    /// Mounts what is new.
    fn mount_made(&mut self) -> Vec<Failure> {
        let made = std::mem::take(&mut self.made);
        if self.request.no_mount || made.is_empty() {
            return Vec::new();
        }
        if !self.maker.may_mount {
            let unable = |name: &str| because(ErrorKind::NotMounted, format!("cannot mount '{name}'"), "Insufficient privileges");
            return made.iter().filter(|(pool, name)| wants_mount(pool, name)).map(|(_, name)| unable(name)).collect();
        }
        let mounter = &self.datasets.mounter;
        mounter.mount_wishes(&mounter.turn(), made.iter().map(|(pool, name)| Wish::by_itself(pool, name)).collect())
    }
}

/// Receives the streams that come from a command, or gives up what an interrupted one left; for a user as far as that was delegated.
pub(crate) fn receive(
    datasets: &Datasets,
    request: &DatasetReceive,
    input: Option<&Attached>,
    asker: Option<&Asker<'_>>,
) -> Result<Response, Failure> {
    if request.abort {
        return abort(datasets, request, asker);
    }
    // Users cut nobody off.
    let request = &DatasetReceive { force_unmount: request.force_unmount && asker.is_none(), ..request.clone() };
    let maker = Maker::of(asker.map(|asker| asker.user));
    let input = input.ok_or_else(|| because(ErrorKind::Invalid, RECEIVE, "no stream came with the request"))?;
    asker.map_or(Ok(()), |asker| check_any(asker, request))?;
    let (input, lasts) = input.endable().map_err(|error| because(ErrorKind::Io, RECEIVE, error))?;
    let lasts = Mutex::new(Some(lasts));
    let cut: Cut = Arc::new(move || drop(lasts.lock().take()));
    let (reader, remarks, made) = (Reader::new(input), Vec::new(), Vec::new());
    let mut run = Receiving { datasets, request, reader, payload: Vec::new(), remarks, made, asker, maker, cut, under_way: None };
    let received = run.all();
    let failures = run.mount_made();
    received?;
    failure::joined(failures)?;
    Ok(Response::Done { remarks: run.remarks })
}

/// Refuses a user who may receive nothing where a request receives: for strangers no stream is read, or waited for.
fn check_any(asker: &Asker<'_>, request: &DatasetReceive) -> Result<(), Failure> {
    let target = filesystem_of(&request.target);
    let pool = asker.pools.pool_of(target, "open")?;
    let mut above = std::iter::successors(Some(target), |name| name.rsplit_once('/').map(|(above, _)| above));
    let there = above.find(|name| pool.dsl().hold(name).is_ok()).ok_or_else(|| asker.denied())?;
    let may = |name: &str| TO_RECEIVE.iter().any(|permission| asker.has(name, permission) || asker.check_in(name, &[*permission]).is_ok());
    // What got another name here is found by its guid, wherever it lies.
    let top = if request.sent_name == SentName::Below { there } else { there.split('/').next().unwrap_or(there) };
    if may(there) || descendants(&pool, top)?.iter().any(|name| may(name)) {
        return Ok(());
    }
    asker.check(there, &TO_RECEIVE)
}

/// Destroys what an interrupted receive left (`zfs receive -A`).
fn abort(datasets: &Datasets, request: &DatasetReceive, asker: Option<&Asker<'_>>) -> Result<Response, Failure> {
    let name = &request.target;
    let pool = datasets.pools.pool_of(name, "open")?;
    let _alone = asker.map(|_| pool.delegated());
    if let Some(asker) = asker {
        let asker = asker.about(format!("cannot destroy '{name}'"));
        // What was received on top of a dataset lies in it.
        match pool.dsl().hold(name).is_ok_and(|handle| handle.is_inconsistent()) {
            true => asker.check(name, &DESTROY)?,
            false => asker.check_below(name, &DESTROY)?,
        }
    }
    let failed = |error: DslError| failure::dataset("open", name, &error);
    let state = pool.dsl().resume_state(name).map_err(failed)?;
    let partial = pool.dsl().partial_receive(name).map_err(failed)?.map(|handle| handle.object());
    let (Some(object), Some(_)) = (partial, state) else {
        let what = format!("'{name}' does not have any resumable receive state to abort");
        return Err(Failure::new(ErrorKind::NotFound, what, ""));
    };
    pool.dsl().receive_abort(object).map_err(|error| failure::dataset("destroy", name, &error))?;
    Ok(crate::requests::done())
}
