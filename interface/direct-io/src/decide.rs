//! The decision: from a request and the facts about its file to pieces that tile it.
//!
//! Two behaviours for requests that are not page-aligned: strict (`zfs_dio_strict=1`, OpenZFS 2.3: EINVAL for those that
//! said O_DIRECT) and relaxed (`0`, OpenZFS 2.4: served through the cache, which then lets go of the data). The tests are
//! made in the order in which OpenZFS makes them (`zfs_setup_direct` of either version), because the order shows: a request
//! that is misaligned *and* of a file with `direct=disabled` succeeds.
//!
//! Where OpenZFS's head piece is `offset mod block`, ours ends at the next block boundary, so that no block that a
//! request covers is written through the cache.

use abd::PAGE_BYTES;
use std::ops::Range;

const PAGE: u64 = PAGE_BYTES as u64;

/// Value of the `direct` property (OpenZFS: `zfs_direct_t`), as on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Property {
    /// Value 0: never direct.
    Disabled,
    /// Value 1: direct when the program asks for it (O_DIRECT).
    #[default]
    Standard,
    /// Value 2: always direct, as far as the alignment allows.
    Always,
}

/// Module parameters of direct I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Params {
    /// Direct I/O at all: `zfs_dio_enabled`.
    pub enabled: bool,
    /// Misaligned O_DIRECT is EINVAL: `zfs_dio_strict`.
    pub strict: bool,
}

impl Default for Params {
    fn default() -> Self {
        Params { enabled: true, strict: true }
    }
}

/// Kind of a request: read or write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Request of read(2).
    Read,
    /// Request of write(2).
    Write,
}

/// Alignment of the caller's memory, as far as it is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Memory {
    /// Every buffer starts and ends on a page; or it cannot be known because the kernel copied (FUSE).
    #[default]
    Aligned,
    /// Some buffer does not start or end on a page.
    Misaligned,
}

impl Memory {
    /// Alignment of a slice.
    pub fn of(bytes: &[u8]) -> Memory {
        let aligned = bytes.as_ptr().addr().is_multiple_of(PAGE_BYTES) && bytes.len().is_multiple_of(PAGE_BYTES);
        if aligned { Memory::Aligned } else { Memory::Misaligned }
    }
}

/// Facts that the decision looks at, all of them.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    /// Kind of the request: read or write.
    pub operation: Operation,
    /// True when the request has O_DIRECT.
    pub flagged: bool,
    /// Offset of the first byte.
    pub offset: u64,
    /// Number of bytes.
    pub length: u64,
    /// Alignment of the caller's memory.
    pub memory: Memory,
    /// Value of the `direct` property.
    pub property: Property,
    /// True when the file belongs to a snapshot.
    pub snapshot: bool,
    /// True when somebody has pages of the range mapped or cached above us.
    pub mapped: bool,
    /// Bytes of the file.
    pub file_size: u64,
    /// Data block size of the file in bytes (not the dataset's `recordsize`).
    pub block_size: u64,
    /// Property `recordsize` in bytes.
    pub record_size: u64,
}

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $word:literal, $cure:literal;)*) => {
        /// Reason why (a part of) a request that asked for direct was not direct.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Reason { $($(#[$doc])* $name,)* }
        impl Reason {
            /// Reasons, all of them.
            pub const ALL: &'static [Reason] = &[$(Reason::$name,)*];
            /// Name of the reason in counters and tables.
            pub fn name(self) -> &'static str { match self { $(Reason::$name => $word,)* } }
            /// Advice that would make such requests direct.
            pub fn cure(self) -> &'static str { match self { $(Reason::$name => $cure,)* } }
        }
    };
}

reasons! {
    /// Property `direct=disabled`.
    Disabled = "disabled", "set direct=standard or direct=always on the dataset";
    /// Parameter `zfs_dio_enabled=0`.
    ModuleOff = "module_off", "set the parameter zfs_dio_enabled to 1";
    /// Snapshot: its files are never direct.
    Snapshot = "snapshot", "read from a clone: files of a snapshot are read through the cache";
    /// Pages of the range are cached above.
    Mapped = "mapped", "do not map (mmap) a file that is used with direct I/O";
    /// Offset is no multiple of a page.
    MisalignedOffset = "misaligned_offset", "make offsets multiples of the page size (4096)";
    /// Length is no multiple of a page.
    MisalignedLength = "misaligned_length", "make lengths multiples of the page size (4096)";
    /// Memory is not page-aligned.
    MisalignedMemory = "misaligned_memory", "align the program's buffers to the page size (posix_memalign)";
    /// Write is shorter than a block.
    Short = "short", "write at least one whole block at a time, or lower recordsize before the file is made";
    /// Part before the first block boundary.
    Head = "head", "start writes on a multiple of the file's block size";
    /// Part after the last block boundary.
    Tail = "tail", "end writes on a multiple of the file's block size";
    /// Write made the file's only block larger.
    Growth = "growth", "nothing to do: the first block of a file that grows goes through the cache once";
    /// Bytes before the end of the file that fill no page.
    EofTail = "eof_tail", "make the file's size a multiple of the page size (4096)";
}

/// Way in which a piece is transferred.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// Transfer between the caller's memory and the disks.
    Direct,
    /// Transfer through the cache: `reason` when direct was asked for; `uncached` lets go of the data after use.
    Buffered {
        /// Reason why it is not direct.
        reason: Option<Reason>,
        /// True for OpenZFS 2.4's uncached I/O.
        uncached: bool,
    },
}

/// Part of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Range of bytes of the file.
    pub range: Range<u64>,
    /// Way of the transfer.
    pub how: How,
}

/// Number of pieces of a plan at most: growth, head, whole blocks, tail.
const PIECES_MAX: usize = 4;

/// Plan of a request: its pieces, or its refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    pieces: [Option<Piece>; PIECES_MAX],
    count: usize,
    /// Reason of EINVAL; there are no pieces then.
    pub rejected: Option<Reason>,
    /// True when the request asked for direct (O_DIRECT, or `direct=always`).
    pub asked: bool,
}

impl Plan {
    fn new(asked: bool) -> Plan {
        Plan { pieces: [const { None }; PIECES_MAX], count: 0, rejected: None, asked }
    }

    fn push(&mut self, range: Range<u64>, how: How) {
        if range.start < range.end && self.count < PIECES_MAX {
            self.pieces[self.count] = Some(Piece { range, how });
            self.count += 1;
        }
    }

    /// Pieces in order; they tile the request (of a read: the part before the end of the file).
    pub fn pieces(&self) -> impl Iterator<Item = &Piece> {
        self.pieces.iter().flatten()
    }

    /// True when some piece is direct.
    pub fn has_direct(&self) -> bool {
        self.pieces().any(|piece| piece.how == How::Direct)
    }

    /// True for a write that asked for direct, and goes through the cache as a whole for no other reason than that it is shorter than a block, or
    /// that the file's only block grows with it: with its neighbours it could go direct.
    pub fn is_part(&self) -> bool {
        let is_part = |piece: &Piece| matches!(piece.how, How::Buffered { reason: Some(Reason::Short | Reason::Growth), .. });
        self.count == 1 && self.pieces().all(is_part)
    }

    /// Plan of a request that did not ask for direct: all of it goes through the cache.
    pub fn unasked(range: Range<u64>) -> Plan {
        let mut plan = Plan::new(false);
        plan.push(range, How::Buffered { reason: None, uncached: false });
        plan
    }

    /// Plan of a request that asked for direct and is served through the cache as a whole.
    pub fn buffered(range: Range<u64>, reason: Reason) -> Plan {
        let mut plan = Plan::new(true);
        plan.push(range, How::Buffered { reason: Some(reason), uncached: false });
        plan
    }
}

/// Reason why the request is not page-aligned.
fn misaligned(facts: &Facts) -> Option<Reason> {
    if !facts.offset.is_multiple_of(PAGE) {
        return Some(Reason::MisalignedOffset);
    }
    if !facts.length.is_multiple_of(PAGE) {
        return Some(Reason::MisalignedLength);
    }
    (facts.memory == Memory::Misaligned).then_some(Reason::MisalignedMemory)
}

/// Reason why no part of any request can be direct, whatever its shape.
fn switched_off(facts: &Facts, params: Params) -> Option<Reason> {
    if !params.enabled {
        Some(Reason::ModuleOff)
    } else if facts.snapshot {
        Some(Reason::Snapshot)
    } else {
        (facts.property == Property::Disabled).then_some(Reason::Disabled)
    }
}

/// Verdict on a request as a whole.
enum Verdict {
    Direct,
    Buffered(Reason),
    Invalid(Reason),
}

/// Judges in OpenZFS 2.3's order: off or mapped first, `always` next, EINVAL only for what is left.
fn judge_strict(facts: &Facts, params: Params) -> Verdict {
    if let Some(reason) = switched_off(facts, params) {
        return Verdict::Buffered(reason);
    }
    if facts.mapped {
        return Verdict::Buffered(Reason::Mapped);
    }
    match (misaligned(facts), facts.property) {
        (Some(reason), Property::Always) => Verdict::Buffered(reason),
        (Some(reason), _) => Verdict::Invalid(reason),
        (None, _) => long_enough(facts),
    }
}

/// Judges in OpenZFS 2.4's order without its strict switch: nothing is refused.
fn judge_relaxed(facts: &Facts, params: Params) -> Verdict {
    if let Some(reason) = switched_off(facts, params).or_else(|| misaligned(facts)) {
        return Verdict::Buffered(reason);
    }
    if facts.mapped {
        return Verdict::Buffered(Reason::Mapped);
    }
    long_enough(facts)
}

fn long_enough(facts: &Facts) -> Verdict {
    if facts.operation == Operation::Write && facts.length < facts.block_size { Verdict::Buffered(Reason::Short) } else { Verdict::Direct }
}

/// Cuts a request into direct and buffered pieces, or refuses it. See the file's header.
pub fn decide(facts: &Facts, params: Params) -> Plan {
    let asked = facts.flagged || (facts.property == Property::Always && !facts.snapshot);
    let mut plan = Plan::new(asked);
    let end = facts.offset.saturating_add(facts.length);
    let end = if facts.operation == Operation::Read { end.min(facts.file_size) } else { end };
    // Nothing to transfer: before any check, as OpenZFS's read and write do.
    if facts.offset >= end {
        return plan;
    }
    let whole = facts.offset..end;
    if !asked {
        return Plan::unasked(whole);
    }
    let uncached = !params.strict;
    let verdict = if params.strict { judge_strict(facts, params) } else { judge_relaxed(facts, params) };
    match (verdict, facts.operation) {
        (Verdict::Invalid(reason), _) => plan.rejected = Some(reason),
        (Verdict::Buffered(reason), _) => plan.push(whole, How::Buffered { reason: Some(reason), uncached }),
        (Verdict::Direct, Operation::Read) => cut_read(facts, whole, uncached, &mut plan),
        (Verdict::Direct, Operation::Write) => cut_write(facts, whole, uncached, &mut plan),
    }
    plan
}

/// Cuts a read: it is direct up to the last whole page of the file.
fn cut_read(facts: &Facts, whole: Range<u64>, uncached: bool, plan: &mut Plan) {
    debug_assert!(whole.start.is_multiple_of(PAGE) && facts.length.is_multiple_of(PAGE));
    let pages_end = whole.end - whole.end % PAGE;
    plan.push(whole.start..pages_end, How::Direct);
    plan.push(pages_end..whole.end, How::Buffered { reason: Some(Reason::EofTail), uncached });
}

/// Block size in bytes that a write leaves the file with (`Zfs::grow_block` makes it so).
pub(crate) fn grown_block_size(facts: &Facts, end: u64) -> u64 {
    let block = facts.block_size;
    let grows = end > block && (block < facts.record_size || !block.is_power_of_two()) && facts.file_size <= block;
    if !grows {
        return block;
    }
    let wanted = if block > facts.record_size { end.min(block.next_power_of_two()) } else { end.min(facts.record_size) };
    wanted.next_multiple_of(512).max(block)
}

/// Cuts a write: it is direct for the blocks that it covers; the block that grows goes through the cache once.
fn cut_write(facts: &Facts, whole: Range<u64>, uncached: bool, plan: &mut Plan) {
    let buffered = |reason| How::Buffered { reason: Some(reason), uncached };
    let block = grown_block_size(facts, whole.end);
    let mut start = whole.start;
    if block != facts.block_size && start < block {
        let grown_end = block.min(whole.end);
        plan.push(start..grown_end, buffered(Reason::Growth));
        start = grown_end;
    }
    // A file whose only block is no power of two has no second block: the whole write is in it.
    let (first, last) = (start.next_multiple_of(block), whole.end - whole.end % block);
    if first >= last {
        let reason = if start.is_multiple_of(block) { Reason::Tail } else { Reason::Head };
        // Two pieces where a boundary lies inside: each is charged to its own reason.
        let middle = first.clamp(start, whole.end);
        plan.push(start..middle, buffered(reason));
        plan.push(middle..whole.end, buffered(Reason::Tail));
        return;
    }
    plan.push(start..first, buffered(Reason::Head));
    plan.push(first..last, How::Direct);
    plan.push(last..whole.end, buffered(Reason::Tail));
}
