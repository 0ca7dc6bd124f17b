//! The cache's statistics under OpenZFS's names (`arcstats`), so that `arcstat` and exporters read them.
//!
//! Entries that have no counterpart here (kernel memory) are shown as zero: tools expect their names.

use crate::cache::Cache;
use crate::ports::SecondCounts;
use crate::shard::{Access, HEADER_BYTES, Kind, State};
use kstat::{Kstat, Value};

const DEMAND: usize = Access::Demand as usize;
const PREFETCH: usize = Access::Prefetch as usize;
const DATA: usize = Kind::Data as usize;
const METADATA: usize = Kind::Metadata as usize;

const LIVE: [State; 3] = [State::Mru, State::Mfu, State::Uncached];
const LISTS: [(&str, State); 5] = [
    ("mru", State::Mru),
    ("mru_ghost", State::MruGhost),
    ("mfu", State::Mfu),
    ("mfu_ghost", State::MfuGhost),
    ("uncached", State::Uncached),
];

/// Names that tools read and that mean nothing here.
const ZEROS: [&str; 16] = [
    "mutex_miss",
    "access_skip",
    "evict_skip",
    "evict_not_enough",
    "evict_l2_cached",
    "hash_collisions",
    "hash_chains",
    "hash_chain_max",
    "dbuf_size",
    "dnode_size",
    "bonus_size",
    "other_size",
    "anon_size",
    "anon_data",
    "anon_metadata",
    "memory_throttle_count",
];

/// A counter of the second level.
type OfSecond = fn(&SecondCounts) -> u64;

/// Counters of the second level that it keeps itself.
const SECOND: [(&str, OfSecond); 33] = [
    ("l2_size", |counts| counts.logical_bytes),
    ("l2_asize", |counts| counts.allocated_bytes),
    ("l2_hdr_size", |counts| counts.header_bytes),
    ("l2_prefetch_asize", |counts| counts.by_use[0]),
    ("l2_mru_asize", |counts| counts.by_use[1]),
    ("l2_mfu_asize", |counts| counts.by_use[2]),
    ("l2_bufc_data_asize", |counts| counts.by_kind[0]),
    ("l2_bufc_metadata_asize", |counts| counts.by_kind[1]),
    ("l2_feeds", |counts| counts.feeds),
    ("l2_write_bytes", |counts| counts.written_bytes),
    ("l2_writes_sent", |counts| counts.writes[0]),
    ("l2_writes_done", |counts| counts.writes[1]),
    ("l2_writes_error", |counts| counts.write_errors),
    ("l2_rw_clash", |counts| counts.clashes),
    ("l2_evict_reading", |counts| counts.evicted_reading),
    ("l2_abort_lowmem", |counts| counts.short_of_memory),
    ("l2_io_error", |counts| counts.read_errors),
    ("l2_log_blk_writes", |counts| counts.log.writes),
    ("l2_log_blk_avg_asize", |counts| counts.log.mean_bytes),
    ("l2_log_blk_asize", |counts| counts.log.allocated_bytes),
    ("l2_log_blk_count", |counts| counts.log.count),
    ("l2_data_to_meta_ratio", |counts| counts.log.worth),
    ("l2_rebuild_success", |counts| counts.rebuild.success),
    ("l2_rebuild_unsupported", |counts| counts.rebuild.unsupported),
    ("l2_rebuild_io_errors", |counts| counts.rebuild.io_errors),
    ("l2_rebuild_dh_errors", |counts| counts.rebuild.header_errors),
    ("l2_rebuild_cksum_lb_errors", |counts| counts.rebuild.checksum_errors),
    ("l2_rebuild_lowmem", |counts| counts.rebuild.short_of_memory),
    ("l2_rebuild_size", |counts| counts.rebuild.logical_bytes),
    ("l2_rebuild_asize", |counts| counts.rebuild.allocated_bytes),
    ("l2_rebuild_bufs", |counts| counts.rebuild.blocks),
    ("l2_rebuild_bufs_precached", |counts| counts.rebuild.known_blocks),
    ("l2_rebuild_log_blks", |counts| counts.rebuild.log_blocks),
];

impl Cache {
    /// The statistic to be registered as `zfs/arcstats`.
    pub fn kstat(&self) -> Kstat {
        let mut kstat = Kstat::named();
        self.add_counters(&mut kstat);
        self.add_sizes(&mut kstat);
        for (name, count) in SECOND {
            self.entry(&mut kstat, name, move |cache| count(&cache.second_counts()));
        }
        for name in ZEROS {
            kstat.computed(name, || Value::U64(0));
        }
        kstat
    }

    fn entry(&self, kstat: &mut Kstat, name: &str, value: impl Fn(&Cache) -> u64 + Send + Sync + 'static) {
        let cache = self.clone();
        kstat.computed(name, move || Value::U64(value(&cache)));
    }

    fn add_counters(&self, kstat: &mut Kstat) {
        let sum = |table: [[u64; 2]; 2]| -> u64 { table.iter().flatten().sum() };
        self.entry(kstat, "hits", move |cache| sum(cache.counters().hits));
        self.entry(kstat, "iohits", |cache| cache.counters().joined.iter().sum());
        self.entry(kstat, "misses", move |cache| sum(cache.counters().misses));
        for (prefix, access, kind) in [
            ("demand_data", DEMAND, DATA),
            ("demand_metadata", DEMAND, METADATA),
            ("prefetch_data", PREFETCH, DATA),
            ("prefetch_metadata", PREFETCH, METADATA),
        ] {
            self.entry(kstat, &format!("{prefix}_hits"), move |cache| cache.counters().hits[access][kind]);
            let joined = move |cache: &Cache| if access == DEMAND { cache.counters().joined[kind] } else { 0 };
            self.entry(kstat, &format!("{prefix}_iohits"), joined);
            self.entry(kstat, &format!("{prefix}_misses"), move |cache| cache.counters().misses[access][kind]);
        }
        for (index, name) in ["mru", "mfu"].into_iter().enumerate() {
            self.entry(kstat, &format!("{name}_hits"), move |cache| cache.counters().list_hits[index]);
            self.entry(kstat, &format!("{name}_ghost_hits"), move |cache| cache.counters().ghost_hits[index].iter().sum());
        }
        self.entry(kstat, "uncached_hits", |cache| cache.counters().list_hits[2]);
        self.entry(kstat, "demand_hit_predictive_prefetch", |cache| cache.counters().prefetched_hits);
        self.entry(kstat, "demand_iohit_predictive_prefetch", |cache| cache.counters().prefetched_joins);
        self.entry(kstat, "deleted", |cache| cache.counters().evicted);
        self.entry(kstat, "evict_l2_eligible", |cache| cache.counters().second_eligible.iter().sum());
        self.entry(kstat, "evict_l2_eligible_mfu", |cache| cache.counters().second_eligible[1]);
        self.entry(kstat, "evict_l2_eligible_mru", |cache| cache.counters().second_eligible[0]);
        self.entry(kstat, "evict_l2_ineligible", |cache| cache.counters().second_ineligible);
        self.entry(kstat, "l2_hits", |cache| cache.counters().second_hits);
        self.entry(kstat, "l2_misses", |cache| cache.counters().second_misses);
        self.entry(kstat, "l2_read_bytes", |cache| cache.counters().second_bytes);
        self.entry(kstat, "l2_cksum_bad", |cache| cache.counters().second_bad);
        self.entry(kstat, "hash_elements", |cache| cache.fold_states(0, |sum, state| sum + state.shard.entries()));
        self.entry(kstat, "meta", |cache| cache.fractions().meta);
        self.entry(kstat, "pd", |cache| cache.fractions().pd);
        self.entry(kstat, "pm", |cache| cache.fractions().pm);
    }

    fn add_sizes(&self, kstat: &mut Kstat) {
        self.entry(kstat, "c", Cache::max);
        self.entry(kstat, "c_min", |cache| cache.limits().0);
        self.entry(kstat, "c_max", |cache| cache.limits().1);
        self.entry(kstat, "arc_no_grow", |cache| u64::from(cache.is_held()));
        self.entry(kstat, "size", Cache::size);
        self.entry(kstat, "compressed_size", |cache| {
            cache.fold_states(0, |sum, state| {
                let (_, all) = state.shard.compressed_and_all();
                sum + all - state.shard.overhead()
            })
        });
        self.entry(kstat, "uncompressed_size", |cache| {
            cache.fold_states(0, |sum, state| {
                let (compressed, all) = state.shard.compressed_and_all();
                sum + all - compressed
            })
        });
        self.entry(kstat, "overhead_size", |cache| cache.fold_states(0, |sum, state| sum + state.shard.overhead()));
        self.entry(kstat, "hdr_size", |cache| cache.fold_states(0, |sum, state| sum + state.shard.entries() * HEADER_BYTES));
        self.entry(kstat, "data_size", |cache| cache.bytes_of(&LIVE, &[Kind::Data]));
        self.entry(kstat, "metadata_size", |cache| cache.bytes_of(&LIVE, &[Kind::Metadata]));
        self.entry(kstat, "arc_meta_used", |cache| cache.bytes_of(&LIVE, &[Kind::Metadata]));
        for (name, state) in LISTS {
            self.entry(kstat, &format!("{name}_size"), move |cache| cache.bytes_of(&[state], &[Kind::Data, Kind::Metadata]));
            for (suffix, kind) in [("data", Kind::Data), ("metadata", Kind::Metadata)] {
                self.entry(kstat, &format!("{name}_{suffix}"), move |cache| cache.bytes_of(&[state], &[kind]));
                self.entry(kstat, &format!("{name}_evictable_{suffix}"), move |cache| cache.bytes_of(&[state], &[kind]));
            }
        }
    }

    fn bytes_of(&self, states: &[State], kinds: &[Kind]) -> u64 {
        states.iter().flat_map(|&state| kinds.iter().map(move |&kind| self.list_bytes(state, kind))).sum()
    }
}
