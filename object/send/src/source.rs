//! What is sent, from where on, and how: the head of a stream, and how large it will be.

use crate::ahead::Ahead;
use crate::item::Finds;
use crate::records::Records;
use crate::redactor::{Count, Redactor, Runs};
use crate::walk::{Unborn, Walk};
use crate::{SendError, raw};
use dmu::{DmuError, Objset};
use dsl::{BookmarkEntry, DatasetHandle, DslError, RedactionList, features};
use nvlist::NvList;
use ondisk::{BlockPtr, Bookmark, ObjectId, ObjsetId, ObjsetType, Txg};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use stream::{Begin, Features, HeaderType, RECORD_BYTES, StreamName, Writer, begin_flags};

/// Pool features on which a stream's depend.
const EMBEDDED_DATA: &str = "com.delphix:embedded_data";
const LZ4_COMPRESS: &str = "org.illumos:lz4_compress";
pub(crate) const HOLE_BIRTH: &str = "com.delphix:hole_birth";
/// Names of the guids, in the list in front of a stream, of the snapshots by which it is redacted, and by which its base was.
const REDACT_SNAPS: &str = "redact_snaps";
const REDACT_FROM_SNAPS: &str = "redact_from_snaps";
/// First version of file systems with system attributes (OpenZFS: `ZPL_VERSION_SA`).
const VERSION_WITH_ATTRIBUTES: u64 = 5;

/// Bytes of a block that estimates assume; 0: those that the dataset writes now.
static ESTIMATE_BLOCK_BYTES: AtomicU64 = AtomicU64::new(0);

/// Sets the size of blocks that estimates of streams assume, in bytes; 0 leaves it to the dataset (OpenZFS: `zfs_override_estimate_recordsize`).
pub fn set_estimate_block_bytes(bytes: u64) {
    ESTIMATE_BLOCK_BYTES.store(bytes, Ordering::Relaxed);
}

/// True when streams are to leave out numbers that never were objects.
static SKIPS_UNBORN: AtomicBool = AtomicBool::new(false);

/// Sets whether streams are to leave out numbers that never were objects (OpenZFS: 0 of `send_holes_without_birth_time`).
pub fn set_skips_unborn(skips: bool) {
    SKIPS_UNBORN.store(skips, Ordering::Relaxed);
}

/// Value of [`SendOptions::skips_unborn`] that was set for all streams.
pub fn skips_unborn() -> bool {
    SKIPS_UNBORN.load(Ordering::Relaxed)
}

/// Form of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SendOptions {
    /// `-L`: blocks above 128 KiB stay whole.
    pub large_blocks: bool,
    /// `-e`: contents that lie in block pointers are sent as they are.
    pub embedded: bool,
    /// `-c`: blocks are sent as they are compressed.
    pub compressed: bool,
    /// `-w`: what is encrypted goes as it is stored, which takes no key.
    pub raw: bool,
    /// True to leave out numbers of objects that were never used since the pool has births of holes (OpenZFS sends all holes without a birth:
    /// `send_holes_without_birth_time`).
    pub skips_unborn: bool,
    /// Object and offset to go on at, where an earlier stream of the same broke off.
    pub resume: Option<(u64, u64)>,
}

/// Snapshot or bookmark that a stream starts from.
pub struct Base {
    guid: u64,
    txg: u64,
    is_of_another: bool,
    snapshot: Option<DatasetHandle>,
    /// Set of IVs of a bookmark's snapshot, 0 when it does not know.
    ivs: u64,
    /// List of what was redacted of a bookmark's snapshot.
    list: Option<RedactionList>,
    /// Guids of the snapshots by which the base was redacted; None for one that lacks nothing.
    redacted_by: Option<Vec<u64>>,
}

impl Base {
    /// The base that is a snapshot, which is held meanwhile.
    ///
    /// # Errors
    /// [`SendError::NotEarlier`].
    pub fn snapshot(to: &DatasetHandle, from: DatasetHandle) -> Result<Base, SendError> {
        let name = from.name();
        let base = Base::new(to, dataset_of(&name), from.guid(), from.creation_txg())?;
        let redacted_by = from.redacted_by()?;
        Ok(Base { snapshot: Some(from), redacted_by, ..base })
    }

    /// The base that is a bookmark of `dataset`. What was redacted of its snapshot is held with it, and sent as far as it is there now.
    ///
    /// # Errors
    /// [`SendError::NotEarlier`], [`SendError::UnfinishedList`], those of reading the list.
    pub fn bookmark(to: &DatasetHandle, dataset: &str, bookmark: &BookmarkEntry) -> Result<Base, SendError> {
        let base = Base::new(to, dataset, bookmark.guid, bookmark.creation_txg)?;
        let list = match bookmark.redaction {
            Some(_) => to.pool().redaction_list(&format!("{dataset}#{}", bookmark.name))?,
            None => None,
        };
        let list = list.map(whole).transpose()?;
        let redacted_by = list.as_ref().map(|list| list.facts().snapshots.clone());
        Ok(Base { ivs: bookmark.ivs, list, redacted_by, ..base })
    }

    fn new(to: &DatasetHandle, dataset: &str, guid: u64, txg: u64) -> Result<Base, SendError> {
        if !to.is_after(dataset, txg)? {
            return Err(SendError::NotEarlier);
        }
        Ok(Base { guid, txg, is_of_another: dataset != dataset_of(&to.name()), snapshot: None, ivs: 0, list: None, redacted_by: None })
    }

    /// Globally unique id of the snapshot.
    pub fn guid(&self) -> u64 {
        self.guid
    }
}

/// A redaction list, once it is whole.
fn whole(list: RedactionList) -> Result<RedactionList, SendError> {
    if list.facts().is_whole { Ok(list) } else { Err(SendError::UnfinishedList) }
}

/// Name and guid that a stream goes by, where they are not those of what is sent: of a dataset as it is now, or of what came of a receive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Full name of the snapshot that a receiver makes.
    pub name: String,
    /// Guid of that snapshot.
    pub guid: u64,
    /// False for a stream that lacks its END, so that a receiver asks for the rest (OpenZFS: `savedok`).
    pub is_whole: bool,
}

/// The part of a name before `@`.
pub(crate) fn dataset_of(name: &str) -> &str {
    name.split('@').next().unwrap_or(name)
}

/// A snapshot about to be sent. It is held for as long as this lives.
pub struct Sending {
    to: DatasetHandle,
    from: Option<Base>,
    options: SendOptions,
    kind: ObjsetType,
    features: Features,
    identity: Identity,
    /// List of what is left out.
    list: Option<RedactionList>,
    /// Guids of the snapshots by which the stream is redacted, or what is sent was; None for one that lacks nothing.
    redacted_by: Option<Vec<u64>>,
}

impl Sending {
    /// Makes sure that a snapshot can be sent in this form. What is encrypted is sent as programs see it, and takes its key.
    ///
    /// # Errors
    /// [`SendError::Redacted`], [`SendError::LargeMicrozap`], [`SendError::OldKeys`], those of reading the dataset.
    pub fn new(to: DatasetHandle, from: Option<Base>, mut options: SendOptions) -> Result<Sending, SendError> {
        options.raw &= to.is_encrypted()?;
        if options.raw {
            if to.has_old_keys()? {
                return Err(SendError::OldKeys);
            }
            // What lies in the other byte order would have to be read in ours, and sent as it lies.
            if !to.root_block().is_little_endian() {
                return Err(DslError::Unsupported.into());
            }
            (options.large_blocks, options.compressed, options.embedded) = (true, true, false);
        } else if to.is_encrypted()? {
            if to.is_locked()? {
                return Err(DslError::NoKey.into());
            }
            // What lies on devices is ciphertext.
            (options.compressed, options.embedded) = (false, false);
        }
        let kind = to.kind()?;
        let features = stream_features(&to, kind, &options)?;
        let identity = Identity { name: to.name(), guid: to.guid(), is_whole: true };
        let redacted_by = to.redacted_by()?;
        Ok(Sending { to, from, options, kind, features, identity, list: None, redacted_by })
    }

    /// Stream without the blocks that the redaction list of a bookmark (full name) has.
    ///
    /// # Errors
    /// [`SendError::NoRedactionList`], [`SendError::UnfinishedList`], [`SendError::RawRedacted`]; [`SendError::Redacted`] for what is redacted already.
    pub fn redacted(self, bookmark: &str) -> Result<Sending, SendError> {
        if self.options.raw {
            return Err(SendError::RawRedacted);
        }
        if self.redacted_by.is_some() {
            return Err(SendError::Redacted);
        }
        let list = match self.to.pool().redaction_list(bookmark) {
            Ok(Some(list)) => whole(list)?,
            Ok(None) | Err(DslError::NotFound) => return Err(SendError::NoRedactionList),
            Err(error) => return Err(error.into()),
        };
        let redacted_by = Some(list.facts().snapshots.clone());
        Ok(Sending { features: self.features.with(Features::REDACTED), list: Some(list), redacted_by, ..self })
    }

    /// Stream of another name and guid, with equal contents.
    #[must_use]
    pub fn known_as(self, identity: Identity) -> Sending {
        Sending { identity, ..self }
    }

    /// The snapshot.
    pub fn snapshot(&self) -> &DatasetHandle {
        &self.to
    }

    /// Writes the stream, from BEGIN to END.
    ///
    /// # Errors
    /// [`SendError::Sink`] when the sink takes no more, [`SendError::Source`] for a block that cannot be read: the stream ends there.
    pub fn run<W: io::Write>(&self, writer: &mut Writer<W>) -> Result<(), SendError> {
        let (begin, list) = self.head()?;
        writer.begin(begin, list.as_ref())?;
        let objset = self.contents()?;
        let root = self.to.root_block();
        let after = Txg(self.from.as_ref().map_or(0, |base| base.txg));
        let records = Records::new(writer, self.identity.guid, self.features, after);
        let records = self.walk(&objset, &root, Ahead::new(&**objset.io(), records))?;
        if self.identity.is_whole { records.finish() } else { records.leave_open() }
    }

    /// Walks over what is sent, and has `out` take what is found.
    fn walk<F: Finds>(&self, objset: &Arc<Objset>, root: &BlockPtr, out: F) -> Result<F::Made, SendError> {
        let after = Txg(self.from.as_ref().map_or(0, |base| base.txg));
        let has_births = || Ok::<bool, SendError>(self.to.feature_enabled_txg(HOLE_BIRTH)?.is_some_and(|txg| txg <= after.0));
        let skips_unborn = self.options.skips_unborn && has_births()?;
        let unborn = if skips_unborn { Unborn::LeftOutOfDnodes } else { Unborn::Found };
        let place = match self.options.resume {
            None => (0, 0),
            Some((object, offset)) => match objset.hold(ObjectId(object)).and_then(|dnode| dnode.block_size()) {
                Ok(bytes) => (object, offset / bytes.max(1) as u64),
                Err(_) => (object, 0),
            },
        };
        let was = self.from.as_ref().and_then(|base| base.list.as_ref());
        let runs = (Runs::new(self.list.as_ref(), place)?, Runs::new(was, place)?);
        let redactor = Redactor::new(out, objset, runs);
        Walk::new(&**objset.io(), objset.id(), (after, unborn), self.options.resume, redactor).run(root)
    }

    /// Bytes of a stream of which a redaction list has a part: there is no other way than to look what comes of it.
    fn counted(&self) -> Result<u64, SendError> {
        let (objset, root) = (self.contents()?, self.to.root_block());
        self.walk(&objset, &root, Count { record_bytes: RECORD_BYTES as u64, is_compressed: self.options.compressed, bytes: 0, next: None })
    }

    /// Bytes of the stream, about (OpenZFS: `dmu_send_estimate_fast`): what is before a place to go on at is counted, too.
    ///
    /// # Errors
    /// Those of reading the dataset.
    pub fn estimate(&self) -> Result<u64, SendError> {
        if self.list.is_some() || self.from.as_ref().is_some_and(|base| base.list.is_some()) {
            return self.counted();
        }
        let [_, compressed, uncompressed] = match &self.from {
            None => self.to.sizes_since(None)?,
            Some(Base { snapshot: Some(from), .. }) if self.identity.is_whole => self.to.sizes_since(Some(from))?,
            Some(base) => self.sizes_after(base.txg)?,
        };
        let block = if self.kind == ObjsetType::ZVOL && !self.to.is_inconsistent() { "volblocksize" } else { "recordsize" };
        let block_bytes = match ESTIMATE_BLOCK_BYTES.load(Ordering::Relaxed) {
            0 => self.to.prop_u64(block)?.0,
            bytes => bytes,
        };
        let records = uncompressed / block_bytes.max(1);
        let bytes = if self.options.compressed { compressed } else { uncompressed };
        Ok(bytes.saturating_sub(records * BlockPtr::BYTES as u64) + records * RECORD_BYTES as u64)
    }

    /// The object set as its blocks are sent.
    fn contents(&self) -> Result<Arc<Objset>, SendError> {
        Ok(if self.options.raw { self.to.stored()? } else { self.to.objset()? })
    }

    /// List of keys in front of a raw stream.
    fn keys(&self) -> Result<NvList, SendError> {
        let from = match &self.from {
            None => 0,
            Some(Base { snapshot: Some(from), .. }) => from.raw_keys()?.ivs,
            Some(base) => base.ivs,
        };
        let (objset, at) = (self.contents()?, Bookmark { objset: ObjsetId(self.to.object()), ..Bookmark::default() });
        let root = objset.io().read(&self.to.root_block(), &at);
        let root = root.map_err(|error| SendError::Source(DmuError::of_block(error, at).into()))?;
        raw::list_of(&self.to.raw_keys()?, &root.to_vec(), from)
    }

    /// Sizes of everything that was born after a txg: a bookmark has none of its own.
    fn sizes_after(&self, txg: u64) -> Result<[u64; 3], SendError> {
        let (objset, root, mut sizes) = (self.contents()?, self.to.root_block(), [0; 3]);
        dsl::Walk::all(&**objset.io(), self.to.object(), &root, txg).run(&mut |bp| {
            let found = [bp.asize(), bp.psize() as u64, bp.lsize() as u64];
            sizes.iter_mut().zip(found).for_each(|(sum, bytes)| *sum += bytes);
            Ok(())
        })?;
        Ok(sizes)
    }

    /// The first record, and the list in it if there is one.
    fn head(&self) -> Result<(Begin, Option<NvList>), SendError> {
        let mut flags = begin_flags::FREERECORDS | begin_flags::SPILL_BLOCK;
        if self.from.as_ref().is_some_and(|base| base.is_of_another) {
            flags |= begin_flags::CLONE;
        }
        if self.to.ignores_case() {
            flags |= begin_flags::CI_DATA;
        }
        let begin = Begin {
            payload_bytes: 0,
            versioninfo: self.features.versioninfo(HeaderType::Substream),
            creation_time: self.to.creation_time(),
            kind: self.kind.0 as u32,
            flags,
            toguid: self.identity.guid,
            fromguid: self.from.as_ref().map_or(0, Base::guid),
            toname: StreamName::new(&self.identity.name).ok_or(SendError::NameTooLong)?,
        };
        let mut list = if self.options.raw { self.keys()? } else { NvList::new() };
        let from = self.from.as_ref().and_then(|base| base.redacted_by.as_ref());
        for (name, guids) in [(REDACT_SNAPS, self.redacted_by.as_ref()), (REDACT_FROM_SNAPS, from)] {
            list = match guids {
                Some(guids) => list.with(name, guids.clone()),
                None => list,
            };
        }
        if let Some((object, offset)) = self.options.resume {
            list = list.with("resume_object", object).with("resume_offset", offset);
        }
        Ok((begin, (!list.is_empty()).then_some(list)))
    }
}

/// Features that a stream of a dataset has (OpenZFS: `setup_featureflags`).
fn stream_features(to: &DatasetHandle, kind: ObjsetType, options: &SendOptions) -> Result<Features, SendError> {
    // What was not received to its end has no version yet, and may get any.
    let is_new = || Ok::<bool, SendError>(to.is_inconsistent() || to.prop_u64("version")?.0 >= VERSION_WITH_ATTRIBUTES);
    let has_attributes = kind == ObjsetType::ZFS && is_new()?;
    let found = Features::default()
        .with_if(has_attributes, Features::SA_SPILL)
        .with_if(options.large_blocks && to.has_feature(features::LARGE_BLOCKS), Features::LARGE_BLOCKS)
        .with_if(options.embedded && to.is_active_in_pool(EMBEDDED_DATA), Features::EMBED_DATA)
        .with_if(options.compressed, Features::COMPRESSED);
    let found = found.with_if(options.raw, Features::RAW);
    let has_packed = found.has(Features::EMBED_DATA) || found.has(Features::COMPRESSED);
    let found = found
        .with_if(has_packed && to.is_active_in_pool(LZ4_COMPRESS), Features::LZ4)
        .with_if(options.compressed && to.has_feature(features::ZSTD_COMPRESS), Features::ZSTD)
        .with_if(options.resume.is_some(), Features::RESUMING)
        .with_if(to.has_feature(features::REDACTED_DATASETS), Features::REDACTED)
        .with_if(to.has_feature(features::LARGE_DNODE), Features::LARGE_DNODE)
        .with_if(to.has_feature(features::LONGNAME), Features::LONGNAME);
    if to.has_feature(features::LARGE_MICROZAP) {
        if !found.has(Features::LARGE_BLOCKS) {
            return Err(SendError::LargeMicrozap);
        }
        return Ok(found.with(Features::LARGE_MICROZAP));
    }
    Ok(found)
}
