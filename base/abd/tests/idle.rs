//! What is kept for later, and for how long. A process of its own: nobody else uses the cache meanwhile.

use abd::{Abd, memory_stats, set_cache_bytes_max, trim_idle};

const BURST_BYTES: usize = 96 << 20;

/// What a burst took must not stay for ever, nor be given back while bursts come: each of them would fault it in anew.
#[test]
fn what_nobody_used_since_the_last_look_goes_back() {
    set_cache_bytes_max(4 * BURST_BYTES);
    let burst = || {
        let small: Vec<Abd> = (0..64).map(|_| Abd::scratch(128 << 10)).collect();
        drop((Abd::scratch(BURST_BYTES), small));
    };
    burst();
    let kept = memory_stats().cached_bytes;
    assert!(kept > BURST_BYTES as u64, "{kept}");
    for _ in 0..3 {
        burst();
        assert_eq!(trim_idle() as u64 + memory_stats().cached_bytes, kept);
        assert!(memory_stats().cached_bytes >= BURST_BYTES as u64, "the next burst needs it");
    }
    trim_idle();
    let stats = memory_stats();
    assert!(stats.cached_bytes == 0 && stats.mapped_bytes == 0, "nobody used it: {stats:?}");
}
