//! `zinject`: simulated faults. The handlers of all pools, by number, and what they mean to the pipeline of their pool.

use crate::device::names::{find_cache, find_leaf};
use crate::failure::{because, pool_failure};
use crate::pool::{OpenPool, Pools};
use control_api::{ErrorKind, Failure, InjectAdd, InjectBlocks, InjectFault, InjectReport, Response};
use exec::{Exec, Mutex};
use ondisk::{Guid, ObjectId, ObjectType, ObjsetId};
use std::ops::RangeInclusive;
use std::sync::Arc;
use zio::{Fault, FaultError, IoKind, LeafFault};

const WHAT: &str = "failed to add handler";
/// log2 of the bytes of a block of dnodes, and of a dnode (OpenZFS: `DNODE_BLOCK_SHIFT`, `DNODE_SHIFT`).
const DNODES_SHIFT: u32 = 14;
const DNODE_SHIFT: u32 = 9;
/// Number of lanes that a delay may have (OpenZFS: fewer than `UINT16_MAX`).
const LANES_MAX: u64 = u16::MAX as u64 - 1;

/// Parts of a label that can be hit: name, first and last byte (OpenZFS: `vdev_label_t`).
const LABEL_PARTS: [(&str, RangeInclusive<u64>); 4] = [
    ("pad1", 0..=(8 << 10) - 1),
    ("pad2", 8 << 10..=(16 << 10) - 1),
    ("nvlist", 16 << 10..=(128 << 10) - 1),
    ("uber", 128 << 10..=(256 << 10) - 1),
];

/// Objects of the meta object set by type: name and type.
const META_TYPES: [(&str, Option<ObjectType>); 7] = [
    ("mos", None),
    ("mosdir", Some(ObjectType::OBJECT_DIRECTORY)),
    ("metaslab", Some(ObjectType::OBJECT_ARRAY)),
    ("config", Some(ObjectType::PACKED_NVLIST)),
    ("bpobj", Some(ObjectType::BPOBJ)),
    ("spacemap", Some(ObjectType::SPACE_MAP)),
    ("errlog", Some(ObjectType::ERROR_LOG)),
];

/// Handler of injected faults; one without a fault is about commands.
#[derive(Clone, Debug)]
pub(crate) struct Handler {
    report: InjectReport,
    fault: Option<Fault>,
    /// Time in nanoseconds at which the handler is over.
    until_ns: Option<u64>,
}

/// Handlers of the daemon.
pub(crate) struct Injections {
    exec: Exec,
    pools: Arc<Pools>,
    /// Number of the last handler, and the handlers that there are.
    all: Mutex<(u64, Vec<Handler>)>,
}

fn refused(kind: ErrorKind, why: &str) -> Failure {
    because(kind, WHAT, why)
}

fn error_of(word: &str) -> Result<FaultError, Failure> {
    Ok(match word.to_ascii_lowercase().as_str() {
        "io" => FaultError::Io,
        "nxio" => FaultError::Gone,
        "corrupt" => FaultError::Corrupt,
        "noop" => FaultError::Noop,
        "dtl" => FaultError::Needed,
        "checksum" => FaultError::Checksum,
        "decompress" => FaultError::Decompress,
        "decrypt" => FaultError::Decrypt,
        _ => return Err(refused(ErrorKind::Invalid, "there is no such error")),
    })
}

/// Kind of I/O that a word means: all (None), or one; free and claim are no I/O of a device here, and probes no kind of their own.
fn io_of(word: &str) -> Result<Option<IoKind>, Failure> {
    Ok(Some(match word.to_ascii_lowercase().as_str() {
        "all" => return Ok(None),
        "read" => IoKind::Read,
        "write" => IoKind::Write,
        "flush" => IoKind::Flush,
        "trim" => IoKind::Trim,
        _ => return Err(refused(ErrorKind::Unsupported, "devices have no I/O of this type here")),
    }))
}

impl Injections {
    /// Makes the list, with no handlers yet.
    pub(crate) fn new(exec: &Exec, pools: &Arc<Pools>) -> Injections {
        Injections { exec: exec.clone(), pools: pools.clone(), all: Mutex::default() }
    }

    /// Name of the pool that a request is about.
    pub(crate) fn pool_of(&self, request: &InjectAdd) -> Result<Option<String>, Failure> {
        Ok(match (&request.pool, &request.fault) {
            (_, Some(InjectFault::File { path, dataset, .. })) => Some(self.dataset_of(path, dataset.as_deref())?.0.name()),
            (pool, _) => pool.clone(),
        })
    }

    /// Adds the handler that a request about a pool asks for.
    pub(crate) fn add(&self, request: &InjectAdd, pool: Option<&str>) -> Result<Response, Failure> {
        let added = match (&request.fault, pool) {
            (Some(fault), Some(pool)) => self.add_handler(pool, fault, request.frequency)?.into_iter().collect(),
            (Some(_), None) => return Err(refused(ErrorKind::Invalid, "no pool is named")),
            (None, _) => Vec::new(),
        };
        if request.flush_cache {
            self.pools.all().iter().for_each(|open| open.pool().cache().clear());
        }
        Ok(Response::Injections(added))
    }

    fn add_handler(&self, pool: &str, fault: &InjectFault, frequency: u32) -> Result<Option<InjectReport>, Failure> {
        let base = InjectReport { pool: pool.to_string(), frequency, ..InjectReport::default() };
        if let InjectFault::PoolDelay { import, seconds } = fault {
            let is_open = self.pools.contains(pool);
            let same = |report: &InjectReport| report.pool == pool && report.pool_delay.is_some_and(|(_, other)| other == *import);
            match (import, is_open) {
                (true, true) => return Err(refused(ErrorKind::Exists, "pool already imported")),
                (false, false) => return Err(refused(ErrorKind::NotFound, "No such file or directory")),
                _ if self.handlers().iter().any(same) => return Err(refused(ErrorKind::Exists, "a handler already exists")),
                _ => {}
            }
            return Ok(Some(self.register(InjectReport { pool_delay: Some((*seconds, *import)), ..base }, None, None)));
        }
        let open = self.pools.open_pool(pool)?;
        if let InjectFault::State { device, faulted } = fault {
            let guid = leaf_guid(&open, device)?;
            let result = if *faulted { open.pool().fault(guid, false) } else { open.pool().degrade(guid) };
            result.map_err(|error| pool_failure("cannot change the state of the device".to_string(), &error))?;
            return Ok(None);
        }
        let (report, fault, until) = self.translate(&open, base, fault)?;
        if matches!(fault, Fault::Leaf(LeafFault::Device { kind: Some(IoKind::Read), .. }))
            && !open.is_read_only()
            && !open.pool().zio().is_suspended()
        {
            // What is only in memory would be read from there. Whether it can be written is no matter of this handler.
            let _ = open.pool().sync();
        }
        let report = self.register(report, Some(fault.clone()), until);
        open.pool().zio().inject(report.id, fault, frequency);
        Ok(Some(report))
    }

    /// Translates a request into a fault of the pipeline.
    fn translate(&self, open: &OpenPool, base: InjectReport, fault: &InjectFault) -> Result<(InjectReport, Fault, Option<u64>), Failure> {
        let plain = |report, fault| Ok((report, fault, None));
        match fault {
            InjectFault::Device { device, error, io, label } => {
                let guid = leaf_guid(open, device)?;
                let report = InjectReport { device: Some(guid.0), io: io.clone(), error: error.clone(), ..base };
                if label.is_none() && io.eq_ignore_ascii_case("probe") {
                    error_of(error)?;
                    return plain(report, Fault::Leaf(LeafFault::Probe { leaf: guid }));
                }
                let Some(label) = label else {
                    return plain(report, Fault::Leaf(LeafFault::Device { leaf: guid, error: error_of(error)?, kind: io_of(io)? }));
                };
                let part = LABEL_PARTS.into_iter().find(|(name, _)| name == label);
                let (_, bytes) = part.ok_or_else(|| refused(ErrorKind::Invalid, "invalid label type"))?;
                plain(report, Fault::Leaf(LeafFault::Label { leaf: guid, bytes }))
            }
            InjectFault::Delay { device, delay_ms, lanes, io } => {
                let guid = leaf_guid(open, device)?;
                if *delay_ms == 0 || *lanes == 0 || *lanes > LANES_MAX {
                    return Err(refused(ErrorKind::Invalid, "Invalid argument"));
                }
                let report = InjectReport { device: Some(guid.0), io: io.clone(), delay: Some((*delay_ms, *lanes)), ..base };
                let delay_ns = delay_ms.saturating_mul(1_000_000);
                plain(report, Fault::Leaf(LeafFault::Delay { leaf: guid, delay_ns, lanes: *lanes as usize, kind: io_of(io)? }))
            }
            InjectFault::File { error, copies, .. } => {
                let blocks = InjectBlocks { copies: *copies, ..self.blocks_of(fault)? };
                plain_blocks(base, blocks, error)
            }
            InjectFault::Block { objset, object, level, block, error } => {
                let at =
                    InjectBlocks { objset: *objset, object: *object, level: *level, range: (*block, *block), ..InjectBlocks::default() };
                plain_blocks(base, InjectBlocks { type_name: "-".to_string(), ..at }, error)
            }
            InjectFault::Meta { kind, error } => {
                let known = META_TYPES.into_iter().find(|(name, _)| name == kind);
                let (name, object_type) = known.ok_or_else(|| refused(ErrorKind::Invalid, "invalid type"))?;
                let number = object_type.map_or(0, |object_type| u64::from(object_type.0));
                let type_name = if object_type.is_some() { name } else { "-" }.to_string();
                let blocks = InjectBlocks { object_type: number, type_name, ..InjectBlocks::default() };
                let report = InjectReport { error: error.clone(), blocks: Some(blocks), ..base };
                plain(report, Fault::Meta { object_type, error: error_of(error)? })
            }
            InjectFault::LostWrites { seconds } => {
                let until = self.exec.now_ns().saturating_add(seconds.saturating_mul(1_000_000_000));
                Ok((InjectReport { lost_writes: Some(*seconds), ..base }, Fault::Leaf(LeafFault::LostWrites), Some(until)))
            }
            InjectFault::State { .. } | InjectFault::PoolDelay { .. } => Err(refused(ErrorKind::Internal, "no fault of I/O")),
        }
    }

    /// Blocks of a file or of its dnode.
    fn blocks_of(&self, fault: &InjectFault) -> Result<InjectBlocks, Failure> {
        let InjectFault::File { path, dataset, inode, dnode, level, range, .. } = fault else {
            return Err(refused(ErrorKind::Internal, "no file"));
        };
        let (open, dataset) = self.dataset_of(path, dataset.as_deref())?;
        let failed = |error: &dyn std::fmt::Display| refused(ErrorKind::NotFound, &error.to_string());
        let handle = open.dsl().hold(&dataset).map_err(|error| failed(&error))?;
        let objset = handle.objset().map_err(|error| failed(&error))?;
        let at = InjectBlocks { objset: handle.object(), type_name: "-".to_string(), level: *level, ..InjectBlocks::default() };
        if *dnode {
            let block = inode << DNODE_SHIFT >> DNODES_SHIFT;
            return Ok(InjectBlocks { range: (block, block), ..at });
        }
        let info = objset.hold(ObjectId(*inode)).and_then(|dnode| dnode.info()).map_err(|error| failed(&error))?;
        if *level > 0 && *level >= u32::from(info.levels) {
            return Err(refused(ErrorKind::Invalid, "block level exceeds max level of object"));
        }
        let range = range.map_or((0, u64::MAX), |(start, end)| {
            // As many blocks below one of this level as pointers fit into the indirect blocks between.
            let shift = level.saturating_mul(u32::from(info.indirect_shift).saturating_sub(7)).min(63);
            let block = |byte: u64| (byte / (info.block_size as u64).max(1)) >> shift;
            (block(start), block(end.max(start + 1) - 1))
        });
        Ok(InjectBlocks { object: *inode, range, ..at })
    }

    /// Pool and dataset that a path is in: the one that is `known` to be it, or the one that is mounted there.
    fn dataset_of(&self, path: &str, known: Option<&str>) -> Result<(Arc<OpenPool>, String), Failure> {
        if let Some(dataset) = known {
            let pool = dataset.split('/').next().unwrap_or(dataset);
            return Ok((self.pools.open_pool(pool)?, dataset.to_string()));
        }
        let found = self.pools.all().into_iter().filter_map(|open| {
            let (place, dataset) = open.mounts.dataset_at(path)?;
            Some((place.len(), open, dataset))
        });
        let best = found.max_by_key(|(length, _, _)| *length);
        let (_, open, dataset) =
            best.ok_or_else(|| because(ErrorKind::NotFound, format!("invalid path '{path}'"), "not a ZFS filesystem"))?;
        Ok((open, dataset))
    }

    fn register(&self, report: InjectReport, fault: Option<Fault>, until_ns: Option<u64>) -> InjectReport {
        let mut all = self.all.lock();
        all.0 += 1;
        let report = InjectReport { id: all.0, ..report };
        all.1.push(Handler { report: report.clone(), fault, until_ns });
        report
    }

    /// Reports of the handlers that there are; those that are over are removed.
    pub(crate) fn handlers(&self) -> Vec<InjectReport> {
        let now = self.exec.now_ns();
        let over: Vec<u64> = {
            let all = self.all.lock();
            all.1.iter().filter(|one| one.until_ns.is_some_and(|until| until <= now)).map(|one| one.report.id).collect()
        };
        over.into_iter().for_each(|id| drop(self.remove_handlers(|report| report.id == id)));
        self.all.lock().1.iter().map(|one| one.report.clone()).collect()
    }

    /// Removes handlers, and says which.
    pub(crate) fn remove_handlers(&self, which: impl Fn(&InjectReport) -> bool) -> Vec<InjectReport> {
        let gone: Vec<Handler> = {
            let mut all = self.all.lock();
            let (gone, kept) = std::mem::take(&mut all.1).into_iter().partition(|one| which(&one.report));
            all.1 = kept;
            gone
        };
        for one in &gone {
            if let Some(open) = self.pools.get(&one.report.pool) {
                open.pool().zio().clear_injection(one.report.id);
            }
        }
        gone.into_iter().map(|one| one.report).collect()
    }

    /// Does `zinject -c`.
    pub(crate) fn clear(&self, id: Option<u64>) -> Result<Response, Failure> {
        let gone = self.remove_handlers(|report| id.is_none_or(|id| id == report.id));
        match id {
            Some(id) if gone.is_empty() => {
                Err(because(ErrorKind::NotFound, format!("failed to remove handler {id}"), "No such file or directory"))
            }
            _ => Ok(Response::Injections(gone)),
        }
    }

    /// Takes the handlers of a pool away for a while.
    pub(crate) fn set_handlers_aside(&self, pool: &str) -> Vec<Handler> {
        let all = self.all.lock().1.clone();
        let aside: Vec<Handler> = all.into_iter().filter(|one| one.report.pool == pool).collect();
        self.remove_handlers(|report| report.pool == pool);
        aside
    }

    /// Puts back handlers that were taken away.
    pub(crate) fn put_handlers_back(&self, handlers: Vec<Handler>) {
        for one in &handlers {
            let open = self.pools.get(&one.report.pool);
            if let (Some(open), Some(fault)) = (open, &one.fault) {
                open.pool().zio().inject(one.report.id, fault.clone(), one.report.frequency);
            }
        }
        self.all.lock().1.extend(handlers);
    }

    /// True when a pool has handlers, which keep it from being exported.
    pub(crate) fn is_injected(&self, pool: &str) -> bool {
        self.handlers().iter().any(|report| report.pool == pool && report.pool_delay.is_none())
    }

    /// Makes an import or export that began at `began_ns` take as long as a handler says; the handler is done then.
    pub(crate) fn injected_delay(&self, pool: &str, import: bool, began_ns: u64) {
        let is_meant = |report: &InjectReport| report.pool == pool && report.pool_delay.is_some_and(|(_, other)| other == import);
        for report in self.remove_handlers(is_meant) {
            let seconds = report.pool_delay.map_or(0, |(seconds, _)| seconds);
            let until = began_ns.saturating_add(seconds.saturating_mul(1_000_000_000));
            self.exec.sleep_ns(until.saturating_sub(self.exec.now_ns()));
        }
    }
}

fn plain_blocks(base: InjectReport, blocks: InjectBlocks, error: &str) -> Result<(InjectReport, Fault, Option<u64>), Failure> {
    let fault = Fault::Blocks {
        objset: ObjsetId(blocks.objset),
        object: ObjectId(blocks.object),
        level: i64::from(blocks.level),
        blocks: blocks.range.0..=blocks.range.1,
        copies: blocks.copies,
        error: error_of(error)?,
    };
    Ok((InjectReport { error: error.to_string(), blocks: Some(blocks), ..base }, fault, None))
}

fn leaf_guid(open: &OpenPool, word: &str) -> Result<Guid, Failure> {
    let tree = open.pool().tree();
    let guid = word.strip_prefix("0x").and_then(|digits| u64::from_str_radix(digits, 16).ok()).map(Guid);
    let is_one = |guid: &Guid| tree.leaf_by_guid(*guid).is_some() || open.pool().caches().iter().any(|cache| cache.guid == *guid);
    let by_name = || find_leaf(&tree, word).map(|leaf| leaf.guid).or_else(|| find_cache(open, word).map(|cache| cache.guid));
    let found = guid.filter(is_one).or_else(by_name);
    found.ok_or_else(|| because(ErrorKind::NotFound, format!("cannot find device '{word}' in pool '{}'", open.name()), "no such device"))
}
