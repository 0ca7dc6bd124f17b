//! The circuit breaker of one operation of one provider: a pure state machine, with the time passed in.
//!
//! ```text
//! closed ──failures_max failures within window (failed), or slow_max slow answers in a row (slow)──► open until now + back-off
//! open ──back-off is over (admit: one probe goes)──► half open
//! half open ──probes_to_close successes in a row (succeeded)──► closed, back-off as at first
//! half open ──a probe failed (failed) or was slow (slow)──► open, back-off doubled up to its maximum
//! half open ──a probe gave no answer either way (abandoned)──► half open, the next admit probes again
//! ```
//! It is for what fails, is late, or so slow that software is quicker: a provider that lies is not used any more at all ([`crate::Device::note_verified`]).
//! Work that was admitted while the breaker was closed and ends later changes nothing any more.

use std::collections::VecDeque;

/// Limits at which a breaker opens and closes again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerPolicy {
    /// Number of failures within the window that open it (at least one).
    pub failures_max: u32,
    /// Length of the window, in nanoseconds.
    pub window_ns: u64,
    /// Number of slow answers in a row that open it (at least one).
    pub slow_max: u32,
    /// First back-off, in nanoseconds.
    pub backoff_ns: u64,
    /// Longest back-off, in nanoseconds.
    pub backoff_max_ns: u64,
    /// Number of probes that must succeed one after the other (at least one).
    pub probes_to_close: u32,
}

impl Default for BreakerPolicy {
    fn default() -> BreakerPolicy {
        const SECOND: u64 = 1_000_000_000;
        BreakerPolicy {
            failures_max: 5,
            window_ns: 10 * SECOND,
            slow_max: 3,
            backoff_ns: SECOND,
            backoff_max_ns: 300 * SECOND,
            probes_to_close: 3,
        }
    }
}

/// Answer whether an operation may go to the provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Yes: the operation goes to the provider.
    Go,
    /// Yes, and its outcome decides: say it with [`Breaker::succeeded`], [`Breaker::slow`], [`Breaker::failed`] or [`Breaker::abandoned`].
    Probe,
    /// No: do it in software.
    Refuse,
}

/// State of a breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakerState {
    /// Work goes to the provider.
    Closed,
    /// No work goes to the provider before this time, in nanoseconds.
    Open {
        /// End of the back-off.
        until_ns: u64,
    },
    /// One operation at a time goes to the provider, to see how it is.
    HalfOpen {
        /// True when a probe is there now.
        probing: bool,
        /// Number of probes that succeeded so far.
        successes: u32,
    },
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Breaker {
    policy: BreakerPolicy,
    state: BreakerState,
    /// Times of the last failures, at most `failures_max`.
    failures: VecDeque<u64>,
    /// Number of slow answers since the last one that was not.
    slow: u32,
    next_backoff_ns: u64,
    trips: u64,
}

impl Breaker {
    /// A closed breaker.
    pub fn new(policy: BreakerPolicy) -> Breaker {
        let state = BreakerState::Closed;
        Breaker { policy, state, failures: VecDeque::new(), slow: 0, next_backoff_ns: policy.backoff_ns, trips: 0 }
    }

    /// State of the breaker; one whose back-off is over is open until somebody asks to be admitted.
    pub fn state(&self) -> BreakerState {
        self.state
    }

    /// Number of times that it has opened.
    pub fn trips(&self) -> u64 {
        self.trips
    }

    /// True when [`Breaker::admit`] would let an operation go. Changes nothing.
    pub fn would_admit(&self, now_ns: u64) -> bool {
        match self.state {
            BreakerState::Closed => true,
            BreakerState::Open { until_ns } => now_ns >= until_ns,
            BreakerState::HalfOpen { probing, .. } => !probing,
        }
    }

    /// Decides about an operation.
    pub fn admit(&mut self, now_ns: u64) -> Admission {
        if !self.would_admit(now_ns) {
            return Admission::Refuse;
        }
        let successes = match self.state {
            BreakerState::Closed => return Admission::Go,
            BreakerState::Open { .. } => 0,
            BreakerState::HalfOpen { successes, .. } => successes,
        };
        self.state = BreakerState::HalfOpen { probing: true, successes };
        Admission::Probe
    }

    /// An operation succeeded; `probe` if it was admitted as one.
    pub fn succeeded(&mut self, probe: bool) {
        self.slow = 0;
        let BreakerState::HalfOpen { probing: true, successes } = self.state else { return };
        if !probe {
            return;
        }
        if successes + 1 >= self.policy.probes_to_close {
            self.state = BreakerState::Closed;
            self.failures.clear();
            self.next_backoff_ns = self.policy.backoff_ns;
        } else {
            self.state = BreakerState::HalfOpen { probing: false, successes: successes + 1 };
        }
    }

    /// An operation failed or was late.
    pub fn failed(&mut self, now_ns: u64, probe: bool) {
        match self.state {
            BreakerState::Closed => {
                let oldest = now_ns.saturating_sub(self.policy.window_ns);
                self.failures.retain(|&at| at >= oldest);
                self.failures.push_back(now_ns);
                if self.failures.len() >= self.policy.failures_max as usize {
                    self.trip(now_ns);
                }
            }
            BreakerState::HalfOpen { probing: true, .. } if probe => self.trip(now_ns),
            BreakerState::Open { .. } | BreakerState::HalfOpen { .. } => {}
        }
    }

    /// An operation succeeded, and took so long that software had been quicker.
    pub fn slow(&mut self, now_ns: u64, probe: bool) {
        match self.state {
            BreakerState::Closed => {
                self.slow = self.slow.saturating_add(1);
                if self.slow >= self.policy.slow_max {
                    self.trip(now_ns);
                }
            }
            BreakerState::HalfOpen { probing: true, .. } if probe => self.trip(now_ns),
            BreakerState::Open { .. } | BreakerState::HalfOpen { .. } => {}
        }
    }

    /// A probe ended without an answer to the question (cancelled, not supported, not run).
    pub fn abandoned(&mut self, probe: bool) {
        if let (true, BreakerState::HalfOpen { probing: true, successes }) = (probe, self.state) {
            self.state = BreakerState::HalfOpen { probing: false, successes };
        }
    }

    fn trip(&mut self, now_ns: u64) {
        self.state = BreakerState::Open { until_ns: now_ns.saturating_add(self.next_backoff_ns) };
        self.next_backoff_ns = self.next_backoff_ns.saturating_mul(2).min(self.policy.backoff_max_ns.max(self.policy.backoff_ns));
        self.failures.clear();
        self.slow = 0;
        self.trips += 1;
    }
}
