//! State of a receive that can be resumed, in the ZAP of the dataset that is received into (OpenZFS: `save_resume_state`, `DS_FIELD_RESUME_*`).
//!
//! How far a receive came is written in the txg that holds the data: after a crash the state names a record that was applied.

use crate::DslError;
use crate::dataset::Dataset;
use crate::marks;
use crate::meta::Meta;
use dmu::Tx;
use nvlist::NvList;
use ondisk::Txg;
use zap::{Value, Zap, ZapError};

const FROM_GUID: &str = "com.delphix:resume_fromguid";
const TO_NAME: &str = "com.delphix:resume_toname";
const TO_GUID: &str = "com.delphix:resume_toguid";
const OBJECT: &str = "com.delphix:resume_object";
const OFFSET: &str = "com.delphix:resume_offset";
const BYTES: &str = "com.delphix:resume_bytes";
const LARGE_BLOCKS: &str = "com.delphix:resume_largeblockok";
const EMBEDDED: &str = "com.delphix:resume_embedok";
const COMPRESSED: &str = "com.delphix:resume_compressok";
const RAW: &str = "com.datto:resume_rawok";
const FROM_REDACTED: &str = "com.delphix:resume_redact_book_snaps";

/// All that the ZAP of a dataset may have of it.
const FIELDS: [&str; 11] = [FROM_GUID, TO_NAME, TO_GUID, OBJECT, OFFSET, BYTES, LARGE_BLOCKS, EMBEDDED, COMPRESSED, RAW, FROM_REDACTED];

/// Place in a stream: the last write that was applied, which is sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResumePoint {
    /// Object that was written to.
    pub object: u64,
    /// Offset of the write in the object, in bytes.
    pub offset: u64,
    /// Bytes of the stream that were read until then.
    pub bytes: u64,
}

/// State of a receive that can be resumed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResumeState {
    /// Guid of the snapshot that the stream goes on from; 0 of a full stream.
    pub from_guid: u64,
    /// Guid of the snapshot that is received.
    pub to_guid: u64,
    /// Name of the snapshot where it was sent.
    pub to_name: String,
    /// Place that was reached.
    pub point: ResumePoint,
    /// True when the stream has blocks above 128 KiB.
    pub large_blocks: bool,
    /// True when the stream has embedded blocks.
    pub embedded: bool,
    /// True when the stream has compressed blocks.
    pub compressed: bool,
    /// True when the stream has what is encrypted as it is stored.
    pub raw: bool,
    /// Guids of the snapshots by which the stream is redacted: those of the dataset that is received into.
    pub redacted: Option<Vec<u64>>,
    /// Guids of the snapshots by which that was redacted which the stream goes on from.
    pub from_redacted: Option<Vec<u64>>,
}

impl ResumeState {
    /// Writes the state of a receive that begins.
    pub(crate) fn write(&self, zap: &Zap, tx: &Tx) -> Result<(), DslError> {
        if self.from_guid != 0 {
            zap.update_u64(FROM_GUID, self.from_guid, tx)?;
        }
        zap.update_u64(TO_GUID, self.to_guid, tx)?;
        zap.update(TO_NAME, &Value::from_str_with_nul(&self.to_name), tx)?;
        self.point.write(zap, tx)?;
        if let Some(guids) = &self.from_redacted {
            zap.update(FROM_REDACTED, &Value::U64(guids.clone()), tx)?;
        }
        // Presence counts.
        let flags = [(self.large_blocks, LARGE_BLOCKS), (self.embedded, EMBEDDED), (self.compressed, COMPRESSED), (self.raw, RAW)];
        flags.iter().filter(|(is_set, _)| *is_set).try_for_each(|(_, field)| Ok(zap.update(field, &Value::U8(vec![1]), tx)?))
    }

    /// State of the receive into a dataset; None where there is nothing to be resumed.
    pub(crate) fn of(meta: &Meta, dataset: &Dataset) -> Result<Option<ResumeState>, DslError> {
        let Some(zap) = marks::own_table(meta, dataset.object)? else { return Ok(None) };
        let Some(to_guid) = zap.try_lookup_u64(TO_GUID)? else { return Ok(None) };
        let number = |field: &str| Ok::<u64, DslError>(zap.try_lookup_u64(field)?.unwrap_or(0));
        let name = zap.try_lookup(TO_NAME)?;
        Ok(Some(ResumeState {
            from_guid: number(FROM_GUID)?,
            to_guid,
            to_name: name.as_ref().and_then(Value::as_text).unwrap_or_default().to_string(),
            point: ResumePoint { object: number(OBJECT)?, offset: number(OFFSET)?, bytes: number(BYTES)? },
            large_blocks: zap.contains(LARGE_BLOCKS)?,
            embedded: zap.contains(EMBEDDED)?,
            compressed: zap.contains(COMPRESSED)?,
            raw: zap.contains(RAW)?,
            redacted: dataset.redacted_by(meta)?,
            from_redacted: match zap.try_lookup(FROM_REDACTED)? {
                Some(Value::U64(guids)) => Some(guids),
                _ => None,
            },
        }))
    }

    /// The token by which a sender goes on from here (OpenZFS: `get_receive_resume_token_impl`).
    pub fn token(&self) -> String {
        let mut list = NvList::new();
        if self.from_guid != 0 {
            list.add("fromguid", self.from_guid);
        }
        list.add("object", self.point.object).add("offset", self.point.offset).add("bytes", self.point.bytes);
        list.add("toguid", self.to_guid).add("toname", self.to_name.as_str());
        let flags = [(self.large_blocks, "largeblockok"), (self.embedded, "embedok"), (self.compressed, "compressok"), (self.raw, "rawok")];
        for (_, name) in flags.iter().filter(|(is_set, _)| *is_set) {
            list.add_boolean(*name);
        }
        let redactions = [("redact_snaps", &self.redacted), ("book_redact_snaps", &self.from_redacted)];
        for (name, guids) in redactions.into_iter().filter_map(|(name, guids)| Some((name, guids.clone()?))) {
            list.add(name, guids);
        }
        stream::token::encode(&list)
    }

    /// Takes the state off a dataset, if it has one.
    pub(crate) fn remove(meta: &Meta, dataset: &Dataset, tx: &Tx) -> Result<(), DslError> {
        let Some(zap) = marks::own_table(meta, dataset.object)? else { return Ok(()) };
        FIELDS.iter().try_for_each(|field| match zap.remove(field, tx) {
            Ok(()) | Err(ZapError::NotFound) => Ok(()),
            Err(error) => Err(error.into()),
        })
    }
}

impl ResumePoint {
    /// Place of a stream before its first record (OpenZFS: `dmu_recv_begin_sync`).
    pub const BEGIN: ResumePoint = ResumePoint { object: 1, offset: 0, bytes: 0 };

    /// Writes how far a receive came, where it can be resumed.
    pub(crate) fn store(&self, meta: &Meta, dataset: &Dataset, tx: &Tx) -> Result<(), DslError> {
        match marks::own_table(meta, dataset.object)? {
            Some(zap) if zap.contains(TO_GUID)? => self.write(&zap, tx),
            _ => Ok(()),
        }
    }

    fn write(&self, zap: &Zap, tx: &Tx) -> Result<(), DslError> {
        zap.update_u64(OBJECT, self.object, tx)?;
        zap.update_u64(OFFSET, self.offset, tx)?;
        Ok(zap.update_u64(BYTES, self.bytes, tx)?)
    }
}

/// Places that a receive came to in txgs that are not synced yet.
#[derive(Debug, Default)]
pub(crate) struct Reached(Vec<(Txg, ResumePoint)>);

impl Reached {
    /// Notes how far the receive came in a txg.
    pub(crate) fn note(&mut self, txg: Txg, point: ResumePoint) {
        match self.0.last_mut() {
            Some((last, reached)) if *last == txg => *reached = point,
            _ => self.0.push((txg, point)),
        }
    }

    /// Place that was reached in a txg that is synced, or before.
    pub(crate) fn take(&mut self, txg: Txg) -> Option<ResumePoint> {
        let at = self.0.iter().rposition(|(reached, _)| *reached <= txg)?;
        self.0.drain(..=at).next_back().map(|(_, point)| point)
    }
}
