//! The layout of `zpool iostat`, character by character: scripts cut these columns.

use super::columns::Group;
use super::text::{Span, Style};
use control_api::IostatVdev;

fn vdev(name: &str, kind: &str, children: Vec<IostatVdev>) -> IostatVdev {
    let zeros = |groups: &[Group], length: usize| -> Vec<(String, Vec<u64>)> {
        groups.iter().flat_map(|group| group.sources()).map(|name| (name.to_string(), vec![0; length])).collect()
    };
    let mut extended: std::collections::BTreeMap<String, Vec<u64>> = zeros(&[Group::LatencyHistogram], 37).into_iter().collect();
    extended.extend(zeros(&[Group::SizeHistogram], 25));
    extended.extend(zeros(&[Group::Queues], 1));
    IostatVdev { name: name.into(), kind: kind.into(), extended, children, ..IostatVdev::default() }
}

/// Makes a mirror with two leaves, one of which wrote 100 blocks of 128 KiB that took some 70 µs each.
fn pool() -> IostatVdev {
    let mut busy = vdev("/dev/sda", "disk", Vec::new());
    busy.write_operations = 1000;
    busy.written_bytes = 1000 << 17;
    for (name, bucket, count) in
        [("vdev_tot_w_lat_histo", 16, 1000), ("vdev_disk_w_lat_histo", 16, 1000), ("vdev_async_w_lat_histo", 5, 1000)]
    {
        busy.extended.get_mut(name).unwrap()[bucket] = count;
    }
    busy.extended.get_mut("vdev_async_ind_w_histo").unwrap()[17] = 1000;
    busy.extended.insert("vdev_async_w_active_queue".into(), vec![3]);
    let mut mirror = vdev("mirror-0", "mirror", vec![busy.clone(), vdev("/dev/sdb", "disk", Vec::new())]);
    let mut root = vdev("tank", "root", Vec::new());
    for above in [&mut mirror, &mut root] {
        above.write_operations = 1000;
        above.written_bytes = 1000 << 17;
        above.extended = busy.extended.clone();
        above.allocated_bytes = Some(3 << 29);
        above.free_bytes = Some(10 << 30);
    }
    root.children = vec![mirror];
    root
}

fn style(groups: &[Group]) -> Style {
    Style { groups: groups.to_vec(), verbose: true, name_width: 10, ..Style::default() }
}

fn rows(style: &Style, now: &IostatVdev, old: Option<&IostatVdev>, seconds: u64) -> String {
    let mut out = String::new();
    let name_of = |vdev: &IostatVdev| vdev.name.trim_start_matches("/dev/").to_string();
    style.vdev(&mut out, Span { pool: "tank", now, old, elapsed_ns: seconds * 1_000_000_000 }, &name_of, 0);
    out
}

#[test]
fn the_default_columns_are_openzfs_s() {
    let style = style(&[Group::Default]);
    assert_eq!(
        style.header(),
        "              capacity     operations     bandwidth \n\
         pool        alloc   free   read  write   read  write\n\
         ----------  -----  -----  -----  -----  -----  -----\n"
    );
    assert_eq!(
        rows(&style, &pool(), None, 10),
        "tank        1.50G    10G      0    100      0  12.5M\n  \
           mirror-0  1.50G    10G      0    100      0  12.5M\n    \
             sda         -      -      0    100      0  12.5M\n    \
             sdb         -      -      0      0      0      0\n"
    );
    let mut later = pool();
    later.write_operations += 50;
    let quiet = Style { verbose: false, ..style };
    assert_eq!(rows(&quiet, &later, Some(&pool()), 2), "tank        1.50G    10G      0     25      0      0\n");
}

#[test]
fn exact_and_scripted_output_is_for_programs() {
    let exact = Style { exact: true, scripted: true, ..style(&[Group::Default, Group::Latency]) };
    let line = rows(&exact, &pool(), None, 1).lines().nth(2).unwrap().to_string();
    assert_eq!(line, "sda\t0\t0\t0\t1000\t0\t131072000\t-\t98304\t-\t98304\t-\t-\t-\t48\t-\t-\t-");
}

#[test]
fn latencies_and_queues_stand_right_of_the_default_columns() {
    let style = style(&[Group::Default, Group::Latency, Group::Queues]);
    assert_eq!(
        style.header(),
        "              capacity     operations     bandwidth    total_wait     disk_wait    syncq_wait    asyncq_wait  scrub   trim  \
         rebuild   syncq_read    syncq_write   asyncq_read  asyncq_write   scrubq_read   trimq_write  rebuildq_write\n\
         pool        alloc   free   read  write   read  write   read  write   read  write   read  write   read  write   wait   wait   \
         wait   pend  activ   pend  activ   pend  activ   pend  activ   pend  activ   pend  activ   pend  activ\n\
         ----------  -----  -----  -----  -----  -----  -----  -----  -----  -----  -----  -----  -----  -----  -----  -----  -----  \
         -----  -----  -----  -----  -----  -----  -----  -----  -----  -----  -----  -----  -----  -----  -----\n"
    );
    let text = rows(&style, &pool(), None, 10);
    assert_eq!(
        text.lines().next().unwrap(),
        "tank        1.50G    10G      0    100      0  12.5M      -   98us      -   98us      -      -      -   48ns      -      -      \
         -      0      0      0      0      0      0      0      3      0      0      0      0      0      0"
    );
}

#[test]
fn histograms_are_one_table_per_vdev() {
    let style = Style { verbose: false, ..style(&[Group::LatencyHistogram]) };
    let text = rows(&style, &pool(), None, 10);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[..5],
        [
            "",
            "tank         total_wait     disk_wait    syncq_wait    asyncq_wait",
            "latency      read  write   read  write   read  write   read  write  scrub   trim  rebuild",
            "----------  -----  -----  -----  -----  -----  -----  -----  -----  -----  -----  -----",
            "1ns             0      0      0      0      0      0      0      0      0      0      0",
        ]
    );
    assert_eq!(lines[9], "63ns            0      0      0      0      0      0      0   1000      0      0      0");
    assert_eq!(lines[20], "131us           0   1000      0   1000      0      0      0      0      0      0      0");
    assert_eq!(lines[40], "137s            0      0      0      0      0      0      0      0      0      0      0");
    assert_eq!((lines.len(), lines[41]), (42, "-".repeat(87).as_str()));
    let sizes = Style { verbose: false, groups: vec![Group::SizeHistogram], ..style };
    let text = rows(&sizes, &pool(), None, 10);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[1], "tank          sync_read    sync_write    async_read    async_write      scrub         trim         rebuild  ");
    assert_eq!(lines[2], "req_size      ind    agg    ind    agg    ind    agg    ind    agg    ind    agg    ind    agg    ind    agg");
    assert_eq!(lines[4], "512             0      0      0      0      0      0      0      0      0      0      0      0      0      0");
    assert_eq!(lines[12], "128K            0      0      0      0      0      0   1000      0      0      0      0      0      0      0");
    assert_eq!((lines.len(), lines[19].split(' ').next()), (21, Some("16M")));
}

/// Only named vdevs are shown, without indentation, under the heading "vdev".
#[test]
fn named_vdevs_stand_alone() {
    let style = Style { only: vec!["sda".into()], ..style(&[Group::Default]) };
    assert!(style.header().contains("\nvdev        alloc"));
    assert_eq!(rows(&style, &pool(), None, 10), "sda             -      -      0    100      0  12.5M\n");
}

/// Whoever looks for the reason of slow syncs finds the log devices, and sees which they are; and whether a cache device is of use.
#[test]
fn log_and_cache_devices_stand_below_lines_of_their_own() {
    let mut tank = pool();
    let mut log = IostatVdev { is_log: true, allocated_bytes: Some(0), free_bytes: Some(1 << 30), ..vdev("/dev/sdc", "disk", Vec::new()) };
    log.write_operations = 20;
    tank.children.insert(0, log);
    let mut cache = IostatVdev { is_cache: true, allocated_bytes: Some(1 << 29), ..vdev("/dev/sdd", "disk", Vec::new()) };
    (cache.free_bytes, cache.read_operations) = (Some(1 << 29), 30);
    tank.children.push(cache);
    let style = style(&[Group::Default]);
    assert_eq!(
        rows(&style, &tank, None, 10),
        "tank        1.50G    10G      0    100      0  12.5M\n  \
           mirror-0  1.50G    10G      0    100      0  12.5M\n    \
             sda         -      -      0    100      0  12.5M\n    \
             sdb         -      -      0      0      0      0\n\
         logs            -      -      -      -      -      -\n  \
           sdc           0     1G      0      2      0      0\n\
         cache           -      -      -      -      -      -\n  \
           sdd        512M   512M      3      0      0      0\n"
    );
    let special = IostatVdev { bias: Some("special".into()), is_log: false, ..tank.children[0].clone() };
    tank.children.push(special);
    let shown = rows(&style, &tank, None, 10);
    let place = |word: &str| shown.lines().position(|line| line.starts_with(word));
    assert!(place("special").is_some_and(|special| Some(special) < place("logs")), "{shown}");
    let scripted = rows(&Style { scripted: true, ..style }, &tank, None, 10);
    assert!(!scripted.contains("logs") && !scripted.contains("cache"), "programs get devices only: {scripted}");
}
