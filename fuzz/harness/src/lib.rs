//! Fuzzing: one function for every decoder of what others wrote. It may refuse its input, or take it; it must end, and not panic.
//!
//! The same functions are run in two ways: by [`run`], on mutations of seeds that follow from a number alone, in the gate and by
//! `cargo xtask fuzz`; and by libFuzzer, which is guided by coverage (`fuzz/libfuzzer`). Where a checksum would stop a mutation at the door,
//! the target makes it right.
#![forbid(unsafe_code)]

mod blocks;
mod format;
mod initiators;
mod mutate;
mod objects;
mod pools;
mod received;
mod replay;
mod runner;
mod stored;
mod streams;
mod wire;

pub use runner::{Outcome, run};

/// Target: a decoder, or a few that belong together.
pub struct Target {
    /// Name of the target on command lines.
    pub name: &'static str,
    /// Function that feeds it.
    pub feed: fn(&[u8]),
    /// Function that makes inputs that make sense, to be mutated.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Number of executions that the gate runs: a few seconds of each at most.
    pub quick: u64,
}

const fn target(name: &'static str, feed: fn(&[u8]), seeds: fn() -> Vec<Vec<u8>>, quick: u64) -> Target {
    Target { name, feed, seeds, quick }
}

/// Targets, all of them.
pub const TARGETS: &[Target] = &[
    target("nvlist", format::nvlist, format::nvlist_seeds, 50_000),
    target("label", pools::label, format::nvlist_seeds, 300),
    target("uberblock", format::uberblock, format::uberblock_seeds, 100_000),
    target("blkptr", format::blkptr, format::blkptr_seeds, 100_000),
    target("dnode", format::dnode, format::dnode_seeds, 50_000),
    target("objset", format::objset, format::objset_seeds, 50_000),
    target("records", format::records, format::record_seeds, 50_000),
    target("byteswap", format::byteswap, format::record_seeds, 50_000),
    target("space-map", format::space_map, format::space_map_seeds, 50_000),
    target("cache-device", format::cache_device, format::cache_device_seeds, 10_000),
    target("intent-log", objects::intent_log, objects::intent_log_seeds, 50_000),
    target("log-record", replay::log_record, replay::log_record_seeds, 5_000),
    target("stream", streams::stream, streams::stream_seeds, 20_000),
    target("receive", received::receive, received::receive_seeds, 200),
    target("checksum", format::checksums, format::record_seeds, 20_000),
    target("decompress", format::decompress, format::decompress_seeds, 20_000),
    target("zap", objects::zap, objects::zap_seeds, 3_000),
    target("znode", objects::znode, objects::znode_seeds, 3_000),
    target("block", pools::block, pools::block_seeds, 3_000),
    target("mos", pools::mos, pools::mos_seeds, 20),
    target("fuse", wire::fuse_request, wire::fuse_seeds, 3_000),
    target("nbd", nbd::testing::serve, nbd::testing::conversations, 5_000),
    target("target-frame", wire::frame, wire::frame_seeds, 50_000),
    target("osd-frame", stored::frame, stored::frame_seeds, 50_000),
    target("iscsi", initiators::streams, initiators::stream_seeds, 4_000),
    target("request", wire::request, wire::request_seeds, 50_000),
    target("values", wire::values, wire::value_seeds, 5_000),
];

/// Target of this name.
pub fn by_name(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}
