//! The operations that are disturbed: how each begins, how it is seen to be under way, which device is hit.

/// Operation to be disturbed, as data.
#[derive(Debug)]
pub struct Operation {
    /// Name of the operation in a case's.
    pub name: &'static str,
    /// Layout of the pool, as the command line has it.
    pub layout: &'static str,
    /// Commands before it.
    pub before: &'static [&'static str],
    /// Parameters that keep it under way until the disturbance is there: name, value until then, value from then on.
    pub hold: &'static [(&'static str, &'static str, &'static str)],
    /// Command that begins it.
    pub begin: &'static str,
    /// Command, and what it shows while the operation is under way. None for what is over in a moment.
    pub seen: Option<(&'static str, &'static str)>,
    /// Commands that end what goes on; they may fail.
    pub after: &'static [&'static str],
    /// Name of the device that is hit.
    pub hit: &'static str,
    /// True when somebody writes files meanwhile, and so needs the pool to stay.
    pub load: bool,
    /// True when fault handlers can be there when it begins.
    pub injectable: bool,
}

const HELD_SCAN: &[(&str, &str, &str)] = &[("zfs_scan_suspend_progress", "1", "0")];
const SLOW_REBUILD: &[(&str, &str, &str)] =
    &[("zfs_rebuild_max_segment", "262144", "1048576"), ("zfs_rebuild_vdev_limit", "1", "67108864")];
/// Commands by which what a rebuild reads comes slowly.
const SLOW_READS: &[&str] = &["zinject -d {vdevs}/a -D 20:1 -T read tank"];
const MIRROR: &str = "mirror {vdevs}/a {vdevs}/b";
const THREE: &str = "mirror {vdevs}/a {vdevs}/b {vdevs}/x";
const RAIDZ: &str = "raidz {vdevs}/a {vdevs}/b {vdevs}/c";
const RESILVERS: Option<(&str, &str)> = Some(("zpool status tank", "resilver in progress"));

const PLAIN: Operation = Operation {
    name: "",
    layout: MIRROR,
    before: &[],
    hold: &[],
    begin: "",
    seen: None,
    after: &[],
    hit: "b",
    load: true,
    injectable: true,
};

/// Operations to be disturbed, all of them.
pub const OPERATIONS: &[Operation] = &[
    Operation { name: "write", layout: RAIDZ, begin: "zpool sync tank", ..PLAIN },
    Operation {
        name: "scrub",
        layout: RAIDZ,
        hold: HELD_SCAN,
        begin: "zpool scrub tank",
        seen: Some(("zpool status tank", "scrub in progress")),
        ..PLAIN
    },
    Operation {
        name: "resilver",
        layout: RAIDZ,
        hold: HELD_SCAN,
        begin: "zpool replace tank {vdevs}/a {vdevs}/x",
        seen: RESILVERS,
        ..PLAIN
    },
    Operation { name: "attach", hold: HELD_SCAN, begin: "zpool attach tank {vdevs}/a {vdevs}/x", seen: RESILVERS, ..PLAIN },
    Operation {
        name: "rebuild",
        before: SLOW_READS,
        hold: SLOW_REBUILD,
        begin: "zpool attach -s tank {vdevs}/a {vdevs}/x",
        seen: Some(("zpool status tank", "resilver (mirror-0) in progress")),
        ..PLAIN
    },
    Operation {
        name: "rebuild-spare",
        layout: "draid1:2d:1s:4c {vdevs}/a {vdevs}/b {vdevs}/c {vdevs}/d",
        before: SLOW_READS,
        hold: SLOW_REBUILD,
        begin: "zpool replace -s tank {vdevs}/a draid1-0-0",
        seen: Some(("zpool status tank", "resilver (draid1:2d:4c:1s-0) in progress")),
        after: &["zpool wait tank", "zpool detach tank draid1-0-0"],
        ..PLAIN
    },
    Operation {
        name: "initialize",
        hold: &[("zfs_initialize_chunk_size", "4096", "1048576")],
        begin: "zpool initialize tank",
        seen: Some(("zpool status -i tank", "% initialized, started")),
        after: &["zpool initialize -c tank"],
        ..PLAIN
    },
    Operation {
        name: "trim",
        begin: "zpool trim -r 1M tank",
        seen: Some(("zpool status -t tank", "% trimmed, started")),
        after: &["zpool trim -c tank"],
        ..PLAIN
    },
    Operation { name: "detach", layout: THREE, begin: "zpool detach tank {vdevs}/x", ..PLAIN },
    Operation { name: "offline", layout: THREE, begin: "zpool offline tank {vdevs}/x", after: &["zpool online tank {vdevs}/x"], ..PLAIN },
    Operation {
        name: "online",
        layout: THREE,
        before: &["zpool offline tank {vdevs}/x", "cp {mnt}/tank/base {mnt}/tank/meanwhile", "zpool sync tank"],
        hold: HELD_SCAN,
        begin: "zpool online tank {vdevs}/x",
        seen: RESILVERS,
        ..PLAIN
    },
    Operation { name: "add", begin: "zpool add -f tank mirror {vdevs}/x {vdevs}/y", ..PLAIN },
    Operation {
        name: "destroy",
        before: &[
            "zfs create tank/doomed",
            "cp {mnt}/tank/base {mnt}/tank/doomed/base",
            "zfs snapshot tank/doomed@kept",
            "zpool sync tank",
        ],
        begin: "zfs destroy -r tank/doomed",
        ..PLAIN
    },
    Operation { name: "export-f", begin: "zpool export -f tank", ..PLAIN },
    Operation { name: "export", begin: "zpool export tank", load: false, injectable: false, ..PLAIN },
    Operation {
        name: "import",
        before: &["zpool export tank"],
        begin: "zpool import -d {vdevs} tank",
        load: false,
        injectable: false,
        ..PLAIN
    },
];
