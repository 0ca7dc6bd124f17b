//! Urgency of I/Os as the kernel's schedulers of devices understand it: classes and levels (ioprio_set(2), `linux/ioprio.h`).
//!
//! Off unless somebody turns it on (`zirconia_vdev_ioprio`). Then each entry of a ring carries the word of its request, and a thread that reads and writes
//! itself takes the word on before; what the kernel refuses for its word goes without. Of the kernel's schedulers `bfq` goes by classes and levels,
//! `mq-deadline` by classes; `kyber` and `none` by neither (docs/adr/0011).
#![expect(unsafe_code, reason = "ioprio_set has no safe wrapper")]

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

/// Urgency of an I/O, the least first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum IoPriority {
    /// Work for which any time will do: filling free space.
    Idle,
    /// Work that nobody waits for: scrubs, removals.
    Background,
    /// Work after which data is safe again: rebuilds.
    Repair,
    /// Not said: what the kernel gives a thread that says nothing.
    #[default]
    Unsaid,
    /// Writes of transaction groups.
    Batch,
    /// Reads ahead.
    Ahead,
    /// I/Os that somebody waits for.
    Awaited,
}

/// Classes of the kernel, as they stand in the upper bits of a word (`IOPRIO_CLASS_SHIFT`).
const REAL_TIME: u16 = 1 << 13;
const BEST_EFFORT: u16 = 2 << 13;
const IDLE: u16 = 3 << 13;
/// Bits of the class in a word.
const CLASSES: u16 = 7 << 13;

/// Owner of the word: one thread (`IOPRIO_WHO_PROCESS`), the calling one.
const ONE_THREAD: libc::c_int = 1;
const OWN_THREAD: libc::c_int = 0;

/// Uses of priorities: none, those that anybody may have, and the real-time class for what somebody waits for.
const OFF: u64 = 0;
const SHARED: u64 = 1;
const FIRST: u64 = 2;

impl IoPriority {
    /// The kernel's word for it; 0 says nothing.
    fn word(self, mode: u64) -> u16 {
        match self {
            _ if mode == OFF => 0,
            IoPriority::Unsaid => 0,
            IoPriority::Idle => IDLE,
            IoPriority::Background => BEST_EFFORT | 7,
            IoPriority::Repair => BEST_EFFORT | 6,
            IoPriority::Batch => BEST_EFFORT | 4,
            IoPriority::Ahead => BEST_EFFORT | 2,
            IoPriority::Awaited if mode == FIRST => REAL_TIME | 4,
            IoPriority::Awaited => BEST_EFFORT,
        }
    }

    /// The word that goes into an entry of a ring now.
    pub(crate) fn current_word(self) -> u16 {
        self.word(MODE.load(Ordering::Relaxed))
    }
}

/// Use that is left of one when the kernel has refused a word: what needs a right goes first, then all.
fn left(mode: u64, word: u16) -> u64 {
    if word & CLASSES == REAL_TIME { mode.min(SHARED) } else { OFF }
}

/// Notes that the kernel refused a word, for which alone it refused an I/O: it is told less from now on, until somebody sets it anew.
pub(crate) fn refused(word: u16) {
    let less = |mode: u64| Some(left(mode, word)).filter(|left| *left != mode);
    if let Ok(before) = MODE.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less) {
        tracing::warn!("the kernel refuses I/O of the priority {word:#06x}: zirconia_vdev_ioprio is as {} in effect", left(before, word));
    }
}

static MODE: AtomicU64 = AtomicU64::new(OFF);

thread_local! {
    /// Word that this thread took on last.
    static TAKEN: Cell<u16> = const { Cell::new(0) };
}

/// Sets whether the kernel is told of priorities: 0 no, 1 best effort and idle, 2 also real time for what somebody waits for. False when the last one is
/// not for this process (it lacks `CAP_SYS_NICE`), which has 1 then.
pub fn set_io_priorities(mode: u64) -> bool {
    let is_refused = mode >= FIRST && !may_be_first();
    MODE.store(if is_refused { SHARED } else { mode.min(FIRST) }, Ordering::Relaxed);
    !is_refused
}

/// True when this process may have the real-time class: the kernel would refuse its I/Os otherwise.
fn may_be_first() -> bool {
    let may = set_own(IoPriority::Awaited.word(FIRST));
    set_own(TAKEN.get());
    may
}

/// Has the I/O that this thread does itself from now on count as one of this priority.
pub(crate) fn take_on(priority: IoPriority) {
    let word = priority.current_word();
    if TAKEN.replace(word) != word && !set_own(word) {
        refused(word);
    }
}

/// Gives this thread a word; false when it may not have it.
fn set_own(word: u16) -> bool {
    // SAFETY: ioprio_set takes three numbers, and touches no memory of this process.
    let outcome = unsafe { libc::syscall(libc::SYS_ioprio_set, ONE_THREAD, OWN_THREAD, libc::c_int::from(word)) };
    outcome == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BlockDevice, DeviceFacts, DeviceIo, DeviceOp, FileDevice};

    /// If this fails, background work goes before what somebody waits for, or an ordinary user's I/Os are refused.
    #[test]
    fn what_is_urgent_is_so_for_the_kernel() {
        use IoPriority::{Ahead, Awaited, Background, Batch, Idle, Repair, Unsaid};
        let all = [Awaited, Ahead, Batch, Repair, Background, Idle];
        for mode in [SHARED, FIRST] {
            let words = all.map(|priority| priority.word(mode));
            assert!(words.is_sorted() && words[0] < words[5], "smaller is sooner: {words:x?}");
            assert_eq!(Unsaid.word(mode), 0);
        }
        assert!(all.map(|priority| priority.word(SHARED)).iter().all(|word| word >> 13 != 1), "real time needs a right");
        assert_eq!((Awaited.word(FIRST), all.map(|priority| priority.word(OFF))), (REAL_TIME | 4, [0; 6]));
        assert!(all.is_sorted_by(|a, b| a > b));
    }

    /// If this fails, a right that this process lost costs it all priorities, or what the kernel refuses is asked of it for ever.
    #[test]
    fn what_the_kernel_refuses_it_is_not_told_again() {
        let (awaited, idle) = (IoPriority::Awaited.word(FIRST), IoPriority::Idle.word(SHARED));
        assert_eq!([OFF, SHARED, FIRST].map(|mode| left(mode, awaited)), [OFF, SHARED, SHARED]);
        assert_eq!([OFF, SHARED, FIRST].map(|mode| left(mode, idle)), [OFF; 3]);
        assert!(IoPriority::Awaited.word(left(FIRST, awaited)) & CLASSES != REAL_TIME);
    }

    /// If this fails, devices without a ring learn of no priority, or a thread keeps the one of another I/O.
    #[test]
    fn a_thread_that_reads_itself_has_the_priority_of_its_request() {
        // Other tests turn it on, too, and nobody off.
        assert!(set_io_priorities(SHARED));
        let own = std::env::current_exe().expect("a program");
        let device = FileDevice::from_file(std::fs::File::open(own).expect("open"), 4096, DeviceFacts::solid("own", "psync"));
        for (priority, expected) in
            [(IoPriority::Background, BEST_EFFORT | 7), (IoPriority::Awaited, BEST_EFFORT), (IoPriority::Idle, IDLE)]
        {
            device.submit(DeviceIo::new(DeviceOp::read(512), 0, drop).with_priority(priority));
            // SAFETY: ioprio_get takes two numbers, and touches no memory of this process.
            let word = unsafe { libc::syscall(libc::SYS_ioprio_get, ONE_THREAD, OWN_THREAD) };
            assert_eq!(word, libc::c_long::from(expected), "{priority:?}");
        }
    }
}
