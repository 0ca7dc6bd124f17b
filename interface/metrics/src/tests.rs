//! The tree as other programs read it: names in OpenZFS's order, the kernel's shape, files that come and go with pools.

use crate::names::{ARCSTATS, words};
use crate::*;
use abd::Abd;
use device::MemDevice;
use dsl::{CreateDataset, DslError};
use exec::{Exec, Inline, Mutex};
use fuse::{Caller, DirEntry, DirSink, Entry, Errno, FileHandle, Handler, NodeId, ReadRequest, SetAttr, WriteRequest};
use ondisk::ObjsetType;
use pool::{LeafSpec, Pool, PoolSpec, Runtime, TopSpec};
use std::sync::Arc;
use vdev::{LeafKind, TopKind};

#[derive(Default)]
struct Fake {
    pools: Mutex<Vec<PoolView>>,
    past: Past,
    parameters: Parameters,
    changes: Mutex<Vec<(String, u64)>>,
}

impl Source for Fake {
    fn now_ns(&self) -> u64 {
        77
    }
    fn pools(&self) -> Vec<PoolView> {
        self.pools.lock().clone()
    }
    fn past(&self) -> Option<&Past> {
        Some(&self.past)
    }
    fn parameters(&self) -> &Parameters {
        &self.parameters
    }
    fn parameter_changed(&self, name: &str, value: u64) {
        self.changes.lock().push((name.to_string(), value));
    }
}

fn make_pool() -> Pool {
    let exec: Exec = Arc::new(Inline::new(3));
    let leaf = LeafSpec { path: "mem".into(), kind: LeafKind::File, device: Arc::new(MemDevice::new("mem", 96 << 20)) };
    let init = Box::new(|objset: &Arc<dmu::Objset>, tx: &dmu::Tx| {
        zpl::Zfs::create(objset, &zpl::CreateOptions::default(), tx).map_err(|_| DslError::Unsupported)
    });
    let spec = PoolSpec {
        ashift: Some(12),
        ..PoolSpec::new(
            "tank",
            vec![TopSpec { kind: TopKind::Leaf, leaves: vec![leaf] }],
            CreateDataset { kind: ObjsetType::ZFS, properties: Vec::new(), init },
        )
    };
    Pool::create(&exec, spec, &Runtime::new()).expect("a pool")
}

fn view(pool: &Pool) -> PoolView {
    PoolView {
        name: "tank".into(),
        guid: 4711,
        state: "ONLINE".into(),
        accelerator: Some(AcceleratorView {
            provider: "card".into(),
            state: "active",
            counters: vec![("compress_blocks".into(), 5), ("compress_fallback_full".into(), 0)],
            breakers: vec![("compress", "open", 2)],
        }),
        cache: pool.cache().clone(),
        txgs: pool.txgs().clone(),
        heartbeats: pool.heartbeats().clone(),
        objsets: vec![pool.mos().clone()],
        datasets: vec![DatasetView {
            name: "tank/a b".into(),
            objset: 54,
            counts: [1, 2, 3, 4, 5, 6],
            log: vec![("zil_commit_count", 9), ("zil_itx_metaslab_slog_bytes", 4096)],
            direct: vec![DirectRow { name: "head", requests: 7, bytes: 8192 }],
        }],
        direct: vec![
            DirectRow { name: "asked", requests: 9, bytes: 65536 },
            DirectRow { name: "misaligned_memory", requests: 0, bytes: 0 },
        ],
    }
}

/// Names in column one of a statistic.
fn names(text: &str) -> Vec<&str> {
    text.lines().skip(2).filter_map(|line| line.split_whitespace().next()).collect()
}

/// arcstat, arc_summary and node_exporter stop at the first name that is missing.
#[test]
fn arcstats_has_every_name_with_and_without_pools() {
    let fake = Arc::new(Fake::default());
    let tree = Tree::new(fake.clone());
    let text = tree.read("spl/kstat/zfs/arcstats").unwrap();
    assert!(
        text.starts_with("1 1 0x01 148 40256 0 77\nname                            type data\nhits                            4    0\n"),
        "{text}"
    );
    assert_eq!(names(&text), words(ARCSTATS).collect::<Vec<_>>());
    assert!(text.contains("\nc_max                           4    268435456\n"), "arc_summary divides by it");
    let pool = make_pool();
    fake.pools.lock().push(view(&pool));
    let text = tree.read("spl/kstat/zfs/arcstats").unwrap();
    assert_eq!(names(&text), words(ARCSTATS).collect::<Vec<_>>());
    let value = |name: &str| {
        text.lines().find(|line| line.split(' ').next() == Some(name)).and_then(|line| line.rsplit(' ').next()?.parse::<u64>().ok())
    };
    assert_eq!(value("size"), Some(pool.cache().size()));
    assert!(value("memory_all_bytes") > Some(0));
    let known: std::collections::BTreeSet<&str> = words(ARCSTATS).collect();
    let kstat = pool.cache().kstat();
    let own = kstat.values();
    assert!(own.iter().all(|(name, _)| known.contains(name)), "a counter of the cache is not shown");
}

/// Whoever takes the difference of two looks at a counter gets nonsense if a pool was exported in between, and OpenZFS's tests wait for ever.
#[test]
fn counters_do_not_fall_when_a_pool_is_closed() {
    let fake = Arc::new(Fake::default());
    let tree = Tree::new(fake.clone());
    let pool = make_pool();
    fake.pools.lock().push(view(&pool));
    let value = |name: &str| {
        let text = tree.read("spl/kstat/zfs/arcstats").unwrap();
        let line = text.lines().find(|line| line.split(' ').next() == Some(name)).map(str::to_string);
        line.and_then(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).expect("a number")
    };
    pool.cache().clear();
    pool.sync().expect("synced");
    let objset = pool.dsl().hold("tank").expect("held").objset().expect("readable");
    objset.hold(ondisk::ObjectId(1)).expect("the master node").read(0, &mut [0; 512]).expect("read");
    let (hits, misses, size) = (value("hits"), value("misses"), value("size"));
    assert!(hits + misses > 0 && size > 0);
    fake.pools.lock().clear();
    fake.past.add(pool.cache());
    assert_eq!((value("hits"), value("misses"), value("size")), (hits, misses, 0));
}

/// arc_summary divides hits by misses of the prefetcher, by name.
#[test]
fn zfetchstats_has_every_name() {
    let text = Tree::new(Arc::new(Fake::default())).read("spl/kstat/zfs/zfetchstats").unwrap();
    assert_eq!(names(&text), ["hits", "future", "stride", "past", "misses", "max_streams", "io_issued", "io_active"]);
}

#[test]
fn a_pool_has_its_files_while_it_is_open() {
    let fake = Arc::new(Fake::default());
    let tree = Tree::new(fake.clone());
    let pool = make_pool();
    fake.pools.lock().push(view(&pool));
    let of = |file: &str| tree.read(&format!("spl/kstat/zfs/tank/{file}"));
    assert_eq!((of("state").unwrap(), of("guid").unwrap()), ("ONLINE\n".to_string(), "4711\n".to_string()));
    pool.cache().zio().iostats().direct_write.add(3, 3 << 17);
    let iostats = of("iostats").unwrap();
    assert_eq!((names(&iostats).len(), names(&iostats)[0], names(&iostats)[18]), (30, "trim_extents_written", "arc_read_count"));
    assert!(iostats.contains("\ndirect_write_count              4    3\n"));
    assert_eq!(tree.write("spl/kstat/zfs/tank/iostats", "0\n"), Ok(()));
    assert!(of("iostats").unwrap().contains("\ndirect_write_count              4    0\n"), "writing zeroes it");
    let objset = of("objset-0x36").unwrap();
    assert!(objset.contains("\ndataset_name                    7    tank/a b\nwrites                          4    1\nnwritten                        4    2\nreads "));
    for (name, count) in [("zil_commit_count", 9), ("zil_itx_count", 0), ("zil_itx_metaslab_slog_bytes", 4096)] {
        assert!(objset.contains(&format!("\n{name:<31} 4    {count}\n")), "{name} of the file system's own log: {objset}");
    }
    let direct = of("direct-0x36").unwrap();
    assert!(
        direct.contains("\ndataset_name                    7    tank/a b\nhead_requests                   4    7\nhead_bytes "),
        "{direct}"
    );
    let direct = of("direct").unwrap();
    assert!(direct.ends_with("\nmisaligned_memory_requests      4    0\nmisaligned_memory_bytes         4    0\n"), "{direct}");
    assert!(direct.contains("\nasked_bytes                     4    65536\n") && of("direct-0x37").is_none() && of("other-0x36").is_none());
    let zia = of("zia").unwrap();
    assert_eq!(
        names(&zia),
        ["provider", "state", "compress_blocks", "compress_fallback_full", "compress_breaker", "compress_breaker_trips"]
    );
    assert!(zia.contains("\nprovider                        7    card\nstate                           7    active\n"), "{zia}");
    let paths = tree.paths();
    for file in ["zia", "direct", "direct-0x36", "objset-0x36"] {
        assert!(paths.contains(&format!("spl/kstat/zfs/tank/{file}")), "{file} is listed");
    }
    let txgs = of("txgs").unwrap();
    assert!(txgs.starts_with("txg      birth            state ndirty       nread"), "{txgs}");
    let rows: Vec<Vec<&str>> = txgs.lines().skip(1).map(|line| line.split_whitespace().collect()).collect();
    let (synced, open) = (pool.txgs().synced_txg().0.to_string(), pool.txgs().open_txg().0.to_string());
    assert_eq!((rows[rows.len() - 2][0], rows[rows.len() - 2][2]), (synced.as_str(), "C"), "{txgs}");
    assert_eq!((rows[rows.len() - 1][0], rows[rows.len() - 1][2]), (open.as_str(), "O"), "{txgs}");
    assert_ne!(rows[rows.len() - 2][5], "0", "a sync writes");
    assert_eq!(tree.write("spl/kstat/zfs/tank/txgs", "0\n"), Ok(()));
    assert_eq!(of("txgs").unwrap().lines().count(), 1, "writing forgets them");
    let heartbeats = of("multihost").unwrap();
    assert!(heartbeats.starts_with("id         txg        timestamp  error  duration   mmp_delay    vdev_guid"), "{heartbeats}");
    fake.pools.lock().clear();
    assert_eq!((of("state"), tree.write("spl/kstat/zfs/tank/iostats", "0")), (None, Err(WriteError::NotFound)));
    assert_eq!(tree.write("spl/kstat/zfs/arcstats", "0"), Err(WriteError::ReadOnly));
}

/// If this fails, whoever waits for a long import does not see what it does, or programs that read OpenZFS's list do not understand ours.
#[test]
fn imports_are_told_of_while_they_are_under_way() {
    let tree = Tree::new(Arc::new(Fake::default()));
    let text = || tree.read("spl/kstat/zfs/import_progress").unwrap();
    assert!(tree.paths().contains(&"spl/kstat/zfs/import_progress".to_string()));
    let import = kstat::Import::begin(8_154_711, "slow", kstat::LoadState::Import);
    kstat::note_import(8_154_711, "Claiming ZIL blocks");
    assert!(text().starts_with("pool_guid            load_state "), "no header of a statistic: {}", text());
    assert!(
        text().contains("\n8154711              2              0              0            slow             Claiming ZIL blocks\n"),
        "{}",
        text()
    );
    drop(import);
    assert!(!text().contains("slow"), "{}", text());
}

/// A value outside its range would stop writers for ever, or never.
#[test]
fn parameters_keep_their_ranges() {
    assert!(PARAMETERS.is_sorted_by_key(|parameter| parameter.name), "they are searched by halves");
    assert!(PARAMETERS.iter().all(|parameter| parameter.allows(parameter.default)));
    let fake = Arc::new(Fake::default());
    let tree = Tree::new(fake.clone());
    let path = |name: &str| format!("module/zfs/parameters/{name}");
    assert_eq!(tree.read(&path("zfs_txg_timeout")).as_deref(), Some("5\n"));
    assert_eq!(tree.write(&path("zfs_txg_timeout"), "30\n"), Ok(()));
    assert_eq!(tree.write(&path("zfs_arc_max"), "0x10000000"), Ok(()));
    let shared = path("zfs_livelist_min_percent_shared");
    assert_eq!((tree.write(&shared, "-2"), tree.write(&shared, "101")), (Err(WriteError::Invalid), Err(WriteError::Invalid)));
    assert_eq!((tree.write(&shared, "-1"), tree.read(&shared)), (Ok(()), Some("-1\n".to_string())));
    assert_eq!(tree.read(&path("zfs_arc_max")).as_deref(), Some("268435456\n"));
    assert_eq!(tree.read(&path("zfs_deadman_failmode")).as_deref(), Some("wait\n"));
    assert_eq!(tree.write(&path("zfs_deadman_failmode"), "continue\n"), Ok(()));
    assert_eq!(tree.read(&path("zfs_deadman_failmode")).as_deref(), Some("continue\n"));
    for (name, text, error) in [
        ("zfs_txg_timeout", "0", WriteError::Invalid),
        ("zfs_dio_strict", "2", WriteError::Invalid),
        ("zfs_dio_strict", "yes", WriteError::Invalid),
        ("zfs_deadman_failmode", "1", WriteError::Invalid),
        ("zfs_deadman_failmode", "panic", WriteError::Invalid),
        ("zfs_flags", "1", WriteError::ReadOnly),
        ("zfs_no_such", "1", WriteError::NotFound),
    ] {
        assert_eq!(tree.write(&path(name), text), Err(error), "{name}={text}");
    }
    let changes =
        [("zfs_txg_timeout", 30), ("zfs_arc_max", 1 << 28), ("zfs_livelist_min_percent_shared", -1i64 as u64), ("zfs_deadman_failmode", 1)];
    assert_eq!(*fake.changes.lock(), changes.map(|(name, value)| (name.to_string(), value)));
    assert_eq!(tree.read("module/zfs/version").as_deref(), Some("2.3.2-zirconia\n"));
}

#[derive(Default)]
struct Names(Vec<(String, u32)>);

impl DirSink for Names {
    fn add(&mut self, entry: DirEntry<'_>) -> bool {
        self.0.push((String::from_utf8_lossy(entry.name).into_owned(), entry.kind));
        true
    }
    fn fits(&self, _: &[u8]) -> bool {
        true
    }
    fn add_plus(&mut self, entry: DirEntry<'_>, _: &Entry) -> bool {
        self.add(entry)
    }
}

/// What `ls`, `cat` and `echo` do, without a mount.
#[test]
fn the_file_system_lists_reads_and_writes() {
    let fake = Arc::new(Fake::default());
    let fs = TreeFs::new(Tree::new(fake.clone()), "spl/kstat", (10, 20));
    let who = Caller::default();
    let zfs = fs.lookup(&who, NodeId::ROOT, b"zfs").unwrap();
    assert_eq!((zfs.attr.mode, zfs.attr.uid), (0o040_555, 10));
    let list = |node: NodeId| {
        let mut names = Names::default();
        fs.readdir(&who, node, FileHandle(0), 0, &mut names).unwrap();
        names.0
    };
    assert!(list(zfs.node).contains(&("arcstats".to_string(), 8)) && list(NodeId::ROOT).contains(&("zfs".to_string(), 4)));
    assert!(matches!(fs.lookup(&who, zfs.node, b"tank"), Err(Errno::ENOENT)));
    let pool = make_pool();
    fake.pools.lock().push(view(&pool));
    let tank = fs.lookup(&who, zfs.node, b"tank").unwrap();
    let iostats = fs.lookup(&who, tank.node, b"iostats").unwrap();
    assert_eq!((iostats.attr.mode, iostats.attr.size), (0o100_644, 0));
    let opened = fs.open(&who, iostats.node, 0).unwrap();
    assert!(opened.direct_io, "the size is unknown");
    let read = |offset| {
        let request = ReadRequest { node: iostats.node, handle: opened.handle, offset, size: 100, open_flags: 0, past_cache: true };
        fs.read(&who, &request).unwrap().to_vec()
    };
    let (first, rest) = (read(0), read(100));
    assert_eq!((first.len(), rest.len(), read(1 << 40).len()), (100, 100, 0));
    pool.cache().zio().iostats().arc_read.add(1, 1);
    let write = |data: &[u8], offset| {
        let data = Abd::from_slice(data);
        let pinned_bytes = data.len();
        let open = (opened.handle, 1);
        fs.write(
            &who,
            WriteRequest {
                node: iostats.node,
                handle: open.0,
                offset,
                data,
                pinned_bytes,
                open_flags: open.1,
                past_cache: true,
                kill_suid: false,
                from_cache: false,
            },
        )
    };
    assert!(fs.setattr(&who, iostats.node, &SetAttr { size: Some(0), ..SetAttr::default() }).is_ok());
    assert!(matches!((write(b"0\n", 0), write(b"0", 7)), (Ok(2), Err(Errno::EINVAL))));
    assert_eq!(pool.cache().zio().iostats().arc_read.get(), (0, 0));
    fake.pools.lock().clear();
    assert!(matches!(fs.getattr(&who, tank.node, None), Err(Errno::ENOENT)));
}

/// Prometheus drops a whole scrape for one malformed line.
#[test]
fn the_exposition_is_well_formed() {
    let fake = Arc::new(Fake::default());
    let pool = make_pool();
    fake.pools.lock().push(view(&pool));
    let leaf = control_api::IostatVdev {
        name: "/dev/\"x\"".into(),
        kind: "disk".into(),
        extended: [("vdev_tot_r_lat_histo".to_string(), vec![0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7])].into(),
        ..Default::default()
    };
    let root = control_api::IostatVdev {
        name: "tank".into(),
        kind: "root".into(),
        allocated_bytes: Some(5),
        children: vec![leaf],
        ..Default::default()
    };
    let text = openmetrics(&Tree::new(fake), &[root]);
    assert!(text.ends_with("# EOF\n"));
    for line in [
        "# TYPE zfs_arc_hits counter",
        "# TYPE zfs_arc_size gauge",
        "zfs_pool_state{pool=\"tank\",state=\"online\"} 1",
        "zfs_dataset_nread_total{pool=\"tank\",dataset=\"tank/a b\"} 4",
        "zirconia_pool_direct_bytes_total{pool=\"tank\",part=\"asked\"} 65536",
        "zirconia_dataset_direct_requests_total{pool=\"tank\",dataset=\"tank/a b\",part=\"head\"} 7",
        "zfs_vdev_allocated_bytes{pool=\"tank\",vdev=\"tank\",type=\"root\"} 5",
        "zfs_vdev_total_wait_seconds_bucket{pool=\"tank\",vdev=\"/dev/\\\"x\\\"\",type=\"disk\",direction=\"read\",le=\"0.000001024\"} 5",
        "zfs_vdev_total_wait_seconds_bucket{pool=\"tank\",vdev=\"/dev/\\\"x\\\"\",type=\"disk\",direction=\"read\",le=\"+Inf\"} 12",
    ] {
        assert!(text.lines().any(|other| other == line), "{line}");
    }
    let mut seen = std::collections::BTreeSet::new();
    for line in text.lines().filter(|line| line.starts_with("# TYPE")) {
        assert!(seen.insert(line), "{line} twice");
    }
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    assert!(samples.clone().all(|line| line.rsplit(' ').next().is_some_and(|value| value.parse::<f64>().is_ok())));
    assert!(samples.count() > 200);
}

/// Who wants to change something looks there for what it does; the page is renewed with `ZIRCONIA_BLESS=1`.
#[test]
fn the_page_of_parameters_is_true() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/parameters.md");
    let mut page = String::from(
        "# Parameters\nFiles of `STATE/sys/module/zfs/parameters`, with OpenZFS's names, units and defaults where it has them. Those of OpenZFS that are not here have \
         no mechanism here, or no effect that could be had.\n\n\
         | name | default | range | what it does |\n| --- | --- | --- | --- |\n",
    );
    for parameter in &PARAMETERS {
        let range = match (parameter.when, parameter.words, parameter.max) {
            (When::Fixed, ..) => "fixed".to_string(),
            (_, [_, ..], _) => parameter.words.join(", "),
            (_, [], u64::MAX) => format!("{} –", parameter.min),
            (_, [], max) => format!("{} – {}", parameter.number(parameter.min), parameter.number(max)),
        };
        // Which words a machine has is not the page's matter.
        let word = parameter.words.get(parameter.default as usize).map(|word| (*word).to_string());
        let default = word.unwrap_or_else(|| parameter.text(parameter.default));
        page += &format!("| `{}` | {} | {range} | {} |\n", parameter.name, default, parameter.about);
    }
    if std::env::var_os("ZIRCONIA_BLESS").is_some() {
        std::fs::write(path, &page).expect("written");
    }
    assert_eq!(std::fs::read_to_string(path).expect("the page"), page, "renew it with ZIRCONIA_BLESS=1");
}

/// `dbufstat` takes columns by their names in the third line; one too few or too many, and it shows nonsense or stops.
#[test]
fn what_is_cached_is_told_block_by_block() {
    let fake = Arc::new(Fake::default());
    let tree = Tree::new(fake.clone());
    let pool = make_pool();
    fake.pools.lock().push(view(&pool));
    let text = tree.read("spl/kstat/zfs/dbufs").unwrap();
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    let columns = &lines[2];
    assert_eq!((columns.len(), columns[0], columns[12], columns[13], columns[28], columns[37]), (38, "pool", "|", "list", "|", "dsize"));
    assert!(lines.len() > 5 && lines[3..].iter().all(|row| row.len() == columns.len() && row[0] == "tank"), "{text}");
    let cell = |row: &[&str], name: &str| row[columns.iter().position(|known| *known == name).unwrap()].to_string();
    let metadata = lines[3..].iter().find(|row| cell(row, "objset") == "0" && cell(row, "object") == "0").expect("records of the MOS");
    assert_eq!((cell(metadata, "meta"), cell(metadata, "dtype"), cell(metadata, "state")), ("1".into(), "10".into(), "4".into()));
    assert_ne!(cell(metadata, "lvls"), "0", "its dnode is known");
    let stats = tree.read("spl/kstat/zfs/dbufstats").unwrap();
    let row = |name: &str| stats.lines().find(|line| line.split(' ').next() == Some(name)).unwrap().rsplit(' ').next().unwrap().to_string();
    assert_eq!(row("hash_elements"), (lines.len() - 3).to_string());
    assert_eq!(names(&stats).len(), 7 + 24 + 13);
    assert_ne!(row("hash_hits"), "0");
}

/// What counts nothing looks as if nothing happened.
#[test]
fn transactions_and_dnodes_are_counted() {
    let tree = Tree::new(Arc::new(Fake::default()));
    let pool = make_pool();
    drop(pool.txgs().assign(0).expect("a transaction"));
    let value = |file: &str, name: &str| {
        let text = tree.read(&format!("spl/kstat/zfs/{file}")).unwrap();
        let line = text.lines().find(|line| line.split(' ').next() == Some(name)).unwrap().to_string();
        line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()
    };
    assert!(value("dmu_tx", "dmu_tx_assigned") > 0 && value("dnodestats", "dnode_allocate") > 0);
    let list = tree.read("spl/kstat/zfs/dnodestats").unwrap();
    assert!(dmu::dnode_counts().iter().all(|(name, _)| names(&list).contains(name)), "a counter is not shown");
    let list = tree.read("spl/kstat/zfs/dmu_tx").unwrap();
    assert!(dmu::tx_counts().iter().all(|(name, _)| names(&list).contains(name)), "a counter is not shown");
}

/// Scripts look which instructions are there, and set one by its name.
#[test]
fn implementations_are_listed_and_chosen() {
    let tree = Tree::new(Arc::new(Fake::default()));
    for (name, count) in [("zfs_fletcher_4_impl", kernels::checksum::ALL.len()), ("zfs_vdev_raidz_impl", kernels::raidz::ALL.len())] {
        let path = format!("module/zfs/parameters/{name}");
        let read = || tree.read(&path).unwrap();
        assert!(read().starts_with("[fastest] scalar "), "{}", read());
        assert!(read().split_whitespace().count() <= count + 1);
        assert_eq!(tree.write(&path, "scalar\n"), Ok(()));
        assert!(read().starts_with("fastest [scalar] "), "{}", read());
        assert_eq!(tree.write(&path, "no such"), Err(WriteError::Invalid));
        let parameter = PARAMETERS.iter().find(|parameter| parameter.name == name).unwrap();
        let known = |one: &str| parameter.words.contains(&one);
        assert!(kernels::checksum::ALL.iter().all(|one| known(one.name)) || kernels::raidz::ALL.iter().all(|one| known(one.name)));
    }
}
