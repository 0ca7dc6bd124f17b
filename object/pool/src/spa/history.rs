//! The pool's history: a ring of packed lists in one object, whose first record (the creation) stays (OpenZFS:
//! `spa_history.c`).
//!
//! Offsets in the header are logical: they only grow; the place in the object wraps behind the first record.

use super::features::DIRECTORY;
use crate::PoolError;
use dmu::{Dnode, NewObject, Objset, Tx};
use exec::Mutex;
use nvlist::{Encoding, NvList};
use ondisk::{ObjectId, ObjectType};
use std::fmt::Write;
use std::sync::Arc;
use zap::Zap;

const BLOCK_BYTES: usize = 128 << 10;
const SIZE_MIN: u64 = 128 << 10;
const SIZE_MAX: u64 = 1 << 30;
/// Longest record that a reader accepts.
const RECORD_MAX: u64 = 64 << 20;

/// The header of the history, in the bonus: five words (OpenZFS: `spa_history_phys_t`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(clippy::struct_field_names, reason = "the standard's names")]
struct HistoryPhys {
    /// Bytes of the records that stay.
    sh_pool_create_len: u64,
    /// Size of the ring.
    sh_phys_max_off: u64,
    /// Logical offset of the oldest record.
    sh_bof: u64,
    /// Logical offset behind the newest record.
    sh_eof: u64,
    /// Records that were overwritten.
    sh_records_lost: u64,
}

impl HistoryPhys {
    const SIZE: usize = 40;

    fn decode(bytes: &[u8]) -> Option<HistoryPhys> {
        let mut words = bytes.chunks_exact(8).map(|raw| raw.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)));
        Some(HistoryPhys {
            sh_pool_create_len: words.next()?,
            sh_phys_max_off: words.next()?,
            sh_bof: words.next()?,
            sh_eof: words.next()?,
            sh_records_lost: words.next()?,
        })
    }
    fn encode(&self) -> Vec<u8> {
        let words = [self.sh_pool_create_len, self.sh_phys_max_off, self.sh_bof, self.sh_eof, self.sh_records_lost];
        words.into_iter().flat_map(u64::to_le_bytes).collect()
    }
}

/// The history of one pool.
pub(crate) struct History {
    /// None in pools from before version 4.
    object: Mutex<Option<Arc<Dnode>>>,
    /// Records that the next sync writes.
    queue: Mutex<Vec<NvList>>,
    hostname: String,
}

impl History {
    /// Makes the history object; `dspace` is the pool's capacity for data (OpenZFS: `spa_history_create_obj`).
    pub fn create(mos: &Arc<Objset>, hostname: &str, dspace: u64, tx: &Tx) -> Result<History, PoolError> {
        let history = History { object: Mutex::default(), queue: Mutex::default(), hostname: hostname.to_string() };
        history.begin(mos, dspace, tx)?;
        Ok(history)
    }

    /// Makes the history object of a pool that has none.
    pub fn begin(&self, mos: &Arc<Objset>, dspace: u64, tx: &Tx) -> Result<(), PoolError> {
        let new = NewObject {
            block_size: BLOCK_BYTES,
            bonus_type: ObjectType::SPA_HISTORY_OFFSETS,
            bonus_len: HistoryPhys::SIZE,
            ..NewObject::new(ObjectType::SPA_HISTORY)
        };
        let object = mos.allocate_object(new, tx)?;
        Zap::hold(mos, DIRECTORY)?.add_u64("history", object.object().0, tx)?;
        let size = (dspace / 1000).clamp(SIZE_MIN, SIZE_MAX);
        object.set_bonus(&HistoryPhys { sh_phys_max_off: size, ..HistoryPhys::default() }.encode(), tx)?;
        *self.object.lock() = Some(object);
        Ok(())
    }

    /// True where there is one: pools from before version 4 have none.
    pub fn exists(&self) -> bool {
        self.object.lock().is_some()
    }

    /// Opens the history; a pool may have none.
    pub fn open(mos: &Arc<Objset>, hostname: &str) -> Result<History, PoolError> {
        let object = match Zap::hold(mos, DIRECTORY)?.try_lookup_u64("history")? {
            Some(object) => Some(mos.hold(ObjectId(object))?),
            None => None,
        };
        Ok(History { object: Mutex::new(object), queue: Mutex::default(), hostname: hostname.to_string() })
    }

    /// Queues a record for the next sync.
    pub fn log(&self, record: NvList) {
        if self.exists() {
            self.queue.lock().push(record);
        }
    }

    /// Writes the queued records, and gives them back.
    pub fn sync(&self, tx: &Tx) -> Result<Vec<NvList>, PoolError> {
        let Some(object) = self.object.lock().clone() else { return Ok(Vec::new()) };
        let object = &object;
        let mut queue = std::mem::take(&mut *self.queue.lock());
        if queue.is_empty() {
            return Ok(queue);
        }
        let mut phys = header(object)?;
        for record in &mut queue {
            record.set("history hostname", self.hostname.as_str());
            let packed = record.encode(Encoding::NativeLittle);
            let mut bytes = (packed.len() as u64).to_le_bytes().to_vec();
            bytes.extend_from_slice(&packed);
            let stays = phys.sh_pool_create_len == 0 && record.contains("history command");
            if append(object, &mut phys, &bytes, tx)? && stays {
                phys.sh_pool_create_len = phys.sh_eof;
                phys.sh_bof = phys.sh_eof;
            }
        }
        object.set_bonus(&phys.encode(), tx)?;
        Ok(queue)
    }

    /// Every record, oldest first, with those that the next sync writes. Stops at the first that does not decode.
    pub fn read(&self) -> Result<Vec<NvList>, PoolError> {
        let Some(object) = self.object.lock().clone() else { return Ok(Vec::new()) };
        let object = &object;
        let phys = header(object)?;
        let mut records = Vec::new();
        // The creation is in the part that does not wrap; then the ring.
        for (mut at, end) in [(0, phys.sh_pool_create_len), (phys.sh_bof, phys.sh_eof)] {
            while at + 8 <= end {
                let length = u64::from_le_bytes(read(object, &phys, at, 8)?.try_into().unwrap_or_default());
                if length == 0 || length > RECORD_MAX || at + 8 + length > end {
                    break;
                }
                let Ok(record) = NvList::decode(&read(object, &phys, at + 8, length)?) else { break };
                records.push(record);
                at += 8 + length;
            }
        }
        records.extend(self.queue.lock().iter().cloned().map(|mut record| {
            record.set("history hostname", self.hostname.as_str());
            record
        }));
        Ok(records)
    }
}

/// Call of OpenZFS's kernel that a record tells of, with what went in and came out, as `zpool history -i` shows it below the time (OpenZFS:
/// `print_history_records`); None for other records.
pub fn shown_call(record: &NvList) -> Option<String> {
    let mut text = format!("ioctl {}\n", record.get_str("ioctl")?);
    for (name, title) in [("in_nvl", "input"), ("out_nvl", "output")] {
        if let Some(list) = record.get_nvlist(name) {
            // Writing to a String cannot fail.
            let _ = write!(text, "    {title}:\n{}", list.dump(8));
        }
    }
    if let Some(bytes) = record.get_i64("out_size") {
        let _ = writeln!(text, "    output nvlist omitted; original size: {}KB", bytes / 1024);
    }
    if let Some(number) = record.get_i64("errno") {
        let _ = writeln!(text, "    errno: {number}");
    }
    Some(text)
}

fn header(object: &Arc<Dnode>) -> Result<HistoryPhys, PoolError> {
    let damaged = PoolError::Object(object.object(), "the history's header");
    let phys = HistoryPhys::decode(&object.bonus()?).ok_or(damaged.clone())?;
    let ring = phys.sh_phys_max_off.checked_sub(phys.sh_pool_create_len).filter(|ring| *ring > 0);
    let fits = ring.is_some_and(|ring| phys.sh_eof.checked_sub(phys.sh_bof).is_some_and(|used| used <= ring));
    let sound = fits && phys.sh_phys_max_off <= 1 << 40 && phys.sh_eof <= 1 << 60;
    if sound { Ok(phys) } else { Err(damaged) }
}

/// The place in the object of a logical offset (OpenZFS: `spa_history_log_to_phys`).
fn place(phys: &HistoryPhys, logical: u64) -> u64 {
    if logical < phys.sh_pool_create_len {
        return logical;
    }
    let ring = phys.sh_phys_max_off - phys.sh_pool_create_len;
    (logical - phys.sh_pool_create_len) % ring + phys.sh_pool_create_len
}

fn read(object: &Dnode, phys: &HistoryPhys, logical: u64, length: u64) -> Result<Vec<u8>, PoolError> {
    let mut out = vec![0; length as usize];
    let start = place(phys, logical);
    let first = length.min(phys.sh_phys_max_off - start) as usize;
    let (head, tail) = out.split_at_mut(first);
    object.read(start, head)?;
    if !tail.is_empty() {
        object.read(phys.sh_pool_create_len, tail)?;
    }
    Ok(out)
}

/// Appends `bytes`, dropping the oldest records as needed; false when they can't fit at all.
fn append(object: &Dnode, phys: &mut HistoryPhys, bytes: &[u8], tx: &Tx) -> Result<bool, PoolError> {
    let length = bytes.len() as u64;
    let ring = phys.sh_phys_max_off - phys.sh_pool_create_len;
    if length >= ring {
        return Ok(false);
    }
    while ring - (phys.sh_eof - phys.sh_bof) <= length {
        let oldest = u64::from_le_bytes(read(object, phys, phys.sh_bof, 8)?.try_into().unwrap_or_default());
        if oldest == 0 || oldest > phys.sh_eof - phys.sh_bof {
            return Err(PoolError::Object(object.object(), "a record of the history"));
        }
        phys.sh_bof += oldest + 8;
        phys.sh_records_lost += 1;
    }
    let start = place(phys, phys.sh_eof);
    let first = length.min(phys.sh_phys_max_off - start) as usize;
    object.write(start, &bytes[..first], tx)?;
    if first < bytes.len() {
        object.write(phys.sh_pool_create_len, &bytes[first..], tx)?;
    }
    phys.sh_eof += length;
    Ok(true)
}
