//! The whole decision table, both behaviours, and the property that pieces tile a request. Losing a row here means that a
//! program which OpenZFS serves gets EINVAL, or that one which relies on direct I/O silently gets the cache.

use super::*;
use Operation::{Read, Write};
use Property::{Always, Disabled, Standard};

const K: u64 = 1 << 10;
const M: u64 = 1 << 20;
const STRICT: Params = Params { enabled: true, strict: true };
const RELAXED: Params = Params { enabled: true, strict: false };

/// Facts of a file of 8 MiB in blocks of 128 KiB.
fn facts(operation: Operation, property: Property, flagged: bool, offset: u64, length: u64) -> Facts {
    Facts {
        operation,
        flagged,
        offset,
        length,
        memory: Memory::Aligned,
        property,
        snapshot: false,
        mapped: false,
        file_size: 8 * M,
        block_size: 128 * K,
        record_size: 128 * K,
    }
}

/// Line of text for a plan: `D4096 head:512 …`, `-` in front of uncached pieces, `EINVAL:reason`.
fn show(plan: &Plan) -> String {
    if let Some(reason) = plan.rejected {
        return format!("EINVAL:{}", reason.name());
    }
    let pieces = plan.pieces().map(|piece| {
        let bytes = (piece.range.end - piece.range.start) / 512;
        match piece.how {
            How::Direct => format!("D{bytes}"),
            How::Buffered { reason, uncached } => {
                format!(
                    "{}{}{bytes}",
                    if uncached { "-" } else { "" },
                    reason.map_or(String::new(), |reason| format!("{}:", reason.name()))
                )
            }
        }
    });
    pieces.collect::<Vec<_>>().join(" ")
}

fn check(facts: Facts, params: Params, wanted: &str) {
    assert_eq!(show(&decide(&facts, params)), wanted, "{facts:?} {params:?}");
}

/// direct_io §1.3 and §1.4 row by row: property × flag × alignment × operation, and both behaviours. Sizes in sectors.
#[test]
fn the_decision_table() {
    // property, flagged, aligned → (2.3 read, 2.3 write, 2.4 read, 2.4 write) of 256 KiB at 128 KiB, or at 128 KiB + 512.
    let same = |text: &'static str| [text; 4];
    let rows: Vec<(Property, bool, bool, [&str; 4])> = vec![
        (Disabled, false, true, same("512")),
        (Disabled, false, false, same("512")),
        (Disabled, true, true, ["disabled:512", "disabled:512", "-disabled:512", "-disabled:512"]),
        (Disabled, true, false, ["disabled:512", "disabled:512", "-disabled:512", "-disabled:512"]),
        (Standard, false, true, same("512")),
        (Standard, false, false, same("512")),
        (Standard, true, true, same("D512")),
        (
            Standard,
            true,
            false,
            ["EINVAL:misaligned_offset", "EINVAL:misaligned_offset", "-misaligned_offset:512", "-misaligned_offset:512"],
        ),
        (Always, false, true, same("D512")),
        (Always, true, true, same("D512")),
        (Always, false, false, ["misaligned_offset:512", "misaligned_offset:512", "-misaligned_offset:512", "-misaligned_offset:512"]),
        (Always, true, false, ["misaligned_offset:512", "misaligned_offset:512", "-misaligned_offset:512", "-misaligned_offset:512"]),
    ];
    for (property, flagged, aligned, wanted) in rows {
        let offset = if aligned { 128 * K } else { 128 * K + 512 };
        let of = |operation| facts(operation, property, flagged, offset, 256 * K);
        check(of(Read), STRICT, wanted[0]);
        check(of(Write), STRICT, wanted[1]);
        check(of(Read), RELAXED, wanted[2]);
        check(of(Write), RELAXED, wanted[3]);
    }
}

/// Whatever is misaligned is named, the offset first.
#[test]
fn the_kind_of_misalignment() {
    let memory = |offset, length, memory| Facts { memory, ..facts(Read, Standard, true, offset, length) };
    for (offset, length, kind, name) in [
        (512, 4096, Memory::Aligned, "misaligned_offset"),
        (512, 513, Memory::Misaligned, "misaligned_offset"),
        (4096, 512, Memory::Aligned, "misaligned_length"),
        (4096, 4096, Memory::Misaligned, "misaligned_memory"),
    ] {
        let plan = decide(&memory(offset, length, kind), STRICT);
        assert_eq!(plan.rejected.map(Reason::name), Some(name));
        let plan = decide(&memory(offset, length, kind), RELAXED);
        assert_eq!(show(&plan).split(':').next(), Some(&*format!("-{name}")));
    }
}

/// If this fails, writes below a record are never direct, or such go with their neighbours as must not be direct.
#[test]
fn what_is_only_short_is_a_part() {
    let of = |operation, property, offset, length| decide(&facts(operation, property, true, offset, length), STRICT).is_part();
    assert!(of(Write, Standard, 32 * K, 32 * K) && of(Write, Always, 96 * K, 64 * K), "over the end of a block, too");
    let small = Facts { file_size: 4 * K, block_size: 4 * K, ..facts(Write, Standard, true, 4 * K, 8 * K) };
    assert!(decide(&small, STRICT).is_part(), "the only block grows");
    assert!(
        !of(Write, Standard, 0, 128 * K) && !of(Write, Disabled, 0, 4 * K) && !of(Write, Always, 1, 4 * K) && !of(Read, Standard, 0, 4 * K)
    );
    assert!(!decide(&facts(Write, Standard, false, 0, 4 * K), STRICT).is_part(), "nobody asked");
    assert!(!decide(&Facts { mapped: true, ..facts(Write, Standard, true, 0, 4 * K) }, STRICT).is_part());
}

/// The order of the tests: what is off or mapped is buffered before alignment is looked at; past the end nothing is checked.
#[test]
fn the_order_of_the_tests() {
    let off = Params { enabled: false, strict: true };
    check(facts(Write, Standard, true, 1, 1), off, "module_off:0");
    check(facts(Read, Always, false, 0, 4096), off, "module_off:8");
    check(facts(Read, Standard, false, 0, 4096), off, "8");
    let mapped = |property, flagged, offset| Facts { mapped: true, ..facts(Read, property, flagged, offset, 4096) };
    check(mapped(Standard, true, 512), STRICT, "mapped:8");
    check(mapped(Standard, true, 512), RELAXED, "-misaligned_offset:8");
    check(mapped(Standard, true, 0), RELAXED, "-mapped:8");
    check(mapped(Always, false, 0), STRICT, "mapped:8");
    check(mapped(Standard, false, 0), STRICT, "8");
    let snapshot = |flagged, property| Facts { snapshot: true, ..facts(Read, property, flagged, 512, 512) };
    check(snapshot(true, Standard), STRICT, "snapshot:1");
    check(snapshot(true, Always), RELAXED, "-snapshot:1");
    check(snapshot(false, Always), STRICT, "1");
    for offset in [8 * M, 8 * M + 1] {
        check(facts(Read, Standard, true, offset, 7), STRICT, "");
        check(facts(Read, Standard, true, offset, 7), RELAXED, "");
    }
    check(facts(Write, Standard, true, 5, 0), STRICT, "");
    check(facts(Write, Standard, true, 8 * M + 1, 512), STRICT, "EINVAL:misaligned_offset");
}

/// §1.5: whole blocks are direct, the head ends at the next boundary, no block that is covered is buffered.
#[test]
fn writes_are_cut_at_block_boundaries() {
    for (offset, length, wanted) in [
        (0, 128 * K, "D256"),
        (64 * K, 256 * K, "head:128 D256 tail:128"),
        (32 * K, 512 * K, "head:192 D768 tail:64"),
        (4 * K, 512 * K, "head:248 D768 tail:8"),
        (96 * K, 512 * K, "head:64 D768 tail:192"),
        (128 * K, 132 * K, "D256 tail:8"),
        (64 * K, 128 * K, "head:128 tail:128"),
        (128 * K, 64 * K, "short:128"),
        (4 * K, 4 * K, "short:8"),
    ] {
        check(facts(Write, Standard, true, offset, length), STRICT, wanted);
        check(facts(Write, Always, false, offset, length), STRICT, wanted);
        let relaxed = wanted.split(' ').map(|piece| if piece.starts_with('D') { piece.into() } else { format!("-{piece}") });
        check(facts(Write, Standard, true, offset, length), RELAXED, &relaxed.collect::<Vec<_>>().join(" "));
    }
}

/// §1.5: reads know no blocks; the bytes after the last page of the file come through the cache.
#[test]
fn reads_are_cut_at_the_end_of_the_file() {
    let file = |file_size, offset, length| Facts { file_size, ..facts(Read, Standard, true, offset, length) };
    check(file(256 * K - 512, 0, 256 * K), STRICT, "D504 eof_tail:7");
    check(file(256 * K - 512, 0, 256 * K), RELAXED, "D504 -eof_tail:7");
    check(file(1024, 0, 4096), STRICT, "eof_tail:2");
    check(file(8 * M, 4 * K, 4 * K), STRICT, "D8");
    check(file(8 * M, 64 * K, 256 * K), STRICT, "D512");
    check(file(8 * M, 8 * M - 4 * K, M), STRICT, "D8");
}

/// §1.6: the block that a write makes larger goes through the cache, the rest of the request is direct.
#[test]
fn the_first_block_of_a_growing_file_is_buffered() {
    let grow = |file_size, block_size, offset, length| Facts { file_size, block_size, ..facts(Write, Standard, true, offset, length) };
    check(grow(0, 512, 0, M), STRICT, "growth:256 D1792");
    check(grow(0, 512, 0, 128 * K), STRICT, "growth:256");
    check(grow(0, 512, 0, M + 4 * K), STRICT, "growth:256 D1792 tail:8");
    check(grow(8 * K, 8 * K, 8 * K, 8 * K), STRICT, "growth:16");
    check(grow(8 * K, 8 * K, 4 * K, 512 * K), STRICT, "growth:248 D768 tail:8");
    check(grow(8 * K, 8 * K, 128 * K, 256 * K), STRICT, "D512");
    check(grow(8 * K, 8 * K, 0, 8 * K), STRICT, "D16");
    check(grow(128 * K, 128 * K, 128 * K, 128 * K), STRICT, "D256");
    // recordsize was raised after the file got a second block, or lowered: its own block size counts.
    check(Facts { record_size: M, ..grow(256 * K, 128 * K, 256 * K, 128 * K) }, STRICT, "D256");
    check(Facts { record_size: 4 * K, ..grow(256 * K, 128 * K, 0, 64 * K) }, STRICT, "short:128");
    check(Facts { record_size: 4 * K, ..grow(8 * K, 8 * K, 8 * K, 8 * K) }, STRICT, "D16");
}

/// Every byte of a request is in exactly one piece, direct pieces are whole pages (of writes: whole blocks), and nothing that
/// asked for direct is buffered without a reason. A gap would lose bytes, an overlap would write them twice.
#[test]
fn pieces_tile_every_request() {
    let mut seed = 7u64;
    let mut below = |bound: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % bound
    };
    let (mut direct, mut rejected) = (0, 0);
    for _ in 0..200_000 {
        let unit = [1, 512, 4 * K, 4 * K, 16 * K][below(5) as usize];
        let record_size = 512 << below(12);
        let block_size = if below(3) == 0 { 512 * (1 + below(64)) } else { 512 << below(12) };
        // More than one block only of a power of two.
        let limit = if block_size.is_power_of_two() { 2 * M } else { block_size };
        let facts = Facts {
            operation: if below(2) == 0 { Read } else { Write },
            flagged: below(4) > 0,
            offset: below(256) * unit,
            length: below(256) * unit,
            memory: if below(10) == 0 { Memory::Misaligned } else { Memory::Aligned },
            property: [Disabled, Standard, Standard, Always][below(4) as usize],
            snapshot: below(20) == 0,
            mapped: below(20) == 0,
            file_size: below(limit + 1),
            block_size,
            record_size,
        };
        let params = Params { enabled: below(20) > 0, strict: below(2) == 0 };
        let plan = decide(&facts, params);
        let end = facts.offset + facts.length;
        let end = if facts.operation == Read { end.min(facts.file_size) } else { end };
        if plan.rejected.is_some() {
            rejected += 1;
            assert!(params.strict && facts.flagged && facts.property == Standard && plan.pieces().count() == 0, "{facts:?}");
            continue;
        }
        let mut at = facts.offset.min(end);
        for piece in plan.pieces() {
            assert!(piece.range.start == at && piece.range.end > at, "{facts:?} {plan:?}");
            at = piece.range.end;
            match piece.how {
                How::Direct => {
                    direct += 1;
                    let unit = if facts.operation == Read { 4096 } else { grown_of(&facts) };
                    assert!(piece.range.start % unit == 0 && piece.range.end % unit == 0, "{facts:?} {plan:?}");
                }
                How::Buffered { reason, uncached } => assert!(reason.is_some() == plan.asked && (!uncached || !params.strict)),
            }
        }
        assert_eq!(at, end.max(facts.offset.min(end)), "{facts:?} {plan:?}");
    }
    assert!(direct > 10_000 && rejected > 1000, "the draw covers nothing: {direct} {rejected}");
}

fn grown_of(facts: &Facts) -> u64 {
    super::decide::grown_block_size(facts, facts.offset + facts.length)
}

/// Counts at each level are the sums of those below, and every reason has a name and a cure of its own.
#[test]
fn counts_reach_every_level() {
    let pool = DirectStats::new(None);
    let dataset = DirectStats::new(Some(pool.clone()));
    let files = [DirectStats::of_file(dataset.clone()), DirectStats::of_file(dataset.clone())];
    let count = |stats: &DirectStats, facts: Facts| stats.count(&decide(&facts, STRICT), facts.length, facts.operation == Write);
    count(&files[0], facts(Write, Standard, true, 64 * K, 256 * K));
    count(&files[0], facts(Write, Standard, false, 0, 256 * K));
    count(&files[1], facts(Read, Standard, true, 0, 256 * K));
    count(&files[1], facts(Read, Standard, true, 1, 3));
    let (first, second) = (files[0].snapshot(), files[1].snapshot());
    assert_eq!((first.asked, first.direct_writes, first.direct_reads), ((1, 256 * K), (1, 128 * K), (0, 0)));
    assert_eq!((second.asked, second.rejected, second.direct_reads), ((2, 256 * K + 3), (1, 3), (1, 256 * K)));
    files[0].count_coalesced(128 * K);
    for stats in [&pool, &dataset] {
        let sum = stats.snapshot();
        assert_eq!((sum.asked, sum.direct_writes, sum.coalesced_writes), ((3, 512 * K + 3), (1, 128 * K), (1, 128 * K)));
        let reasons: Vec<(&str, u64)> = sum.fallbacks.iter().map(|count| (count.reason.name(), count.bytes)).collect();
        assert_eq!(reasons, [("misaligned_offset", 3), ("head", 64 * K), ("tail", 64 * K)]);
    }
    let names: std::collections::BTreeSet<&str> = Reason::ALL.iter().map(|reason| reason.name()).collect();
    assert_eq!(names.len(), Reason::ALL.len());
    assert!(Reason::ALL.iter().all(|reason| reason.cure().len() > 10));
}
