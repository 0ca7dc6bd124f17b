//! The numbers of the five talks, in the order of their slides, each with the way to ours.

use super::cell::{Bare, Cell, Drives, Figure, Nvme, Program, Talk, Way, cell};
use crate::survey::figures::Side;

/// Talks, in the order in which they were given.
pub static TALKS: [Talk; 5] = [
    Talk {
        title: "Hunting for Bottlenecks in ZFS Failure Recovery using NVMe Drives (Bautista, Parga, Manno; LANL, 2020, LA-UR-20-26141)",
        name: "LANL 2020: failure recovery",
        cells: RECOVERY,
    },
    Talk {
        title: "Impact of ZFS Direct I/O on OSD Performance (Brumgard; ORNL, Lustre User Group 2021)",
        name: "ORNL 2021: object storage targets",
        cells: TARGETS,
    },
    Talk {
        title: "OpenZFS and TrueNAS: iSCSI, throughput, IOPS and I/O QoS (Motin; iXsystems, 2021)",
        name: "iXsystems 2021: volumes and iSCSI",
        cells: VOLUMES,
    },
    Talk {
        title: "OpenZFS New Features Including Direct I/O and Compression/Erasure Offloads (Atkinson, Lee; LANL, Ursenbach; Eideticom; 2023, LA-UR-23-25110)",
        name: "LANL 2023: Direct I/O and Z.I.A.",
        cells: OFFLOADS,
    },
    Talk {
        title: "Direct I/O in OpenZFS: not holding it wrong (Piotrowski; Ottawa, 2025)",
        name: "FreeBSD 2025: Direct I/O",
        cells: HOLDING,
    },
];

const LIMIT: &str =
    "A limit of FreeBSD's kernel; Linux has one for each device, and zpool iostat -r shows the sizes of our I/Os. No speed belongs to it.";
const PROFILE: &str = "A profile of FreeBSD's kernel by functions. Here nothing counts time in copies by symbols: copies are counted in bytes instead (the row about copies).";

const fn pool(drives: Drives, parameters: &'static str, figure: Figure) -> Way {
    Way::Pool(drives, parameters, figure)
}

const fn nvme(write_percent: u64, is_sequential: bool, bytes: u64) -> Way {
    Way::Nvme(Nvme { write_percent, is_sequential, bytes })
}

const RECOVERY: &[Cell] = &[
    cell("Disk Benchmarks", "one drive, sequential read, 1 MiB", "3,414 MiB/s", nvme(0, true, 1 << 20)),
    cell("Disk Benchmarks", "one drive, sequential write, 1 MiB", "1,795 to 1,906 MiB/s", nvme(100, true, 1 << 20)),
    cell("Disk Benchmarks", "one drive, random read, 4 KiB", "2,663 to 2,724 MiB/s, 681,698 to 697,216 a second", nvme(0, false, 4096)),
    cell("Disk Benchmarks", "one drive, random write, 4 KiB", "1,457 to 1,675 MiB/s, 373,015 to 428,880 a second", nvme(100, false, 4096)),
    cell("Disk Benchmarks", "one drive, random read and write, 4 KiB, both together", "711 to 745 MiB/s each way", nvme(50, false, 4096)),
    cell(
        "Reported Disk Bandwidths: Baseline",
        "resilver of raidz1 of 10, 60 % full, records of 1 MiB, nothing beside it: writes of the new drive",
        "about 1.3 GiB/s, of 1.5 that the drive can (87 %)",
        Way::Measured(Program::Resilver, |results| results.resilver_share("none")),
    ),
    cell(
        "Reported Disk Bandwidths: Write I/O",
        "the same beside sequential writes",
        "about 1.3 GiB/s and less, of 1.5",
        Way::Measured(Program::Resilver, |results| results.resilver_share("write")),
    ),
    cell(
        "Reported Disk Bandwidths: Seq Read I/O",
        "the same beside sequential reads",
        "about 1.3 GiB/s, where the drives read 3.4",
        Way::Measured(Program::Resilver, |results| results.resilver_share("read")),
    ),
    cell(
        "Reported Disk Bandwidths: Rand Read I/O",
        "the same beside random reads",
        "about 1.3 GiB/s, where the drives read 2.7",
        Way::Measured(Program::Resilver, |results| results.resilver_share("random-read")),
    ),
    cell(
        "CPU Usage by ZFS",
        "processors that a resilver takes, nothing beside it",
        "a plot without numbers in the text",
        Way::Measured(Program::Resilver, |results| results.resilver_cpu("none")),
    ),
    cell(
        "Looking Ahead",
        "rebuild of a dRAID on the same machine",
        "none: the kernel panicked",
        Way::Impossible("There is no number to stand beside; `zbench resilver` measures rebuilds of dRAIDs (docs/bench/recovery.md)."),
    ),
];

const fn bare(drives: Drives, is_aware: bool, side: Side, devices: usize, over: Option<usize>) -> Way {
    Way::Bare(Bare { drives, is_aware, side, devices, over })
}

const TARGETS: &[Cell] = &[
    cell(
        "Hardware",
        "PM1725a in a slot of four lanes, read",
        "6,400 MB/s by its data sheet",
        bare(Drives::OrnlFast, true, Side::Read, 1, None),
    ),
    cell("Hardware", "PM1725a, written", "3,000 MB/s by its data sheet", bare(Drives::OrnlFast, true, Side::Written, 1, None)),
    cell("Hardware", "PM1725b, read", "3,500 MB/s by its data sheet", bare(Drives::Ornl, true, Side::Read, 1, None)),
    cell("Hardware", "PM1725b, written", "2,000 MB/s by its data sheet", bare(Drives::Ornl, true, Side::Written, 1, None)),
    cell(
        "Hardware",
        "controller of 16 lanes with twelve drives, read",
        "less than 15.75 GB/s",
        bare(Drives::Ornl, false, Side::Read, 12, None),
    ),
    cell(
        "Single Block Device",
        "the drive that was defective",
        "/dev/nvme10n1",
        Way::StandsOut("--layers one --devices 24 --failing 10:1000"),
    ),
    cell(
        "Striped Block Device (naive)",
        "reads of 16 bare drives as a multiple of those of 8, in the order of their numbers",
        "no more: a plateau from 4 to 8 drives until 16",
        bare(Drives::Ornl, false, Side::Read, 16, Some(8)),
    ),
    cell(
        "Striped Block Device (PCI-aware)",
        "reads of 24 bare drives as a multiple of those of 4, from both controllers in turn",
        "no more: a limit at 4 drives",
        bare(Drives::Ornl, true, Side::Read, 24, Some(4)),
    ),
    cell(
        "Striped Block Device (PCI-aware)",
        "writes of 24 bare drives as a multiple of those of 4, from both controllers in turn",
        "grow faster than in the naive order",
        bare(Drives::Ornl, true, Side::Written, 24, Some(4)),
    ),
    cell(
        "Striped ZFS (ZPL)",
        "1 MiB reads of a stripe of 24, records of 1 MiB, beside the bare drives",
        "no drop from the raw block access (1 ×)",
        pool(Drives::Ornl, "--layers library --devices 24", Figure::OfBare("cold")),
    ),
    cell(
        "Striped ZFS (ZPL)",
        "1 MiB writes of a stripe of 24, records of 1 MiB, beside the bare drives",
        "no drop from the raw block access (1 ×)",
        pool(Drives::Ornl, "--layers library --devices 24", Figure::OfBare("rewrite")),
    ),
    cell(
        "Striped ZFS (ZPL)",
        "bytes that the drives read for a byte of 32 KiB direct reads, records of 1 MiB",
        "32: every read becomes one of 1 MiB",
        pool(Drives::Ornl, "--layers library --devices 24 --rszlo 32 --rszhi 32", Figure::DeviceBytes("cold")),
    ),
    cell(
        "Striped ZFS (ZPL)",
        "32 KiB direct writes, records of 1 MiB: part that is direct",
        "none: every write goes the buffered path",
        pool(Drives::Ornl, "--layers library --devices 24 --rszlo 32 --rszhi 32", Figure::Direct("rewrite")),
    ),
    cell(
        "Striped ZFS (ZPL)",
        "1 MiB requests, records of 1 MiB: part that is direct",
        "all",
        pool(Drives::Ornl, "--layers library --devices 24", Figure::Direct("rewrite")),
    ),
    cell(
        "Striped ZFS (ZPL)",
        "1 MiB reads as a multiple of 32 KiB reads, records of 32 KiB",
        "nearly the same",
        pool(
            Drives::Ornl,
            "--layers library --devices 24 --record-kib 32",
            Figure::OfOther("cold", "--layers library --devices 24 --record-kib 32 --rszlo 32 --rszhi 32"),
        ),
    ),
    cell(
        "Striped ZFS (ZPL)",
        "1 MiB writes of a stripe of 24, records of 1 MiB",
        "a plot without numbers in the text",
        pool(Drives::Ornl, "--layers library --devices 24", Figure::Rate("rewrite")),
    ),
    cell(
        "OBDFilter Striped ZFS OSD",
        "1 MiB writes of 16 objects over a stripe of 24",
        "a plot without numbers in the text",
        pool(Drives::Ornl, "--layers osd --devices 24", Figure::Rate("rewrite")),
    ),
    cell(
        "OBDFilter Striped ZFS OSD",
        "1 MiB reads of 16 objects over a stripe of 24 beside the bare drives (2,048 threads there, 64 here)",
        "substantially better than through the ZPL, from the cache",
        pool(Drives::Ornl, "--layers osd --devices 24", Figure::OfBare("cold")),
    ),
    cell(
        "OBDFilter Striped ZFS OSD",
        "1 MiB writes of 16 objects over a stripe of 24 as a multiple of those through files",
        "less: writes decrease further",
        pool(Drives::Ornl, "--layers osd --devices 24", Figure::OfOther("rewrite", "--layers library --devices 24")),
    ),
    cell(
        "Direct I/O vs ARC usage",
        "1 MiB writes of objects: part that is direct",
        "a mixture: the patch of Lustre does not align",
        pool(Drives::Ornl, "--layers osd --devices 24", Figure::Direct("rewrite")),
    ),
    cell(
        "Comparison to Buffered",
        "1 MiB reads of objects, direct as a multiple of buffered",
        "less than 1: buffered is equal or better",
        pool(Drives::Ornl, "--layers osd --devices 24", Figure::OfOther("cold", "--layers osd --devices 24 --modes buffered")),
    ),
];

const VOLUMES: &[Cell] = &[
    cell(
        "ZFS-backed iSCSI target benchmarking",
        "iSCSI, sequential read of 256 KiB, Q32T2, over 100 Gb/s from Windows",
        "a bar below 6,000 MB/s (base and now)",
        Way::Measured(Program::Iscsi, |results| results.block_rate("256K Q32 × 2 read", "our iSCSI")),
    ),
    cell(
        "ZFS-backed iSCSI target benchmarking",
        "iSCSI, sequential write of 256 KiB, Q32T2, over 100 Gb/s from Windows",
        "a bar below 6,000 MB/s (base and now)",
        Way::Measured(Program::Iscsi, |results| results.block_rate("256K Q32 × 2 write", "our iSCSI")),
    ),
    cell(
        "Unexpected idle loop disaster",
        "time lost in the handler of idle processors",
        "8 %",
        Way::Impossible("An error of FreeBSD's kernel: a process has no idle loop."),
    ),
    cell(
        "Too many memory copies in ZFS",
        "copies within ZFS for a byte that is read",
        "3, later 2 (1 without compression and scattered buffers)",
        Way::Measured(Program::Matrix, |results| results.direct_copies("library", "read", 4)),
    ),
    cell(
        "New CPU profile (Read)",
        "copies of iSCSI for a byte that is read",
        "2 instead of 4",
        Way::Measured(Program::Iscsi, |results| results.block_copies("256K Q32 × 2 read", "our iSCSI")),
    ),
    cell(
        "New CPU profile (Offloaded write)",
        "copies of iSCSI for a byte that is written",
        "2 (or 1), with a card that offloads iSCSI",
        Way::Measured(Program::Iscsi, |results| results.block_copies("256K Q32 × 2 write", "our iSCSI")),
    ),
    cell(
        "Memory copies in the transmission path",
        "processors of the target for iSCSI reads of 256 KiB",
        "a profile without a number of its own",
        Way::Measured(Program::Iscsi, |results| results.block_cpu("256K Q32 × 2 read", "our iSCSI")),
    ),
    cell("I/O QoS: the problem", "longest wait of random reads at a disk beside a sequential stream", "up to 4 s", Way::DiskWait),
    cell(
        "Raw ZFS throughput benchmarking",
        "read of 1 MiB over twelve volumes, Q1T12, ten drives",
        "15 GB/s: the drives are the limit",
        Way::Measured(Program::Volumes, |results| results.volumes_share("1M Q1 × 12 read", "read")),
    ),
    cell(
        "Raw ZFS throughput benchmarking",
        "rewriting of 1 MiB over twelve volumes, Q1T12, ten drives",
        "18.5 GB/s: the drives are the limit",
        Way::Measured(Program::Volumes, |results| results.volumes_share("1M Q1 × 12 write", "write")),
    ),
    cell(
        "Raw ZFS throughput benchmarking",
        "1 MiB reads of a stripe of ten Gen3 drives, of what the drives give",
        "all: the drives are the limit",
        pool(
            Drives::Gen3,
            "--layers library --devices 10 --nobjlo 12 --nobjhi 12 --thrlo 48 --thrhi 48 --checksum on",
            Figure::PercentOfDrives("cold"),
        ),
    ),
    cell(
        "Raw ZFS throughput profiling (Read)",
        "processors for reads at 15 GB/s: 13 % of 80 threads",
        "0.74 s of processors for a GiB, by these numbers",
        Way::Measured(Program::Volumes, |results| results.volumes_cpu("1M Q1 × 12 read")),
    ),
    cell("Raw ZFS throughput profiling (Read)", "part of it that copies memory", "40 %", Way::Impossible(PROFILE)),
    cell("Raw ZFS throughput profiling (Read)", "part of it that computes checksums", "20 %", Way::Impossible(PROFILE)),
    cell(
        "Raw ZFS throughput profiling (Write)",
        "processors for writes at 18.5 GB/s: 35 % of 80 threads",
        "1.63 s of processors for a GiB, by these numbers",
        Way::Measured(Program::Volumes, |results| results.volumes_cpu("1M Q1 × 12 write")),
    ),
    cell("Raw ZFS throughput profiling (Write)", "parts of it: copies, checksums", "30 %, 15 %", Way::Impossible(PROFILE)),
    cell(
        "Raw ZFS throughput profiling (Write)",
        "part of it that contends for locks: 1 MiB there, 4 KiB over twelve volumes here, directly",
        "10 %",
        Way::Measured(Program::Volumes, |results| results.locks("4K Q4 × 12 write, blocks of 4K, direct")),
    ),
    cell(
        "Raw ZFS IOPS benchmarking",
        "4 KiB reads over twelve volumes, Q4T12",
        "365,000 blocks a second, at 35 % of 80 threads",
        Way::Measured(Program::Volumes, |results| results.block_requests("4K Q4 × 12 read", "blocks of 4K, direct")),
    ),
    cell(
        "Raw ZFS IOPS benchmarking",
        "4 KiB writes over twelve volumes, Q4T12",
        "248,000 blocks a second, at 30 % of 80 threads",
        Way::Measured(Program::Volumes, |results| results.block_requests("4K Q4 × 12 write", "blocks of 4K, direct")),
    ),
    cell(
        "Raw ZFS IOPS profiling (Read)",
        "part of it that contends for locks, primarily for evictions of the cache",
        "12 %, and 7 % in the scheduler of processors",
        Way::Impossible("Only writes are profiled, the worse case there: see the next row."),
    ),
    cell(
        "Raw ZFS IOPS profiling (Write)",
        "part of it that contends for locks, through the cache",
        "43 %, and 4 % in the thread that syncs",
        Way::Measured(Program::Volumes, |results| results.locks("4K Q4 × 12 write, blocks of 4K, cached")),
    ),
    cell("MAXPHYS of 1MB", "largest I/O that is not split", "1 MB", Way::Impossible(LIMIT)),
];

const SHARE_READ: Figure = Figure::PercentOfDrives("cold");
const SHARE_WRITE: Figure = Figure::PercentOfDrives("rewrite");
const STRIPE: &str = "--layers library --devices 12 --checksum on";
const RAIDZ1: &str = "--layers library --layout raidz1:12 --checksum on";
const RAIDZ2: &str = "--layers library --layout raidz2:12 --checksum on";
const DRAID1: &str = "--layers library --layout draid1:11d:12c:0s --checksum on";
const DRAID2: &str = "--layers library --layout draid2:10d:12c:0s --checksum on";

const OFFLOADS: &[Cell] = &[
    cell(
        "Motivation",
        "speed of Direct I/O as a multiple of buffered: writes of 1 MiB, stripe of four, in memory here",
        "1.5 to 3 × on average",
        Way::Measured(Program::Matrix, |results| results.direct_ratio("library", "write", 4)),
    ),
    cell(
        "Motivation",
        "speed of Direct I/O as a multiple of buffered: reads of 1 MiB, stripe of four, in memory here",
        "1.5 to 3 × on average",
        Way::Measured(Program::Matrix, |results| results.direct_ratio("library", "read", 4)),
    ),
    cell(
        "ZFS Seq. Read gen3",
        "stripe of 12, of the bandwidth of the drives with data, O_DIRECT, 1 MiB",
        "99 %",
        pool(Drives::Gen3, STRIPE, SHARE_READ),
    ),
    cell("ZFS Seq. Read gen3", "raidz1 of 11+1", "92 %", pool(Drives::Gen3, RAIDZ1, SHARE_READ)),
    cell("ZFS Seq. Read gen3", "raidz2 of 10+2", "95 %", pool(Drives::Gen3, RAIDZ2, SHARE_READ)),
    cell("Seq. Write gen3", "stripe of 12", "99 %", pool(Drives::Gen3, STRIPE, SHARE_WRITE)),
    cell("Seq. Write gen3", "raidz1 of 11+1", "93 %", pool(Drives::Gen3, RAIDZ1, SHARE_WRITE)),
    cell("Seq. Write gen3", "raidz2 of 10+2", "92 %", pool(Drives::Gen3, RAIDZ2, SHARE_WRITE)),
    cell("ZFS Seq. Read gen4", "stripe of 12", "99 %", pool(Drives::Gen4, STRIPE, SHARE_READ)),
    cell("ZFS Seq. Read gen4", "raidz1 of 11+1", "97 %", pool(Drives::Gen4, RAIDZ1, SHARE_READ)),
    cell("ZFS Seq. Read gen4", "raidz2 of 10+2", "97 %", pool(Drives::Gen4, RAIDZ2, SHARE_READ)),
    cell("ZFS Seq. Write gen4", "stripe of 12", "97 %", pool(Drives::Gen4, STRIPE, SHARE_WRITE)),
    cell("ZFS Seq. Write gen4", "raidz1 of 11+1", "92 %", pool(Drives::Gen4, RAIDZ1, SHARE_WRITE)),
    cell("ZFS Seq. Write gen4", "raidz2 of 10+2", "91 %", pool(Drives::Gen4, RAIDZ2, SHARE_WRITE)),
    cell("ZFS Seq. Read gen4: dRAID", "dRAID1 of 11d:12c", "76 %", pool(Drives::Gen4, DRAID1, SHARE_READ)),
    cell("ZFS Seq. Read gen4: dRAID", "dRAID2 of 10d:12c", "78 %", pool(Drives::Gen4, DRAID2, SHARE_READ)),
    cell("ZFS Seq. Write gen4: dRAID", "dRAID1 of 11d:12c", "73 %", pool(Drives::Gen4, DRAID1, SHARE_WRITE)),
    cell("ZFS Seq. Write gen4: dRAID", "dRAID2 of 10d:12c", "72 %", pool(Drives::Gen4, DRAID2, SHARE_WRITE)),
    cell(
        "Demonstration: memory pressure on the ARC",
        "sixteen files, raidz2 of 12, gzip, records of 1 MiB, no offload",
        "about 1 GB/s on 64 threads: memory is the limit, by compression",
        Way::Measured(Program::Zia, |results| results.zia_rate("software, no provider")),
    ),
    cell(
        "Enable Offloading with Z.I.A.",
        "the same with compression, checksums, parity and writes offloaded",
        "\"Much faster!\"",
        Way::Measured(Program::Zia, |results| results.zia_rate("modelled cards, Z.I.A.")),
    ),
    cell(
        "Enable Offloading with Z.I.A.",
        "the same as a multiple of software",
        "a plot without numbers in the text",
        Way::Measured(Program::Zia, |results| results.zia_ratio("modelled cards, Z.I.A.", "software, no provider")),
    ),
    cell(
        "Doesn't ZFS already support offloading?",
        "data that stay on the card as a multiple of each operation offloaded by itself, as QAT",
        "each offload is done independently of the others: no number",
        Way::Measured(Program::Zia, |results| results.zia_ratio("modelled cards, Z.I.A.", "modelled cards, per operation")),
    ),
    cell(
        "Direct I/O Write Continued",
        "direct writes that are verified before their pointers are written",
        "2 % by default",
        Way::Impossible("A setting, no measurement: ours is the parameter zfs_vdev_direct_write_verify (docs/parameters.md)."),
    ),
];

const ONE: Drives = Drives::Gen3;
const SMALL: &str = "--layers library --devices 1 --size 64 --nobjlo 512 --nobjhi 512 --thrlo 512 --thrhi 512 --rszlo 128 --rszhi 128";
const FOUR: &str = "--layers library --devices 1 --nobjlo 4 --nobjhi 4 --thrlo 4 --thrhi 4";
const FOUR_SMALL: &str = "--layers library --devices 1 --nobjlo 4 --nobjhi 4 --thrlo 4 --thrhi 4 --rszlo 128 --rszhi 128";
const FOUR_LARGE: &str = "--layers library --devices 1 --nobjlo 4 --nobjhi 4 --thrlo 4 --thrhi 4 --rszlo 16384 --rszhi 16384";

const HOLDING: &[Cell] = &[
    cell(
        "Iteration #1",
        "many files smaller than their records (128 KiB of 1 MiB): direct as a multiple of buffered",
        "0.98 × (12.342 s and 12.140 s)",
        pool(
            ONE,
            SMALL,
            Figure::OfOther(
                "write",
                "--layers library --devices 1 --size 64 --nobjlo 512 --nobjhi 512 --thrlo 512 --thrhi 512 --rszlo 128 --rszhi 128 --modes buffered",
            ),
        ),
    ),
    cell("Iteration #1 diagnosis", "part of it that is direct", "0 bytes", pool(ONE, SMALL, Figure::Direct("write"))),
    cell(
        "Iteration #2",
        "large files, requests of 128 KiB, records of 1 MiB: direct as a multiple of buffered",
        "1.03 × (4.182 s and 4.289 s)",
        pool(
            ONE,
            FOUR_SMALL,
            Figure::OfOther(
                "write",
                "--layers library --devices 1 --nobjlo 4 --nobjhi 4 --thrlo 4 --thrhi 4 --rszlo 128 --rszhi 128 --modes buffered",
            ),
        ),
    ),
    cell("Iteration #2 diagnosis", "part of it that is direct", "0 bytes", pool(ONE, FOUR_SMALL, Figure::Direct("rewrite"))),
    cell(
        "Iteration #3",
        "requests of 16 MiB, records of 1 MiB: direct as a multiple of buffered",
        "1.01 × (20.815 s and 21.011 s)",
        pool(
            ONE,
            FOUR_LARGE,
            Figure::OfOther(
                "rewrite",
                "--layers library --devices 1 --nobjlo 4 --nobjhi 4 --thrlo 4 --thrhi 4 --rszlo 16384 --rszhi 16384 --modes buffered",
            ),
        ),
    ),
    cell(
        "Iteration #3 diagnosis",
        "part of it that is direct",
        "1,270,874,112 bytes in 1,212 writes: all",
        pool(ONE, FOUR_LARGE, Figure::Direct("rewrite")),
    ),
    cell(
        "Iteration #4",
        "requests of 1 MiB, four files: direct as a multiple of buffered, through the mount, in memory here",
        "1.44 × (30.582 s and 43.981 s)",
        Way::Measured(Program::Mount, |results| results.direct_ratio("fuse", "write", 1)),
    ),
    cell(
        "Iteration #4",
        "requests of 1 MiB, four files: direct beside the raw device",
        "0.80 × (30.582 s and 24.401 s)",
        pool(ONE, FOUR, Figure::OfBare("rewrite")),
    ),
    cell("Iteration #4", "part of it that is direct", "all, by the rules of alignment", pool(ONE, FOUR, Figure::Direct("rewrite"))),
];
