//! The memory of a process that does some work and ends it. A process of its own: the figures are the process's.

use device::MemDevice;
use dmu::{NewObject, ObjsetProps, Tx};
use dsl::{CreateDataset, DslError};
use exec::{Exec, Inline, Mutex};
use metrics::{Parameters, PoolView, Source, Tree};
use ondisk::ObjsetType;
use pool::{LeafSpec, Pool, PoolSpec, Runtime, TopSpec};
use std::collections::BTreeMap;
use std::sync::Arc;
use vdev::{LeafKind, TopKind};

#[derive(Default)]
struct Process {
    pools: Mutex<Vec<PoolView>>,
    parameters: Parameters,
}

impl Source for Process {
    fn now_ns(&self) -> u64 {
        1
    }
    fn pools(&self) -> Vec<PoolView> {
        self.pools.lock().clone()
    }
    fn parameters(&self) -> &Parameters {
        &self.parameters
    }
    fn parameter_changed(&self, _: &str, _: u64) {}
}

const FILE_BYTES: u64 = 16 << 20;

fn make_pool() -> Pool {
    let exec: Exec = Arc::new(Inline::new(3));
    let leaf = LeafSpec { path: "mem".into(), kind: LeafKind::File, device: Arc::new(MemDevice::new("mem", 192 << 20)) };
    let init = Box::new(|objset: &Arc<dmu::Objset>, tx: &Tx| {
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

/// Rows of `zfs/memory`, which must add up at any time.
fn rows(tree: &Tree) -> BTreeMap<String, u64> {
    let text = tree.read("spl/kstat/zfs/memory").expect("the file");
    let row = |line: &str| {
        let mut words = line.split_whitespace();
        (words.next().expect("a name").to_string(), words.last().expect("a value").parse::<u64>().expect("a number"))
    };
    let rows: Vec<(String, u64)> = text.lines().skip(2).map(row).collect();
    let total = rows.iter().position(|(name, _)| name == "total").expect("a total");
    assert_eq!(rows[..total].iter().map(|(_, bytes)| bytes).sum::<u64>(), rows[total].1, "{text}");
    rows.into_iter().collect()
}

/// If this fails, an administrator whose daemon grows cannot tell what grows, or sees memory held that was given back.
#[test]
fn figures_add_up_and_go_back_when_the_work_ends() {
    let process = Arc::new(Process::default());
    let tree = Tree::new(process.clone());
    let idle = rows(&tree);
    assert!(["arc_data", "dirty_data", "dnodes", "dbufs", "range_trees", "buffers_in_use"].iter().all(|name| idle[*name] == 0));
    let pool = make_pool();
    process.pools.lock().push(PoolView {
        name: "tank".into(),
        guid: 1,
        state: "ONLINE".into(),
        cache: pool.cache().clone(),
        txgs: pool.txgs().clone(),
        heartbeats: pool.heartbeats().clone(),
        objsets: vec![pool.mos().clone()],
        accelerator: None,
        datasets: Vec::new(),
        direct: Vec::new(),
    });
    let objset = pool.dsl().hold("tank").expect("the dataset").objset().expect("its objects");
    objset.set_props(ObjsetProps { compression: ondisk::Compression::OFF, ..objset.props() });
    let dnode = {
        let tx = pool.txgs().assign(FILE_BYTES).expect("assigned");
        let new = NewObject { block_size: 128 << 10, ..NewObject::new(ondisk::ObjectType::PLAIN_FILE_CONTENTS) };
        let dnode = objset.allocate_object(new, &tx).expect("an object");
        let block: Vec<u8> = (0..128u32 << 10).map(|byte| (byte * 7 % 251) as u8).collect();
        (0..FILE_BYTES >> 17).for_each(|n| dnode.write(n << 17, &block, &tx).expect("written"));
        dnode
    };
    let dirty = rows(&tree);
    assert!(dirty["dirty_data"] >= FILE_BYTES && dirty["dbufs"] > 0 && dirty["dnodes"] > 0 && dirty["range_trees"] > 0, "{dirty:?}");
    assert!(dirty["total"] >= idle["total"] + FILE_BYTES && dirty["resident"] > FILE_BYTES, "{dirty:?}");
    pool.sync().expect("synced");
    let synced = rows(&tree);
    assert_eq!((synced["dirty_data"], synced["dbufs"], synced["io_in_flight"]), (0, 0, 0), "{synced:?}");
    assert!(synced["arc_data"] >= FILE_BYTES && synced["arc_headers"] > 0 && synced["arc_data"] <= synced["arc_budget"], "{synced:?}");
    let stats = tree.read("spl/kstat/zfs/arcstats").expect("arcstats");
    for (name, row) in [("data_size", "arc_data"), ("metadata_size", "arc_metadata"), ("dnode_size", "dnodes"), ("hdr_size", "arc_headers")]
    {
        let line = stats.lines().find(|line| line.split(' ').next() == Some(name)).expect(name);
        assert_eq!(line.rsplit(' ').next().and_then(|value| value.parse().ok()), Some(synced[row]), "{name}");
    }
    pool.cache().clear();
    let cleared = rows(&tree);
    assert_eq!((cleared["arc_data"], cleared["arc_metadata"], cleared["arc_headers"]), (0, 0, 0));
    assert!(cleared["buffers_in_use"] < FILE_BYTES / 4, "{cleared:?}");
    drop((dnode, objset));
    process.pools.lock().clear();
    pool.export().expect("exported");
    abd::trim_cache();
    let ended = rows(&tree);
    for name in ["arc_data", "arc_metadata", "dirty_data", "dbufs", "dnodes", "bonuses", "range_trees", "indirects_remembered"] {
        assert_eq!(ended[name], 0, "{name}: {ended:?}");
    }
    assert!(ended["total"] <= idle["total"] + (8 << 20), "{idle:?} {ended:?}");
}
