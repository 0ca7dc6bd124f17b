//! Roaming: background work that can go on anywhere, because it knows much of what it has to do (a scan with its sorted queue). On a
//! rotational device that somebody uses it queues little ahead, and where it goes depends on where the head is.
//!
//! ```text
//!              what is next will end in time                          promised I/Os will be due before what is next ends
//!   anywhere ◄──────────────────────────── a run is about to end ──────────────────────────────────────────► gives way
//!      ▲                                                                                                         │
//!      └─────────────────── they were served: goes on near where the head is ◄───────────────────────────────────┘
//! ```
//! At the end of what lies in sequence the head has to move anyway, so that an excursion costs less there than elsewhere: if promised I/Os
//! wait whose time would come before the end of what is next, they are served first. When their time comes in the middle of a run, nothing
//! more is queued, so that nothing waits at the old place. After an excursion the work goes on near where it ended: a seek across a part
//! of the disk is saved (docs/adr/0005-latency-promise.md).

/// Most bytes of such work that may wait or be in the device while somebody uses it: two large I/Os.
const HELD_BYTES_MAX: u64 = 2 << 20;
/// Time in ns that the head needs to get from one run to the next nearby.
const HOP_NS: u64 = 9_000_000;

/// Work that background work that can go on anywhere may queue now ([`VdevQueue::roam`](crate::VdevQueue::roam)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Roam {
    /// Nothing: enough is queued, or somebody is served or is about to be.
    Wait,
    /// The I/O that follows on the device what was queued last, but nothing elsewhere.
    Onward,
    /// The I/O that comes next, wherever; if there is an offset in bytes, best what begins near it: the head is there.
    Anywhere(Option<u64>),
}

/// State of the queue on which an answer depends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    /// True when somebody uses the device, and it has a head.
    pub(crate) is_held: bool,
    /// True when the device has promised I/Os.
    pub(crate) serves: bool,
    /// True when no background work waits or is in the device.
    pub(crate) is_drained: bool,
    /// Bytes of background work that do.
    pub(crate) held_bytes: u64,
    /// Time until promised I/Os that wait are to be served.
    pub(crate) left_ns: Option<u64>,
    /// Time in ns for `held_bytes`.
    pub(crate) drain_ns: u64,
    /// Time for what lies in sequence at the next place.
    pub(crate) run_ns: u64,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Roamer {
    is_about: bool,
    /// True when it was told to wait until promised I/Os are served.
    gives_way: bool,
    /// Offset in bytes at which the last of them left the head.
    left_at: Option<u64>,
}

impl Roamer {
    pub(crate) fn set_about(&mut self, about: bool) {
        *self = Roamer { is_about: about, gives_way: self.gives_way && about, left_at: self.left_at.filter(|_| about) };
    }

    pub(crate) fn is_about(&self) -> bool {
        self.is_about
    }

    /// True when promised I/Os that are due after so long are to be served now, because the device has nothing else to do.
    pub(crate) fn gives_way(&self, left_ns: Option<u64>) -> bool {
        left_ns.is_some_and(|left_ns| self.gives_way || left_ns <= HOP_NS)
    }

    /// The promised I/Os that the device had were served; the last one ended here.
    pub(crate) fn left(&mut self, offset: u64) {
        self.left_at = Some(offset);
    }

    /// Background work is queued or issued: the head goes there.
    pub(crate) fn goes_on(&mut self) {
        (self.left_at, self.gives_way) = (None, false);
    }

    pub(crate) fn give_way(&mut self) {
        self.gives_way = true;
    }

    /// [`Roamer::judge`], and remembers what was said.
    pub(crate) fn answer(&mut self, moment: &Moment) -> Roam {
        let answer = self.judge(moment);
        self.gives_way = answer == Roam::Wait && moment.left_ns.is_some() && moment.held_bytes < HELD_BYTES_MAX;
        answer
    }

    pub(crate) fn judge(&self, moment: &Moment) -> Roam {
        if !moment.is_held {
            return Roam::Anywhere(None);
        }
        if moment.serves || moment.held_bytes >= HELD_BYTES_MAX {
            return Roam::Wait;
        }
        let is_due_within = |ns: u64| moment.left_ns.is_some_and(|left_ns| left_ns <= ns);
        let fits = !is_due_within(moment.drain_ns.saturating_add(moment.run_ns).saturating_add(HOP_NS));
        match moment.is_drained {
            true if fits => Roam::Anywhere(self.left_at),
            false if fits => Roam::Anywhere(None),
            false if !is_due_within(moment.drain_ns) => Roam::Onward,
            _ => Roam::Wait,
        }
    }
}
