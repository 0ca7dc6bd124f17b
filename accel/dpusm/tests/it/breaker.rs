//! The circuit breaker against a model that keeps everything that ever happened and looks at it anew each time.

use dpusm::{Admission, Breaker, BreakerPolicy, BreakerState};
use exec::SplitMix;

#[derive(Clone, Copy, Debug)]
enum Event {
    Admit,
    Good { probe: bool },
    Bad { probe: bool },
    Slow { probe: bool },
    Nothing { probe: bool },
}

/// The state after a history, from its definition.
fn model(policy: &BreakerPolicy, history: &[(u64, Event)]) -> (BreakerState, u64) {
    let mut state = BreakerState::Closed;
    // Where in the history the breaker last closed, and how often it opened since (and ever).
    let (mut since, mut in_a_row, mut trips) = (0, 0u32, 0);
    // Slow answers in a row.
    let mut slow = 0;
    for (place, (now, event)) in history.iter().enumerate() {
        let open = |times: u32| {
            let doubled = policy.backoff_ns.saturating_mul(1 << times.min(40));
            BreakerState::Open { until_ns: now + doubled.min(policy.backoff_max_ns) }
        };
        let trip = |in_a_row: &mut u32, trips: &mut u64| {
            let state = open(*in_a_row);
            *in_a_row += 1;
            *trips += 1;
            state
        };
        match event {
            Event::Slow { .. } => slow += 1,
            Event::Good { .. } => slow = 0,
            _ => {}
        }
        state = match (state, event) {
            (BreakerState::Closed, Event::Slow { .. }) if slow >= policy.slow_max => trip(&mut in_a_row, &mut trips),
            (BreakerState::Closed, Event::Bad { .. }) => {
                let failures = history[since..=place]
                    .iter()
                    .filter(|(at, event)| matches!(event, Event::Bad { .. }) && *at + policy.window_ns >= *now)
                    .count();
                if failures >= policy.failures_max as usize { trip(&mut in_a_row, &mut trips) } else { state }
            }
            (BreakerState::Open { until_ns }, Event::Admit) if *now >= until_ns => BreakerState::HalfOpen { probing: true, successes: 0 },
            (BreakerState::HalfOpen { probing: false, successes }, Event::Admit) => BreakerState::HalfOpen { probing: true, successes },
            (BreakerState::HalfOpen { probing: true, .. }, Event::Bad { probe: true } | Event::Slow { probe: true }) => {
                trip(&mut in_a_row, &mut trips)
            }
            (BreakerState::HalfOpen { probing: true, successes }, Event::Nothing { probe: true }) => {
                BreakerState::HalfOpen { probing: false, successes }
            }
            (BreakerState::HalfOpen { probing: true, successes }, Event::Good { probe: true }) => {
                if successes + 1 == policy.probes_to_close {
                    (since, in_a_row) = (place + 1, 0);
                    BreakerState::Closed
                } else {
                    BreakerState::HalfOpen { probing: false, successes: successes + 1 }
                }
            }
            (state, _) => state,
        };
        if state != BreakerState::Closed {
            slow = 0;
        }
    }
    (state, trips)
}

/// A breaker that stays open switches a good device off for ever; one that does not open lets a sick one slow down every block.
#[test]
fn every_history_ends_where_the_model_says() {
    let (mut opened, mut closed_again) = (0, 0);
    for seed in 0..3000 {
        let mut random = SplitMix::new(seed);
        let policy = BreakerPolicy {
            failures_max: 1 + random.below(4) as u32,
            window_ns: 10 + random.below(50) as u64,
            slow_max: 1 + random.below(4) as u32,
            backoff_ns: 1 + random.below(40) as u64,
            backoff_max_ns: 100,
            probes_to_close: 1 + random.below(3) as u32,
        };
        let mut breaker = Breaker::new(policy);
        let mut history = Vec::new();
        let mut now = 1000;
        for _ in 0..60 {
            now += random.below(12) as u64;
            let probe = random.chance(2);
            let event = match random.below(24) {
                0..=7 => Event::Admit,
                8..=12 => Event::Good { probe },
                13..=17 => Event::Bad { probe },
                18..=21 => Event::Slow { probe },
                _ => Event::Nothing { probe },
            };
            let (before, _) = model(&policy, &history);
            match event {
                Event::Admit => {
                    let would = breaker.would_admit(now);
                    let admission = breaker.admit(now);
                    let wanted = match before {
                        BreakerState::Closed => Admission::Go,
                        BreakerState::Open { until_ns } if now < until_ns => Admission::Refuse,
                        BreakerState::HalfOpen { probing: true, .. } => Admission::Refuse,
                        _ => Admission::Probe,
                    };
                    assert_eq!(admission, wanted, "seed {seed} {history:?}");
                    assert_eq!(would, admission != Admission::Refuse, "seed {seed}");
                }
                Event::Good { probe } => breaker.succeeded(probe),
                Event::Bad { probe } => breaker.failed(now, probe),
                Event::Slow { probe } => breaker.slow(now, probe),
                Event::Nothing { probe } => breaker.abandoned(probe),
            }
            history.push((now, event));
            let (after, trips) = model(&policy, &history);
            assert_eq!((breaker.state(), breaker.trips()), (after, trips), "seed {seed} {policy:?} {history:?}");
            opened += u32::from(matches!(after, BreakerState::Open { .. }));
            closed_again += u32::from(after == BreakerState::Closed && before != BreakerState::Closed);
        }
    }
    assert!(opened > 1000 && closed_again > 500, "{opened} {closed_again}");
}
