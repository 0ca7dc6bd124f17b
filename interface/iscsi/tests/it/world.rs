//! A server with one target of one unit in memory, and who may use it.

use exec::Mutex;
use iscsi::ram::{RamStore, RamUnit};
use iscsi::{Access, Disk, Geometry, Grant, Kept, Options, Targets, serve};
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use tokio::runtime::Runtime;
use tokio::sync::watch;

/// Name of the target.
pub const TARGET: &str = "iqn.2026-11.example:disk";
/// Number of blocks of its unit, of 512 bytes; eight are a physical one.
pub const BLOCKS: u64 = 32 * 2048;

/// Rights of initiators: (initiator, target) → grant; an empty target is discovery.
#[derive(Default)]
pub struct Table(pub Mutex<HashMap<(String, String), Grant>>);

impl Table {
    /// Lets `initiator` use `target`.
    pub fn allow(&self, initiator: &str, target: &str, grant: Grant) {
        self.0.lock().insert((initiator.into(), target.into()), grant);
    }
}

impl Access for Table {
    fn target(&self, initiator: &str, _peer: IpAddr, target: &str) -> Option<Grant> {
        self.0.lock().get(&(initiator.into(), target.into())).cloned()
    }

    fn discovery(&self, initiator: &str, peer: IpAddr) -> Option<Grant> {
        self.target(initiator, peer, "")
    }
}

/// A server; it ends with the value.
pub struct World {
    pub runtime: Runtime,
    pub address: SocketAddr,
    pub access: Arc<Table>,
    pub targets: Arc<Targets>,
    pub unit: Arc<RamUnit>,
    pub store: Arc<RamStore>,
    pub disk: Arc<Disk>,
    pub stop: watch::Sender<bool>,
    pub served: Option<tokio::task::JoinHandle<()>>,
}

impl World {
    /// A server that lets the initiators `a` and `b` in.
    pub fn new() -> World {
        World::with(Options::default(), None)
    }

    /// A server with limits, and with persistent reservations that were kept.
    pub fn with(options: Options, kept: Option<Kept>) -> World {
        let access = Arc::new(Table::default());
        for initiator in ["a", "b"] {
            access.allow(initiator, TARGET, Grant::default());
            access.allow(initiator, "", Grant::default());
        }
        let targets = Targets::new(access.clone());
        let geometry = Geometry { blocks: BLOCKS, block_bytes: 512, physical_exponent: 3, is_thin: true, is_read_only: false };
        let unit = Arc::new(RamUnit::new("serial-1", geometry));
        let store = Arc::new(RamStore::default());
        let target = targets.add(TARGET).expect("the name is free");
        let disk = Arc::new(Disk::new(unit.clone(), store.clone(), kept));
        assert!(target.attach(0, disk.clone()));
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let (stop, stopped) = watch::channel(false);
        let served = Some(runtime.spawn(serve(listener, targets.clone(), options, stopped)));
        World { runtime, address, access, targets, unit, store, disk, stop, served }
    }
}
