//! The latency promise: how much background work a device may have while somebody uses it (docs/adr/0005-latency-promise.md).
//!
//! ```text
//!             no promised I/O for QUIET            a promised I/O (`arrived`)
//!   Unbound ◄────────────────────────── Bound ◄────────────────────────────── Unbound
//!                                         │ `share`: background I/Os that the device may have
//!                                         │   one late I/O, or p99 above the limit  → × 7/8, × 1/2   (`observe`, `cut`)
//!                                         │   1024 I/Os in time                     → + 1            (`observe`)
//!                                         │   one above the limit of p99.9          → 2048 must be in time first
//!                                         │ `hold`: nothing new for a moment, to see the idle device (`holds`)
//! ```
//! The limit is the target, or twice the p99 of I/Os that had no background I/O beside them ("alone"). A late I/O counts once per
//! decision: only I/Os that arrived after the last cut can cause another. Constant memory, constant time amortized, no clock.
//! On a rotational device promised I/Os wait for each other instead (`gather`).

use crate::LatencyHistogram;
use crate::gather::MAX_NS;

/// One background I/O at a time, in the unit of `share`.
const ONE: u32 = 1024;
/// The most that `share` can be.
const SHARE_MAX: u32 = 256 * ONE;
/// The least: below one, so that background work waits for a moment in which nobody else does.
const SHARE_MIN: u32 = ONE / 4 * 3;
/// Without promised I/O for this long the device belongs to background work.
const QUIET_NS: u64 = 1_000_000_000;
/// So many samples of the idle device are needed before the limit counts.
const ALONE_MIN: u32 = 256;
/// So many samples of the idle device per era end the holds.
const ALONE_ENOUGH: u32 = 2048;
/// So many samples of the idle device tell its p99.9.
const ALONE_TAIL_MIN: u32 = 1024;
/// After an I/O that took longer than the limit of one in a thousand so many others must be in time before the share grows.
const DEBT_IOS: u32 = 2048;
/// The p99 under load is looked at after so many samples.
const JUDGE_EVERY: u32 = 1024;

/// What background work leaves to those who wait (`background_latency_target`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum LatencyTarget {
    /// No promise: OpenZFS's credit throttle alone.
    Off,
    /// Within twice the idle value.
    #[default]
    Auto,
    /// p99 within so many nanoseconds, or twice the idle value where the idle device does not hold that.
    P99(u64),
}

/// Why background work gets less than it could use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It is not held back.
    None,
    /// OpenZFS's credit throttle: interactive I/O is under way.
    Credit,
    /// The share that the promise leaves is used up.
    Share,
    /// It waits until nobody else waits.
    Yield,
    /// A moment without it, to see what the device does alone.
    Calibration,
}

/// What a user may see of the promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PromiseState {
    /// Why background work was held back when it was last looked at.
    pub reason: Reason,
    /// Whether somebody uses the device.
    pub bound: bool,
    /// Background I/Os that the device may have, in thousandths.
    pub share_milli: u32,
    /// p99 of promised I/O without background I/O beside it, if it is known.
    pub alone_p99_ns: Option<u64>,
    /// p99 of promised I/O with background I/O beside it, if there was any.
    pub beside_p99_ns: Option<u64>,
    /// What it must not exceed, if that is known yet.
    pub limit_ns: Option<u64>,
    /// How often the share was cut.
    pub cuts: u64,
    /// Promised I/Os that took longer than the limit beside background work.
    pub late: u64,
}

/// The longest that a target lets promised I/Os wait for others.
const BUDGET_MAX_NS: u64 = 1_000_000_000;

/// Length of a hold, and the time between holds.
const HOLD_NS: u64 = 20_000_000;
const HOLD_EVERY_NS: u64 = 500_000_000;
/// Time between eras: the idle value is learned anew.
const ERA_NS: u64 = 30_000_000_000;

/// Scattered background I/Os that a rotational device may choose from.
const SCATTERED_IOS: u32 = 3;

/// How a kind of device is treated.
#[derive(Clone, Copy, Debug)]
struct Manner {
    /// Promised I/Os may wait for others to be served together (`gather`), background I/O never joins those that are served, and the
    /// device gets one of it at a time. There is no share, and the idle device need not be seen.
    gathers: bool,
    /// Background work gets one I/O after this long without any, whoever waits.
    starving_ns: u64,
}

impl Manner {
    fn of(rotational: bool) -> Manner {
        Manner { gathers: rotational, starving_ns: if rotational { 500_000_000 } else { 10_000_000 } }
    }
}

/// The controller of one leaf.
#[derive(Clone, Debug)]
pub(crate) struct Promise {
    manner: Manner,
    alone: LatencyHistogram,
    beside: LatencyHistogram,
    limit_ns: Option<u64>,
    /// What one in a thousand may exceed, if that is known, and for how many I/Os the share does not grow because one did.
    tail_ns: Option<u64>,
    debt: u32,
    share: u32,
    last_promised_ns: Option<u64>,
    last_background_ns: u64,
    last_cut_ns: u64,
    since_judged: u32,
    hold_until_ns: u64,
    next_hold_ns: u64,
    era_began_ns: u64,
    era_samples: u32,
    reason: Reason,
    cuts: u64,
    late: u64,
}

/// What may be issued of background work now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    /// The promise has nothing to say: nobody uses the device, or there is none.
    Unbound,
    /// So many background I/Os in all.
    Upto(u32),
    /// One, whoever else waits.
    Starving,
}

/// Who else is there, as [`Promise::room`] needs to know it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Crowd {
    /// Promised I/Os waiting or in the device.
    pub(crate) promised: u32,
    /// Background I/Os in the device.
    pub(crate) background: u32,
    /// They follow each other on the device.
    pub(crate) streams: bool,
}

impl Promise {
    pub(crate) fn new(rotational: bool) -> Promise {
        Promise {
            manner: Manner::of(rotational),
            alone: LatencyHistogram::default(),
            beside: LatencyHistogram::default(),
            limit_ns: None,
            tail_ns: None,
            debt: 0,
            share: ONE,
            last_promised_ns: None,
            last_background_ns: 0,
            last_cut_ns: 0,
            since_judged: 0,
            hold_until_ns: 0,
            next_hold_ns: 0,
            era_began_ns: 0,
            era_samples: 0,
            reason: Reason::None,
            cuts: 0,
            late: 0,
        }
    }

    pub(crate) fn is_bound(&self, now_ns: u64) -> bool {
        self.last_promised_ns.is_some_and(|last| now_ns.saturating_sub(last) < QUIET_NS)
    }

    /// A promised I/O arrived.
    pub(crate) fn arrived(&mut self, now_ns: u64) {
        self.last_promised_ns = Some(now_ns);
    }

    /// Within what time promised I/Os are to be served if they wait for others to share the way of the head; 0: they do not.
    pub(crate) fn budget_ns(&self, target: LatencyTarget) -> u64 {
        match target {
            LatencyTarget::P99(target_ns) if self.manner.gathers => target_ns.min(BUDGET_MAX_NS),
            LatencyTarget::Auto if self.manner.gathers => MAX_NS,
            _ => 0,
        }
    }

    /// A background I/O was issued.
    pub(crate) fn background_issued(&mut self, now_ns: u64) {
        self.last_background_ns = now_ns;
    }

    /// Notes why background work is or is not held back.
    pub(crate) fn note(&mut self, reason: Reason) {
        self.reason = reason;
    }

    /// How many background I/Os the device may have now.
    pub(crate) fn room(&mut self, target: LatencyTarget, crowd: Crowd, now_ns: u64) -> Room {
        if target == LatencyTarget::Off || !self.is_bound(now_ns) && crowd.promised == 0 {
            self.reason = Reason::None;
            return Room::Unbound;
        }
        if crowd.background == 0
            && now_ns.saturating_sub(self.last_background_ns) >= self.manner.starving_ns
            && now_ns >= self.hold_until_ns
        {
            return Room::Starving;
        }
        if !self.manner.gathers && self.holds(now_ns) {
            self.reason = Reason::Calibration;
            return Room::Upto(0);
        }
        if crowd.promised > 0 && (self.manner.gathers || self.share < ONE) {
            self.reason = Reason::Yield;
            return Room::Upto(0);
        }
        let most = if self.manner.gathers && !crowd.streams { SCATTERED_IOS } else { (self.share / ONE).max(1) };
        self.reason = if crowd.background >= most { Reason::Share } else { Reason::None };
        Room::Upto(most)
    }

    /// When [`Promise::room`] may answer differently although nothing happened.
    pub(crate) fn wake_at(&self, now_ns: u64) -> Option<u64> {
        let starving = self.last_background_ns.saturating_add(self.manner.starving_ns);
        let quiet = self.last_promised_ns.map_or(u64::MAX, |last| last.saturating_add(QUIET_NS));
        [self.hold_until_ns, starving, quiet].into_iter().filter(|at| *at > now_ns && *at != u64::MAX).min()
    }

    /// Whether background work pauses so that the idle device can be seen; begins such a pause when one is due.
    fn holds(&mut self, now_ns: u64) -> bool {
        if now_ns < self.hold_until_ns {
            return self.era_samples < ALONE_ENOUGH;
        }
        if now_ns.saturating_sub(self.era_began_ns) >= ERA_NS {
            self.era_began_ns = now_ns;
            self.era_samples = 0;
            self.alone.forget_half();
        }
        if now_ns < self.next_hold_ns || self.era_samples >= ALONE_ENOUGH {
            return false;
        }
        self.hold_until_ns = now_ns + HOLD_NS;
        self.next_hold_ns = now_ns + HOLD_EVERY_NS;
        true
    }

    /// A promised I/O ended: it arrived and took so long, with background I/O beside it or not.
    pub(crate) fn observe(&mut self, target: LatencyTarget, seen: Seen) {
        if seen.alone {
            self.alone.record(seen.latency_ns);
            self.era_samples = self.era_samples.saturating_add(1);
            if self.era_samples.is_multiple_of(32) {
                self.set_limit(target);
            }
            return;
        }
        self.beside.record(seen.latency_ns);
        if self.manner.gathers {
            self.set_limit(target);
            self.late += u64::from(self.limit_ns.is_some_and(|limit| seen.latency_ns > limit));
            return;
        }
        let Some(limit) = self.limit_ns else { return };
        self.since_judged += 1;
        if seen.latency_ns > self.tail_ns.unwrap_or(limit + limit / 4) {
            self.debt = DEBT_IOS;
        }
        if seen.latency_ns > limit {
            self.late += 1;
            if seen.arrived_ns >= self.last_cut_ns {
                self.cut(self.share - self.share / 8, seen);
            }
        } else if self.debt > 0 {
            self.debt -= 1;
        } else if (seen.background + 1).saturating_mul(ONE) >= self.share {
            self.share = (self.share + 1).min(SHARE_MAX);
        }
        if self.since_judged >= JUDGE_EVERY {
            self.since_judged = 0;
            if self.beside.quantile_ns(990).is_some_and(|p99| p99 > limit) {
                self.cut(self.share / 2, seen);
                self.beside.clear();
            }
        }
    }

    fn cut(&mut self, share: u32, seen: Seen) {
        self.share = share.max(SHARE_MIN);
        self.last_cut_ns = seen.arrived_ns.saturating_add(seen.latency_ns);
        self.cuts += 1;
    }

    fn set_limit(&mut self, target: LatencyTarget) {
        if self.manner.gathers {
            self.limit_ns = Some(self.budget_ns(target)).filter(|budget| *budget > 0);
            return;
        }
        let known = self.alone.samples() >= ALONE_MIN;
        let Some(alone) = self.alone.quantile_ns(990).filter(|_| known) else { return };
        // The histogram may say a sixteenth too much.
        let twice = alone * 2 - alone / 8;
        self.limit_ns = match target {
            LatencyTarget::Off => None,
            LatencyTarget::Auto => Some(twice),
            LatencyTarget::P99(target_ns) if alone < target_ns => Some(target_ns),
            LatencyTarget::P99(_) => Some(twice),
        };
        let tail = self.alone.quantile_ns(999).filter(|_| self.alone.samples() >= ALONE_TAIL_MIN);
        self.tail_ns = match target {
            LatencyTarget::P99(_) => Some(u64::MAX),
            _ => tail.map(|alone| (alone * 2 - alone / 8).max(twice)),
        };
    }

    /// The target changed: the limit follows at once.
    pub(crate) fn retarget(&mut self, target: LatencyTarget) {
        self.limit_ns = None;
        self.set_limit(target);
    }

    pub(crate) fn state(&self, now_ns: u64) -> PromiseState {
        PromiseState {
            reason: self.reason,
            bound: self.is_bound(now_ns),
            share_milli: (u64::from(self.share) * 1000 / u64::from(ONE)) as u32,
            alone_p99_ns: self.alone.quantile_ns(990),
            beside_p99_ns: self.beside.quantile_ns(990),
            limit_ns: self.limit_ns,
            cuts: self.cuts,
            late: self.late,
        }
    }
}

/// One promised I/O that ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    pub(crate) arrived_ns: u64,
    pub(crate) latency_ns: u64,
    /// No background I/O was in the device during its life.
    pub(crate) alone: bool,
    /// Background I/Os in the device when it ended.
    pub(crate) background: u32,
}
