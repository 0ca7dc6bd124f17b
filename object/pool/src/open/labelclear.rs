//! Looking at and erasing the labels of a device that belongs to no open pool (OpenZFS: `zpool labelclear`, `zdb -l`).

use crate::PoolError;
use crate::label::{Copies, Device, DeviceLabels, KnownRings, LabelWrite, flush_all, read_configs_into, read_labels, write_all};
use crate::spa::config::{PoolFacts, PoolState};
use abd::Abd;
use exec::Exec;
use nvlist::NvList;
use ondisk::Uberblock;
use ondisk::label::LABEL_BYTES;

/// Contents of the labels of a device.
#[derive(Clone, Debug, Default)]
pub struct LabelReport {
    /// The valid configurations, newest first.
    pub configs: Vec<NvList>,
    /// The valid uberblocks, best first.
    pub uberblocks: Vec<Uberblock>,
    /// Number of labels that do not verify, of four.
    pub damaged: usize,
    /// Name and state of the pool that the device belongs to.
    pub pool: Option<(String, PoolState)>,
}

/// Reads the labels of `device`.
pub fn inspect_labels(exec: &Exec, device: &Device) -> LabelReport {
    let labels = read_labels(exec, device, &mut KnownRings::default());
    let pool = labels.configs.first().and_then(PoolFacts::from_config).map(|facts| (facts.name, facts.state));
    LabelReport { configs: labels.configs, uberblocks: labels.uberblocks, damaged: labels.damaged, pool }
}

/// Erases the labels of `device` that are valid, and says how many; the caller made sure that nobody needs them. What lies where others
/// were is somebody else's (OpenZFS: `zpool_clear_label`).
pub fn clear_labels(exec: &Exec, device: &Device) -> Result<usize, PoolError> {
    let Copies { valid, .. } = read_configs_into(exec, device, (0, LABEL_BYTES), &mut DeviceLabels::default());
    let blank = Abd::zeroed(LABEL_BYTES);
    let erase = |(offset, _): &(u64, Abd)| LabelWrite { device: device.clone(), offset: *offset, data: blank.clone() };
    write_all(exec, valid.iter().map(erase).collect()).into_iter().collect::<Result<(), _>>()?;
    flush_all(exec, std::slice::from_ref(device)).into_iter().collect::<Result<(), _>>()?;
    Ok(valid.len())
}
