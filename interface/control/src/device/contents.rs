//! What fills a device: file systems, partition tables, labels of pools.

use device::{BlockDevice, Partition, WindowDevice};
use exec::Exec;
use pool::{LeafSpec, Membership, PoolState};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

/// Line of text about a device with the label of a pool.
pub(crate) fn line_of(path: &str, member: &Membership) -> String {
    let state = if member.state == PoolState::Exported { "exported" } else { "potentially active" };
    format!("{path} is part of {state} pool '{}'", member.pool)
}

/// Line of text about a device of a pool that is open here.
pub(crate) fn line_of_active(path: &str, pool: &str) -> String {
    format!("{path} is part of active pool '{pool}'")
}

/// Magics of file systems and partition tables on a device.
pub(crate) fn signatures(exec: &Exec, device: &Arc<dyn BlockDevice>) -> Vec<device::Signature> {
    device::signatures(device.size_bytes(), &mut |offset, length| bytes_at(exec, device, offset, length))
}

/// Kind of what fills a device, as `libblkid` calls it.
pub(crate) fn kind_of(exec: &Exec, device: &Arc<dyn BlockDevice>) -> Option<&'static str> {
    let member = pool::membership(exec, device).map(|_| "zfs_member");
    member.or_else(|| signatures(exec, device).iter().find(|one| !one.is_table).map(|one| one.kind))
}

fn bytes_at(exec: &Exec, device: &Arc<dyn BlockDevice>, offset: u64, length: usize) -> Option<Vec<u8>> {
    let read = device.read_at(exec, offset, length).ok()?.to_contiguous();
    read.as_contiguous().map(<[u8]>::to_vec)
}

/// Contents of a device without a label of a pool, in words; None for nothing that anybody knows.
pub(crate) fn content_of(exec: &Exec, leaf: &LeafSpec) -> Option<String> {
    let found = signatures(exec, &leaf.device);
    if let Some(one) = found.iter().find(|one| !one.is_table) {
        return Some(format!("{} contains a filesystem of type '{}'", leaf.path, one.kind));
    }
    let table = found.first()?;
    let device = &leaf.device;
    let partitions = device::partitions(device.size_bytes(), &mut |offset, length| bytes_at(exec, device, offset, length));
    // The partitions that OpenZFS makes on whole disks are judged by what is in them.
    if partitions.is_empty() || partitions.iter().any(|partition| !partition.is_of_pool) {
        return Some(format!("{} contains a partition table of type '{}'", leaf.path, table.kind));
    }
    partitions.iter().zip(1..).find_map(|(partition, number)| content_of_partition(exec, leaf, partition, number))
}

fn content_of_partition(exec: &Exec, leaf: &LeafSpec, partition: &Partition, number: u32) -> Option<String> {
    let window: Arc<dyn BlockDevice> = Arc::new(WindowDevice::new(leaf.device.clone(), partition.offset, partition.length)?);
    let between = if leaf.path.ends_with(|last: char| last.is_ascii_digit()) { "p" } else { "" };
    let path = format!("{}{between}{number}", leaf.path);
    if let Some(member) = pool::membership(exec, &window) {
        return Some(line_of(&path, &member));
    }
    let kind = signatures(exec, &window).first()?.kind;
    Some(format!("{path} contains a filesystem of type '{kind}'"))
}

/// True for a device without anything that a pool put there.
pub(crate) fn is_blank(exec: &Exec, device: &Arc<dyn BlockDevice>) -> bool {
    let labels = pool::inspect_labels(exec, device);
    labels.configs.is_empty() && labels.uberblocks.is_empty()
}

/// Bytes that the file or device at a path has now.
pub(crate) fn bytes_now(path: &str) -> Option<u64> {
    let metadata = std::fs::metadata(path).ok()?;
    if metadata.is_file() {
        return Some(metadata.len());
    }
    let number = metadata.rdev();
    let node = format!("/sys/dev/block/{}:{}/size", rustix::fs::major(number), rustix::fs::minor(number));
    let sectors: u64 = std::fs::read_to_string(node).ok()?.trim().parse().ok()?;
    sectors.checked_mul(512)
}
