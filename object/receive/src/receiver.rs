//! A receive from its beginning to its end: the dataset that it goes into, and what is left of one that fails.

use crate::ReceiveError;
use dmu::{DmuError, Objset, Tx};
use dsl::{DatasetHandle, DslError, DslPool, RawStream, ReceiveBegin, ReceiveEnd, ResumePoint, ResumeState, StreamRedaction, features};
use nvlist::NvList;
use ondisk::names::spa_version;
use ondisk::{ByteOrder, ObjectId, ObjectType, ObjsetType};
use std::io::Read;
use std::sync::Arc;
use stream::{Begin, Features, Reader, Record, StreamError, begin_flags};

/// Object of the master node of every file system (OpenZFS: `MASTER_NODE_OBJ`).
const MASTER_NODE: ObjectId = ObjectId(1);

/// Kinds of streams that are not received, and what they are called.
const REFUSED: [(Features, &str); 2] = [(Features::DEDUP, "deduplicated streams"), (Features::DEDUP_PROPS, "deduplicated streams")];

/// Features of streams, and those of datasets that go with them.
const FEATURES: [(Features, &str); 4] = [
    (Features::LARGE_BLOCKS, features::LARGE_BLOCKS),
    (Features::LARGE_DNODE, features::LARGE_DNODE),
    (Features::LONGNAME, features::LONGNAME),
    (Features::LARGE_MICROZAP, features::LARGE_MICROZAP),
];

/// Features of streams, and those of pools without which what they bring cannot be (OpenZFS keeps blocks as they come).
const NEEDED: [(Features, &str); 4] = [
    (Features::REDACTED, features::REDACTED_DATASETS),
    (Features::EMBED_DATA, "com.delphix:embedded_data"),
    (Features::LZ4, "org.illumos:lz4_compress"),
    (Features::ZSTD, features::ZSTD_COMPRESS),
];

/// Guids of a table that go with these features of a stream.
fn guids_of(table: &[(Features, &'static str)], features: Features) -> Vec<&'static str> {
    table.iter().filter(|(feature, _)| features.has(*feature)).map(|(_, guid)| *guid).collect()
}

/// Place that a stream is received at, and how.
#[derive(Clone, Debug, Default)]
pub struct Target {
    /// Full name of the dataset that gets the snapshot.
    pub name: String,
    /// The part behind `@` of the snapshot.
    pub snapshot: String,
    /// Full name of the snapshot that a new dataset is a clone of.
    pub origin: Option<String>,
    /// True to take back what changed since the snapshot that the stream goes on from.
    pub force: bool,
    /// True to keep what came when the stream is interrupted.
    pub resumable: bool,
}

/// Look at an object set that is received into, before anything is written to it.
type Prepare<'a> = &'a dyn Fn(&Arc<Objset>);

/// A receive that goes on.
pub struct Receiver {
    dsl: Arc<DslPool>,
    pub(crate) handle: DatasetHandle,
    pub(crate) objset: Arc<Objset>,
    end: ReceiveEnd,
    pub(crate) features: Features,
    /// Spill blocks are always sent, and objects say whether they have one.
    pub(crate) tells_spill: bool,
    pub(crate) is_full: bool,
    is_resumable: bool,
    /// Bytes that were received before this stream began.
    bytes_before: u64,
    /// True where blocks may lie as they come, compressed: what is encrypted here is not.
    pub(crate) keeps_blocks: bool,
    /// Object and offset of the last write.
    pub(crate) last: (u64, u64),
    /// Highest object of the stream.
    pub(crate) highest: u64,
    /// True for a full stream into a clone: what it does not name goes.
    is_over_origin: bool,
}

/// True for what can be mounted (OpenZFS receives what cannot, too, and fails to mount it).
fn has_master_node(objset: &Objset) -> Result<bool, ReceiveError> {
    match objset.hold(MASTER_NODE) {
        Ok(dnode) => Ok(dnode.info()?.kind == ObjectType::MASTER_NODE),
        Err(DmuError::NoSuchObject) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Looks at what a stream is made of.
pub(crate) fn check_features(features: Features) -> Result<(), ReceiveError> {
    match REFUSED.iter().find(|(feature, _)| features.has(*feature)) {
        Some((_, what)) => Err(ReceiveError::Unsupported(what)),
        None if features.unknown() != 0 => Err(ReceiveError::Unsupported("streams with features of newer senders")),
        None => Ok(()),
    }
}

impl Receiver {
    /// Begins to receive the substream with this head and list. `prepare` has the object set before anything is written to it.
    ///
    /// # Errors
    /// A stream of another kind; those of [`DslPool::receive_begin`].
    pub fn begin(
        dsl: &Arc<DslPool>,
        begin: &Begin,
        list: &NvList,
        target: &Target,
        prepare: Prepare<'_>,
    ) -> Result<Receiver, ReceiveError> {
        let features = Features::of_versioninfo(begin.versioninfo);
        check_features(features)?;
        // Nodes of such a file system have system attributes (OpenZFS: `recv_begin_check_feature_flags_impl`).
        if features.has(Features::SA_SPILL) && dsl.version() < spa_version::SA {
            return Err(DslError::OldVersion(spa_version::SA).into());
        }
        let kind = ObjsetType(u64::from(begin.kind));
        if !matches!(kind, ObjsetType::ZFS | ObjsetType::ZVOL | ObjsetType::OTHER) || begin.toguid == 0 {
            return Err(ReceiveError::Invalid("its head is of no dataset"));
        }
        let raw = raw_of(begin, features, list)?;
        let redaction = redaction_of(begin, features, list)?;
        let (handle, bytes_before) = if features.has(Features::RESUMING) {
            resume(dsl, begin, (list, raw.as_ref(), &redaction), target)?
        } else {
            let begins = ReceiveBegin { raw: raw.clone(), ..beginning((begin, redaction), features, kind, target) };
            (dsl.receive_begin(begins)?, 0)
        };
        let is_resumable = target.resumable || features.has(Features::RESUMING);
        let received = handle.object();
        let end = ReceiveEnd {
            target: target.name.clone(),
            received,
            snapshot: target.snapshot.clone(),
            guid: begin.toguid,
            creation_time: begin.creation_time,
            force: target.force,
            raw,
        };
        let is_raw = end.raw.is_some();
        let objset = match if is_raw { handle.sealed() } else { handle.objset() } {
            Ok(objset) => objset,
            Err(error) => {
                drop(handle);
                give_up(dsl, received, is_resumable);
                return Err(error.into());
            }
        };
        // Of what nobody here can read nothing is counted.
        if !is_raw {
            prepare(&objset);
        }
        Ok(Receiver {
            dsl: dsl.clone(),
            keeps_blocks: handle.is_encrypted().is_ok_and(|is_encrypted| !is_encrypted),
            handle,
            objset,
            end,
            features,
            tells_spill: begin.flags & begin_flags::SPILL_BLOCK != 0,
            is_full: begin.fromguid == 0,
            is_resumable,
            bytes_before,
            last: (0, 0),
            highest: 0,
            is_over_origin: begin.fromguid == 0 && target.origin.is_some(),
        })
    }

    /// True for a raw stream.
    pub(crate) fn is_raw(&self) -> bool {
        self.end.raw.is_some()
    }

    /// The dataset that is received into.
    pub fn handle(&self) -> &DatasetHandle {
        &self.handle
    }

    /// Applies the rest of a substream, up to its END, and ends the receive; one that fails is given up.
    ///
    /// # Errors
    /// Those of [`Reader::read_record`], [`Receiver::apply`] and [`Receiver::end`].
    pub fn run<R: Read>(mut self, reader: &mut Reader<R>) -> Result<(), ReceiveError> {
        match self.apply_rest(reader) {
            Ok(()) => self.end(),
            Err(error) => {
                self.abandon();
                Err(error)
            }
        }
    }

    /// Applies the rest of a substream, up to its END.
    ///
    /// # Errors
    /// Those of [`Reader::read_record`] and [`Receiver::apply`]; [`Receiver::abandon`] it then.
    pub fn apply_rest<R: Read>(&mut self, reader: &mut Reader<R>) -> Result<(), ReceiveError> {
        each_record(reader, &mut |record, payload, order, bytes| self.apply(record, payload, order, bytes))?;
        self.finish_contents()
    }

    /// Completes what all records made, and looks whether it can be used.
    fn finish_contents(&mut self) -> Result<(), ReceiveError> {
        if self.is_over_origin {
            self.free_above(self.highest)?;
        }
        if self.objset.kind() == ObjsetType::ZFS && !has_master_node(&self.objset)? {
            // There is no rest that could bring it.
            self.is_resumable = false;
            return Err(ReceiveError::Invalid("it ends without the master node of a file system"));
        }
        Ok(())
    }

    /// Ends the receive, after its END was read: the snapshot is there, and the dataset is what it has.
    ///
    /// # Errors
    /// Those of [`DslPool::receive_end`]. Nothing has changed then; what came is gone unless it can be resumed.
    pub fn end(self) -> Result<(), ReceiveError> {
        let through = self.through();
        through.end().map_err(|error| {
            through.give_up();
            error.into()
        })
    }

    /// Lets go of the dataset that was received into, after its END was read.
    pub fn through(self) -> Through {
        let Receiver { dsl, end, is_resumable, .. } = self;
        Through { dsl, end, is_resumable }
    }

    /// Gives the receive up: what came is gone, unless it can be resumed.
    pub fn abandon(self) {
        let Receiver { dsl, handle, objset, end, is_resumable, .. } = self;
        drop(objset);
        if is_resumable {
            // What was reached is on disk before anybody is told a token.
            let _ = dsl.txgs().wait_synced(dsl.txgs().open_txg());
        }
        drop(handle);
        give_up(&dsl, end.received, is_resumable);
    }

    /// Waits until everything so far is on disk, and freed numbers can be used again.
    pub(crate) fn wait_synced(&self) -> Result<(), ReceiveError> {
        let txgs = self.dsl.txgs();
        Ok(txgs.wait_synced(txgs.open_txg()).map_err(DslError::from)?)
    }

    /// Notes that a write was applied, with the bytes of the stream until then.
    pub(crate) fn reached(&mut self, (object, offset): (u64, u64), bytes: u64, tx: &Tx) {
        self.last = (object, offset);
        if self.is_resumable {
            self.handle.note_received(ResumePoint { object, offset, bytes: self.bytes_before + bytes }, tx);
        }
    }
}

/// A receive whose stream is through, and whose dataset nobody holds.
pub struct Through {
    dsl: Arc<DslPool>,
    end: ReceiveEnd,
    is_resumable: bool,
}

impl Through {
    /// Has what came take its place; may be tried again after [`DslError::Busy`].
    ///
    /// # Errors
    /// Those of [`DslPool::receive_end`].
    pub fn end(&self) -> Result<(), DslError> {
        self.dsl.receive_end(&self.end)
    }

    /// Gives up what came, unless it can be resumed.
    pub fn give_up(&self) {
        give_up(&self.dsl, self.end.received, self.is_resumable);
    }
}

/// Look at a record: with its payload, the stream's byte order, and the bytes of the stream up to its end.
type See<'a> = &'a mut dyn FnMut(&Record, &[u8], ByteOrder, u64) -> Result<(), ReceiveError>;

/// Shows `see` the rest of a substream, up to its END. The checksum of a record's payload comes with the next record: only then is it shown (OpenZFS:
/// `receive_read_payload_and_next_header`).
pub(crate) fn each_record<R: Read>(reader: &mut Reader<R>, see: See<'_>) -> Result<(), ReceiveError> {
    let (mut payload, mut next_payload) = (Vec::new(), Vec::new());
    let mut waiting: Option<(Record, u64)> = None;
    loop {
        let next = reader.read_record(&mut next_payload)?;
        if let Some((record, bytes)) = waiting.take() {
            see(&record, &payload, reader.order(), bytes)?;
        }
        match next {
            Some(Record::End(_)) => return Ok(()),
            Some(record) => waiting = Some((record, reader.offset())),
            None => return Err(StreamError::Truncated { offset: reader.offset() }.into()),
        }
        std::mem::swap(&mut payload, &mut next_payload);
    }
}

/// Destroys what was received half, unless it can be resumed. Where that fails the next import does it.
fn give_up(dsl: &Arc<DslPool>, received: u64, is_resumable: bool) {
    if !is_resumable {
        let _ = dsl.receive_abort(received);
    }
}

/// Head of a raw stream; None of another one. Old senders do not say which spill blocks are there, and MACs cover that.
fn raw_of(begin: &Begin, features: Features, list: &NvList) -> Result<Option<RawStream>, ReceiveError> {
    if !features.has(Features::RAW) {
        return Ok(None);
    }
    if begin.flags & begin_flags::SPILL_BLOCK == 0 {
        return Err(ReceiveError::Unsupported("raw streams of senders that do not tell of spill blocks"));
    }
    if features.has(Features::EMBED_DATA) {
        return Err(ReceiveError::Invalid("a raw stream with contents of pointers"));
    }
    RawStream::of_list(list).map(Some).map_err(of_head)
}

/// Reason behind the head of a raw stream that is none.
fn of_head(error: DslError) -> ReceiveError {
    match error {
        DslError::BadKey => ReceiveError::Invalid("its keys, or what goes with them, cannot be"),
        DslError::Unsupported => ReceiveError::Unsupported("raw streams with keys of this version or suite"),
        error => error.into(),
    }
}

/// Redaction of a stream, by its head: what is redacted says by which snapshots.
fn redaction_of(begin: &Begin, features: Features, list: &NvList) -> Result<StreamRedaction, ReceiveError> {
    // A list of none says nothing of what is lacking.
    let guids = |name: &str| list.get_u64_array(name).filter(|guids| !guids.is_empty()).map(<[u64]>::to_vec);
    let by = guids("redact_snaps").filter(|_| features.has(Features::REDACTED));
    if by.is_none() && features.has(Features::REDACTED) {
        return Err(ReceiveError::Invalid("a redacted stream that does not say by what"));
    }
    Ok(StreamRedaction { to_guid: begin.toguid, by, from: guids("redact_from_snaps") })
}

/// The beginning of a stream as datasets see it.
fn beginning((begin, redaction): (&Begin, StreamRedaction), features: Features, kind: ObjsetType, target: &Target) -> ReceiveBegin {
    let state = ResumeState {
        from_guid: begin.fromguid,
        to_guid: begin.toguid,
        to_name: begin.toname.to_string(),
        point: ResumePoint::BEGIN,
        large_blocks: features.has(Features::LARGE_BLOCKS),
        embedded: features.has(Features::EMBED_DATA),
        compressed: features.has(Features::COMPRESSED),
        raw: features.has(Features::RAW),
        redacted: redaction.by.clone(),
        from_redacted: redaction.from.clone(),
    };
    ReceiveBegin {
        target: target.name.clone(),
        snapshot: target.snapshot.clone(),
        kind,
        from_guid: begin.fromguid,
        origin: target.origin.clone(),
        force: target.force,
        ignores_case: begin.flags & begin_flags::CI_DATA != 0,
        features: guids_of(&FEATURES, features),
        needs: guids_of(&NEEDED, features),
        raw: None,
        redaction,
        resumable: target.resumable.then_some(state),
        init: Box::new(move |objset, tx| match kind {
            // Whoever receives counts what owners use, from the first object on.
            ObjsetType::ZFS if objset.props().has_accounts() => {
                Ok(objset.set_flags(objset.flags() | ondisk::objset_flags::USERACCOUNTING_COMPLETE, tx)?)
            }
            _ => Ok(()),
        }),
    }
}

/// Goes on with a receive that was interrupted (OpenZFS: `dmu_recv_resume_begin_check`).
fn resume(
    dsl: &Arc<DslPool>,
    begin: &Begin,
    (list, raw, redaction): (&NvList, Option<&RawStream>, &StreamRedaction),
    target: &Target,
) -> Result<(DatasetHandle, u64), ReceiveError> {
    let none = ReceiveError::NotResumed("nothing is kept of one");
    let Some(handle) = dsl.partial_receive(&target.name)? else { return Err(none) };
    let Some(state) = dsl.resume_state(&target.name)? else { return Err(none) };
    if state.raw != raw.is_some() {
        return Err(ReceiveError::NotResumed("the one is raw, the other is not"));
    }
    raw.map_or(Ok(()), |raw| handle.check_raw(raw))?;
    if (state.to_guid, state.from_guid) != (begin.toguid, begin.fromguid) {
        return Err(ReceiveError::NotResumed("it is of another snapshot"));
    }
    let is_same = match (&state.redacted, &redaction.by) {
        (Some(guids), Some(others)) => dsl::same_snapshots(guids, others),
        (before, now) => before.is_none() && now.is_none(),
    };
    if !is_same {
        return Err(ReceiveError::NotResumed("it is redacted by other snapshots"));
    }
    let point = (list.get_u64("resume_object"), list.get_u64("resume_offset"));
    if point != (Some(state.point.object), Some(state.point.offset)) {
        return Err(ReceiveError::NotResumed("it begins at another place"));
    }
    Ok((handle, state.point.bytes))
}
