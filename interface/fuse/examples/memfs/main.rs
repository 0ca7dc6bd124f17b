//! Mounts the trivial in-memory file system: `memfs MOUNTPOINT [MAX_WRITE_BYTES]`; ends when it is unmounted.

mod fs;

use std::sync::Arc;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let mountpoint = arguments.get(1).ok_or("usage: memfs MOUNTPOINT [MAX_WRITE_BYTES]")?;
    let uring = std::env::var("URING").map_or(fuse::Uring::Off, |_| fuse::Uring::Auto);
    let mut options = fuse::MountOptions { source: "memfs".into(), uring, ..Default::default() };
    if let Some(max_write) = arguments.get(2) {
        options.max_write = max_write.parse()?;
    }
    let exec: exec::Exec = Arc::new(exec::Pool::new(1));
    let session = fuse::Session::mount(&exec, Arc::new(fs::MemFs::new()), mountpoint.as_ref(), &options)?;
    println!("mounted: {:?}", session.negotiated());
    session.join();
    Ok(())
}
