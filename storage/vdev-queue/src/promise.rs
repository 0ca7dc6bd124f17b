//! The latency promise: how much background work a device may have while somebody uses it (docs/adr/0005-latency-promise.md).
//!
//! ```text
//!             no promised I/O for QUIET            a promised I/O (`arrived`)
//!   Unbound ◄────────────────────────── Bound ◄────────────────────────────── Unbound
//!                                         │ `share`: background I/Os that the device may have
//!                                         │   too many late I/Os (`allowance`)  → × 7/8               (`was_late`, `cut`)
//!                                         │   p99 above the limit               → × 1/2               (`observe`, `cut`)
//!                                         │   I/Os in time, never cut           → × 2 in about 90 (width 8 and more)     (`grow`)
//!                                         │   I/Os in time, afterwards          → + 1 in 1024, near the last cut in 1024 × width
//!                                         │   too many above the limit of p99.9 → 2048 must be in time first
//!                                         │ `hold`: nothing new for a moment, to see the idle device (`holds`)
//! ```
//! The limit is the target, or twice the p99 of I/Os that had no background I/O beside them ("alone"). Late I/Os are borne as long as they
//! are a quarter of those that may be: a device or host that is late now and then by itself is no sign of harm. Those that were late
//! together count as one: only I/Os that arrived after the last one that counted ended can count. Constant memory, constant time
//! amortized, no clock.
//!
//! What is promised is the p99 of requests, and a request waits for the slowest of `width` leaves. Late I/Os of all of them add up at
//! worst, so each leaf keeps the quantile 1 − 0.01 / width ([`Promise::quantile_ppm`]), of the idle device as of the busy one.
//! On a rotational device promised I/Os wait for each other instead (`gather`).

use crate::allowance::Allowance;
use crate::gather::MAX_NS;
use crate::{Device, LatencyHistogram, LatencyTarget};

/// One background I/O at a time, in the unit of `share`.
const ONE: u32 = 1024;
/// Fractions of an I/O that the share tells apart.
const TURNS: u32 = 4;
/// The most that `share` can be.
const SHARE_MAX: u32 = 256 * ONE;
/// The least that `share` can be: below one, so that background work waits for a moment in which nobody else does.
const SHARE_MIN: u32 = ONE / 4 * 3;
/// Most 1024th parts of itself by which the share grows with each I/O in time until it was first cut; fewer for requests of fewer leaves.
const START_STEP: u32 = 8;
/// Number of cuts of a share below two that do not end that: what comes with the begin of a scan, or by chance, is not to hold it back.
const START_CUTS: u64 = 3;
/// Time in ns without promised I/O after which the device belongs to background work.
const QUIET_NS: u64 = 1_000_000_000;
/// Number of requests in a million that may be late.
const LATE_PPM: u32 = 10_000;
/// Number of samples of the idle device that are needed before the limit counts: they tell its p99.
pub(crate) const ALONE_MIN: u32 = 256;
/// Most leaves that a request counts as waiting for: nobody knows an I/O that is rarer than these make it.
const WIDTH_MAX: u32 = 32;
/// Number of samples of the idle device per era that end the holds.
const ALONE_ENOUGH: u32 = 2048;
/// Number of samples of the idle device that tell its p99.9.
const ALONE_TAIL_MIN: u32 = 1024;
/// Number of requests in a million that may be later than that.
const TAIL_PPM: u32 = 1_000;
/// Number of I/Os that must be in time, after too many took longer than the limit of one in a thousand, before the share grows.
const DEBT_IOS: u32 = 2048;
/// Number of samples after which the p99 under load is looked at.
const JUDGE_EVERY: u32 = 1024;

/// Reason why background work gets less than it could use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Background work is not held back.
    None,
    /// OpenZFS's credit throttle: interactive I/O is under way.
    Credit,
    /// The share that the promise leaves is used up.
    Share,
    /// Background work waits until nobody else waits.
    Yield,
    /// A moment without background work, to see what the device does alone.
    Calibration,
}

/// State of the promise that a user may see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PromiseState {
    /// Reason why background work was held back when it was last looked at.
    pub reason: Reason,
    /// True when somebody uses the device.
    pub bound: bool,
    /// Background I/Os that the device may have, in thousandths.
    pub share_milli: u32,
    /// p99 of promised I/O without background I/O beside it, if it is known.
    pub alone_p99_ns: Option<u64>,
    /// p99 of promised I/O with background I/O beside it, if there was any.
    pub beside_p99_ns: Option<u64>,
    /// Limit in ns that `beside_p99_ns` must not exceed, if it is known yet.
    pub limit_ns: Option<u64>,
    /// Number of times that the share was cut.
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

/// Treatment of a kind of device.
#[derive(Clone, Copy, Debug)]
struct Manner {
    /// True when promised I/Os may wait for others to be served together (`gather`), background I/O never joins those, and the
    /// device gets one of it at a time. There is no share, and the idle device need not be seen.
    gathers: bool,
    /// Background work gets one I/O after this long without any, whoever waits.
    starving_ns: u64,
    /// Number of leaves that a request waits for.
    width: u32,
}

impl Manner {
    fn of(device: Device) -> Manner {
        let starving_ns = if device.rotational { 500_000_000 } else { 10_000_000 };
        Manner { gathers: device.rotational, starving_ns, width: device.width.clamp(1, WIDTH_MAX) }
    }
}

/// The controller of one leaf.
#[derive(Clone, Debug)]
pub(crate) struct Promise {
    manner: Manner,
    alone: LatencyHistogram,
    beside: LatencyHistogram,
    limit_ns: Option<u64>,
    /// Latency in ns that one in a thousand may exceed, if known, and the number of I/Os for which the share does not grow as too many did.
    tail_ns: Option<u64>,
    debt: u32,
    share: u32,
    /// Late I/Os that are borne, by the limit and by `tail_ns`.
    late_borne: Allowance,
    tail_borne: Allowance,
    /// I/Os that were in time since the share grew.
    in_time: u32,
    /// Share that was cut last; none was, if it is the most that there can be.
    late_share: u32,
    last_promised_ns: Option<u64>,
    last_background_ns: u64,
    /// Background I/Os that were issued.
    turn: u32,
    /// Times in ns at which the last late I/O that counted ended, and at which background work had all of its share last.
    last_late_ns: u64,
    full_ns: u64,
    since_judged: u32,
    hold_until_ns: u64,
    era_began_ns: u64,
    era_samples: u32,
    reason: Reason,
    cuts: u64,
    late: u64,
}

/// Background work that may be issued now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    /// The promise has nothing to say: nobody uses the device, or there is none.
    Unbound,
    /// Number of background I/Os in all.
    Upto(u32),
    /// One I/O, whoever else waits.
    Starving,
}

/// Crowd of the device, as [`Promise::room`] needs to know it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Crowd {
    /// Promised I/Os waiting or in the device.
    pub(crate) promised: u32,
    /// Background I/Os in the device.
    pub(crate) background: u32,
    /// True when background I/Os follow each other on the device.
    pub(crate) streams: bool,
}

impl Promise {
    pub(crate) fn new(device: Device) -> Promise {
        let manner = Manner::of(device);
        Promise {
            manner,
            alone: LatencyHistogram::default(),
            beside: LatencyHistogram::default(),
            limit_ns: None,
            tail_ns: None,
            debt: 0,
            share: ONE,
            late_borne: Allowance::new(LATE_PPM / manner.width),
            tail_borne: Allowance::new(TAIL_PPM / manner.width),
            in_time: 0,
            late_share: SHARE_MAX,
            last_promised_ns: None,
            last_background_ns: 0,
            turn: 0,
            last_late_ns: 0,
            full_ns: 0,
            since_judged: 0,
            hold_until_ns: 0,
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
        self.turn = self.turn.wrapping_add(1);
    }

    /// Notes why background work is or is not held back.
    pub(crate) fn note(&mut self, reason: Reason) {
        self.reason = reason;
    }

    /// Number of background I/Os that the device may have now.
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
        let most = if self.manner.gathers && !crowd.streams { SCATTERED_IOS } else { self.whole_share() };
        self.reason = if crowd.background >= most { Reason::Share } else { Reason::None };
        if self.reason == Reason::Share {
            self.full_ns = now_ns;
        }
        Room::Upto(most)
    }

    /// The share in whole I/Os. Where requests wait for many leaves, background work does, too, for the slowest of them: there the fraction
    /// of an I/O is had for that fraction of the time.
    fn whole_share(&self) -> u32 {
        let turn = if self.manner.width > 1 { self.turn % TURNS } else { 0 };
        ((self.share + ONE / TURNS * turn) / ONE).max(1)
    }

    /// Time in ns at which [`Promise::room`] may answer differently although nothing happened.
    pub(crate) fn wake_at(&self, now_ns: u64) -> Option<u64> {
        let starving = self.last_background_ns.saturating_add(self.manner.starving_ns);
        let quiet = self.last_promised_ns.map_or(u64::MAX, |last| last.saturating_add(QUIET_NS));
        [self.hold_until_ns, starving, quiet].into_iter().filter(|at| *at > now_ns && *at != u64::MAX).min()
    }

    /// Learns how long promised I/Os took lately, before there was background work: the idle device need not be waited for.
    pub(crate) fn learned(&mut self, target: LatencyTarget, latencies_ns: &[u64], now_ns: u64) {
        if latencies_ns.is_empty() {
            return;
        }
        // What was learned before counts as long as there is not enough.
        if latencies_ns.len() < ALONE_MIN as usize {
            self.alone.forget_half()
        } else {
            self.alone.clear()
        }
        latencies_ns.iter().for_each(|latency_ns| self.alone.record(*latency_ns));
        self.era_began_ns = now_ns;
        self.era_samples = u32::try_from(latencies_ns.len()).unwrap_or(u32::MAX);
        self.set_limit(target);
    }

    /// True when background work pauses so that the idle device can be seen; begins such a pause when one is due. All leaves pause at the
    /// same time: what they share is then idle too.
    fn holds(&mut self, now_ns: u64) -> bool {
        if now_ns < self.hold_until_ns {
            return self.era_samples < ALONE_ENOUGH;
        }
        if now_ns.saturating_sub(self.era_began_ns) >= ERA_NS {
            self.era_began_ns = now_ns;
            self.era_samples = 0;
            self.alone.forget_half();
        }
        let due_ns = now_ns - now_ns % HOLD_EVERY_NS;
        if now_ns >= due_ns + HOLD_NS || self.era_samples >= ALONE_ENOUGH {
            return false;
        }
        self.hold_until_ns = due_ns + HOLD_NS;
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
        let is_late = seen.latency_ns > limit;
        if is_late {
            self.was_late(seen, limit);
        } else {
            self.late_borne.earn();
            self.tail_borne.earn();
            let is_used = (seen.background + 1).saturating_mul(ONE) >= self.share || self.full_ns >= seen.arrived_ns;
            if self.debt > 0 {
                self.debt -= 1;
            } else if is_used {
                self.grow();
            }
        }
        if self.since_judged >= JUDGE_EVERY * self.manner.width {
            self.since_judged = 0;
            if self.beside.quantile_ns(self.quantile_ppm(u32::MAX)).is_some_and(|reached| reached > limit) {
                self.last_late_ns = seen.arrived_ns.saturating_add(seen.latency_ns);
                self.cut(self.share / 2);
                self.beside.clear();
            }
        }
    }

    fn was_late(&mut self, seen: Seen, limit: u64) {
        self.late += 1;
        // The tail of what many leaves serve is not known: so rare an I/O none of them sees while it is idle.
        let tail_ns = self.tail_ns.or(Some(limit + limit / 4).filter(|_| self.manner.width == 1));
        if tail_ns.is_some_and(|tail| seen.latency_ns > tail) && !self.tail_borne.bears() {
            self.debt = DEBT_IOS;
        }
        if seen.arrived_ns < self.last_late_ns {
            return;
        }
        self.last_late_ns = seen.arrived_ns.saturating_add(seen.latency_ns);
        if !self.late_borne.bears() {
            self.cut(self.share - self.share / 8);
        }
    }

    /// Part of this leaf's I/Os (in millionths) that must be within the limit so that 99 of 100 requests are; the highest that so many
    /// samples tell, if they do not tell that one.
    fn quantile_ppm(&self, samples: u32) -> u32 {
        let told = u64::from(ALONE_MIN) * u64::from(LATE_PPM) / u64::from(samples.max(1));
        1_000_000 - (LATE_PPM / self.manner.width).max(u32::try_from(told).unwrap_or(1_000_000).min(1_000_000))
    }

    /// An I/O was in time while background work had all of its share. Where it was cut before, the share grows so slowly that no more
    /// are late than may be; elsewhere as fast as if requests waited for one leaf, and until it was cut at all by a part of itself: a
    /// resilver that takes seconds is to have what it may in the first of them.
    fn grow(&mut self) {
        let width = self.manner.width;
        let is_near = self.share >= self.late_share - self.late_share / 8;
        if is_near && self.share >= self.late_share {
            self.late_share = SHARE_MAX - 1;
        }
        self.in_time += 1;
        if is_near && self.in_time < width {
            return;
        }
        self.in_time = 0;
        let step = if self.late_share == SHARE_MAX && width > 1 { (width.min(START_STEP) * self.share / ONE).max(1) } else { 1 };
        self.share = (self.share + step).min(SHARE_MAX);
    }

    fn cut(&mut self, share: u32) {
        let is_start = self.late_share == SHARE_MAX && self.share < 2 * ONE && self.cuts < START_CUTS;
        self.late_share = if is_start { SHARE_MAX } else { self.share.min(SHARE_MAX - 1) };
        self.share = share.max(SHARE_MIN);
        self.cuts += 1;
    }

    fn set_limit(&mut self, target: LatencyTarget) {
        if self.manner.gathers {
            self.limit_ns = Some(self.budget_ns(target)).filter(|budget| *budget > 0);
            return;
        }
        let samples = self.alone.samples();
        let Some(alone) = self.alone.quantile_ns(self.quantile_ppm(samples)).filter(|_| samples >= ALONE_MIN) else { return };
        // The histogram may say a sixteenth too much.
        let twice = alone * 2 - alone / 8;
        self.limit_ns = match target {
            LatencyTarget::Off => None,
            LatencyTarget::Auto => Some(twice),
            LatencyTarget::P99(target_ns) if alone < target_ns => Some(target_ns),
            LatencyTarget::P99(_) => Some(twice),
        };
        let width = self.manner.width;
        let tail = self.alone.quantile_ns(1_000_000 - TAIL_PPM / width).filter(|_| samples >= ALONE_TAIL_MIN * width);
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
            alone_p99_ns: self.alone.quantile_ns(990_000),
            beside_p99_ns: self.beside.quantile_ns(990_000),
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
    /// True when no background I/O was in the device during its life.
    pub(crate) alone: bool,
    /// Background I/Os in the device when it ended.
    pub(crate) background: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAVES: usize = 10;
    const TARGET_NS: u64 = 400_000;

    /// Number in a million of records that are later than the target: a column takes 100 µs and an exponential rest, whose mean grows with the
    /// background I/Os in the device.
    fn late_ppm(width: u32, seed: u64) -> usize {
        let mut state = seed;
        let mut uniform = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((state >> 11) + 1) as f64 / (1u64 << 53) as f64
        };
        let target = LatencyTarget::P99(TARGET_NS);
        let mut leaves = vec![Promise::new(Device { rotational: false, width }); LEAVES];
        let (mut late, records) = (0, 400_000u64);
        for record in 0..records + 2_000 {
            let alone = record < 2_000;
            let mut slowest = 0;
            for leaf in &mut leaves {
                let background = if alone { 0 } else { leaf.share / ONE };
                let latency_ns = 100_000 + (-uniform().ln() * f64::from(20_000 + 10_000 * background)) as u64;
                leaf.observe(target, Seen { arrived_ns: record * 1_000_000, latency_ns, alone, background });
                slowest = slowest.max(latency_ns);
            }
            late += usize::from(!alone && slowest > TARGET_NS);
        }
        late * 1_000_000 / records as usize
    }

    /// Who reads a record waits for the slowest of ten leaves: if each kept a p99 of its own, more than one record in a hundred would be
    /// late, as the first line shows.
    #[test]
    fn leaves_that_know_how_many_serve_a_record_keep_the_record_s_p99() {
        for seed in 1..=4 {
            let [apart, together] = [1, LEAVES as u32].map(|width| late_ppm(width, seed));
            assert!(apart > 2 * LATE_PPM as usize, "{apart} of a million are late where leaves know nothing of each other");
            assert!(together <= LATE_PPM as usize, "{together} of a million are late");
            assert!(together > LATE_PPM as usize / 20, "{together} of a million: background work is held back more than it need be");
        }
    }
}
