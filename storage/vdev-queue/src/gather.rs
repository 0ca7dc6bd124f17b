//! Gathering: on a rotational device that background work streams from, promised I/Os wait for others, so that one excursion of the head
//! serves several (docs/adr/0005-latency-promise.md has the arithmetic).
//!
//! ```text
//!            one waits, its time has not come           `due`              none waits, none is active
//!   nothing ──────────────────────────────────► gathering ───► serving ─────────────────────────────► nothing
//! ```
//! Each waiting I/O is served so early that it is expected to end within the budget, and while one under way would be late the device
//! gets no more of them. How long they wait is ruled by what excursions cost background work (`reach`: little cost, no waiting) and by
//! what waiting brought before (`useful_ns`: nobody waits for others that do not come, as those of a program that reads one block after
//! the other). Constant memory, no clock.

/// The longest that a promised I/O may take beside background work where no target is set, in nanoseconds.
pub(crate) const MAX_NS: u64 = 250_000_000;
/// Time in ns that one promised I/O takes before any was seen, and the most that is believed.
const EACH_NS: u64 = 12_000_000;
const EACH_MAX_NS: u64 = 100_000_000;
/// Time in ns of a promised I/O below which a device has no arm that moves, whatever it says of itself (virtual disks).
const ARM_NS: u64 = 3_000_000;
/// Slack of an I/O over what is expected, in times of an I/O: background I/O that the device has, the way of the head, chance.
const SLACK_IOS: u64 = 2;
/// Slack of I/Os that go with others under way, in times of an I/O.
const JOIN_SLACK_IOS: u64 = 1;
const SLACK_NS: u64 = 18_000_000;
/// Number of the oldest waiting I/Os that are looked at.
const LOOKED_AT: usize = 12;
/// Length in ns of a span over which the time of excursions is summed up.
const SPAN_NS: u64 = 1_000_000_000;
/// Excursions that take more of the time than this (in thousandths) make more wait for others, those that take less than that make fewer.
const DEAR_MILLI: u64 = 180;
const CHEAP_MILLI: u64 = 150;
/// All of the time that the budget leaves.
const REACH: u64 = 8;
/// Number of gatherings that are remembered.
const REMEMBERED: usize = 8;
/// Number of gatherings of which one takes all the time that it may, to see whether somebody comes.
const PROBE_EVERY: u32 = 32;

/// Promised I/Os of the device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Callers {
    /// Time in ns at which the oldest waiting one came.
    pub(crate) oldest_ns: Option<u64>,
    /// Time in ns at which they are to be served at the latest ([`Gather::latest_ns`]).
    pub(crate) latest_ns: u64,
    /// Number of promised I/Os that the device has.
    pub(crate) active: u64,
    /// Time in ns at which the oldest of those came.
    pub(crate) oldest_active_ns: Option<u64>,
    /// True when the head is away from the stream of background work anyway, for reading ahead or a transaction group.
    pub(crate) is_away: bool,
}

/// An excursion under way.
#[derive(Clone, Copy, Debug)]
struct Serving {
    /// Time in ns since when nothing else is in the device.
    since_ns: u64,
    done: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Gather {
    /// Time in ns that a promised I/O took lately: the time of an excursion by the I/Os that it served.
    each_ns: u64,
    /// Begin of the current span, and the time that excursions took in it, both in ns.
    span: (u64, u64),
    /// Part of the time that the budget leaves that is used, in eighths.
    reach: u64,
    /// Time in ns from the first arrival to the last, in the gatherings before.
    useful_ns: [u64; REMEMBERED],
    gatherings: u32,
    last_arrival_ns: u64,
    gathering: bool,
    serving: Option<Serving>,
}

impl Gather {
    pub(crate) fn new() -> Gather {
        Gather {
            each_ns: EACH_NS,
            span: (0, 0),
            reach: 0,
            useful_ns: [MAX_NS; REMEMBERED],
            gatherings: 0,
            last_arrival_ns: 0,
            gathering: false,
            serving: None,
        }
    }

    /// A promised I/O arrived.
    pub(crate) fn arrived(&mut self, now_ns: u64) {
        self.last_arrival_ns = now_ns;
    }

    /// A promised I/O ended.
    pub(crate) fn ended(&mut self) {
        if let Some(serving) = &mut self.serving {
            serving.done += 1;
        }
    }

    /// The device has no background I/O any more.
    pub(crate) fn background_gone(&mut self, now_ns: u64) {
        if let Some(serving) = &mut self.serving {
            serving.since_ns = now_ns;
        }
    }

    /// Time in ns at which waiting I/Os that came at these times, the oldest first, are to be served at the latest.
    pub(crate) fn latest_ns(&self, budget_ns: u64, arrivals: impl Iterator<Item = u64>) -> u64 {
        let each = |(before, arrival): (usize, u64)| {
            let takes = self.each_ns * (before as u64 + 1 + SLACK_IOS) + SLACK_NS;
            arrival + budget_ns.saturating_sub(takes)
        };
        arrivals.take(LOOKED_AT).enumerate().map(each).min().unwrap_or(u64::MAX)
    }

    /// False for what answers too soon to have an arm that moves.
    pub(crate) fn has_arm(&self) -> bool {
        self.each_ns >= ARM_NS
    }

    /// Time in ns at which the waiting ones are to be served.
    pub(crate) fn due_ns(&self, callers: &Callers) -> Option<u64> {
        let oldest_ns = callers.oldest_ns?;
        if self.serving.is_some() || callers.is_away || !self.has_arm() {
            return Some(oldest_ns);
        }
        let most = callers.latest_ns.saturating_sub(oldest_ns);
        let longest = self.useful_ns.iter().max().copied().unwrap_or(0);
        let useful = if self.gatherings.is_multiple_of(PROBE_EVERY) { most } else { longest + longest / 4 };
        Some(oldest_ns + (most * self.reach / REACH).min(useful))
    }

    /// Does what is due now; true when the waiting ones go on waiting.
    pub(crate) fn step(&mut self, budget_ns: u64, callers: &Callers, now_ns: u64) -> bool {
        let Some(oldest_ns) = callers.oldest_ns else {
            if callers.active == 0 {
                self.finish(now_ns);
            }
            return false;
        };
        if let (Some(_), Some(under_way_ns)) = (self.serving, callers.oldest_active_ns) {
            let late = under_way_ns + budget_ns.saturating_sub(self.each_ns * (callers.active + 1 + JOIN_SLACK_IOS) + SLACK_NS);
            return budget_ns > 0 && now_ns > late;
        }
        if callers.active == 0 && self.due_ns(callers).is_some_and(|due_ns| now_ns < due_ns) {
            self.gathering = true;
            return true;
        }
        if self.serving.is_none() {
            self.serve(oldest_ns, now_ns);
        }
        false
    }

    /// Background work gives way, though their time has not come: it has come to the end of what lies in sequence.
    pub(crate) fn interrupt(&mut self, callers: &Callers, now_ns: u64) {
        if callers.oldest_ns.is_some() && self.serving.is_none() {
            // How long others were waited for says nothing of whether more would have come.
            self.gathering = false;
            self.serving = Some(Serving { since_ns: now_ns, done: 0 });
        }
    }

    fn serve(&mut self, oldest_ns: u64, now_ns: u64) {
        if self.gathering {
            self.useful_ns[self.gatherings as usize % REMEMBERED] = self.last_arrival_ns.saturating_sub(oldest_ns);
            self.gatherings = self.gatherings.wrapping_add(1);
        }
        self.gathering = false;
        self.serving = Some(Serving { since_ns: now_ns, done: 0 });
    }

    /// The head may go back to the stream of background work.
    fn finish(&mut self, now_ns: u64) {
        self.gathering = false;
        let Some(Serving { since_ns, done }) = self.serving.take() else { return };
        let took = now_ns.saturating_sub(since_ns);
        if let Some(each) = took.checked_div(done) {
            self.each_ns = self.each_ns - self.each_ns / 16 + each.min(EACH_MAX_NS) / 16;
        }
        let span = now_ns / SPAN_NS;
        if span != self.span.0 {
            self.judge(span);
        }
        // The way back costs what a way there does.
        self.span.1 += took + self.each_ns;
    }

    /// Adapts how long promised I/Os wait to what excursions cost lately.
    fn judge(&mut self, span: u64) {
        let missed = span - self.span.0 - 1;
        let milli = self.span.1 * 1000 / SPAN_NS;
        if milli > DEAR_MILLI {
            self.reach = (self.reach + REACH / 2).min(REACH);
        } else if milli < CHEAP_MILLI {
            self.reach = self.reach.saturating_sub(1);
        }
        self.reach = self.reach.saturating_sub(missed);
        self.span = (span, 0);
    }
}
