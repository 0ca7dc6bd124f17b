//! Mounts a file system on a block store in memory: `memory MOUNTPOINT [RECORDSIZE]`; ends when it is unmounted.
//!
//! For trying programs against the POSIX layer, and for measuring what it costs without storage below.

use dmu::ObjsetProps;
use dmu::testing::{MemBlockIo, TestPool};
use ondisk::{Compression, ObjsetType};
use std::sync::Arc;

/// Mounts it and waits for its end.
pub fn run(arguments: &[String]) -> Result<(), Box<dyn std::error::Error>> {
    let mountpoint = arguments.first().ok_or("usage: alone memory MOUNTPOINT [RECORDSIZE]")?;
    let record_size = arguments.get(1).map_or(Ok(128 << 10), |text| text.parse())?;
    let exec: exec::Exec = Arc::new(exec::Pool::new(2));
    let props = ObjsetProps { record_size, compression: Compression::OFF, ..ObjsetProps::default() };
    let pool = TestPool::create(MemBlockIo::new(exec.clone()), ObjsetType::ZFS, props)?;
    zpl::Zfs::create(&pool.objset, &zpl::CreateOptions::default(), &pool.txgs.assign(0)?)?;
    let zfs = zpl::Zfs::open(&pool.objset, Some(pool.txgs.clone()), zpl::Settings::default())?;
    let options = fuse::MountOptions { source: "memory".into(), ..Default::default() };
    let handler = Arc::new(zpl::ZplFuse::new(zfs, None));
    let session = fuse::Session::mount(&exec, handler, mountpoint.as_ref(), &options)?;
    println!("mounted: {:?}", session.negotiated());
    session.join();
    pool.txgs.stop()?;
    println!("violations: {:?}", pool.io.violations());
    Ok(())
}
