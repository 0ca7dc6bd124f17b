//! Layouts as the commands spell them (`stripe:4`, `raidz2:6`, `draid2:4d:11c:2s`), and what they mean for device I/Os.

use crate::measure::text;
use std::str::FromStr;
use vdev::{DraidConfig, TopKind};

const SECTOR_BYTES: u64 = 4096;

/// Devices and how they are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Kind of the top-level vdevs; a single leaf for stripes.
    pub kind: TopKind,
    /// Number of devices in all.
    pub devices: usize,
}

impl FromStr for Layout {
    type Err = String;
    fn from_str(spec: &str) -> Result<Layout, String> {
        let (kind, devices) = spec.split_once(':').ok_or("a layout looks like raidz2:6")?;
        if let Some(parity) = kind.strip_prefix("draid") {
            return draid(parity, devices).ok_or_else(|| format!("'{spec}' is no dRAID layout: one looks like draid2:4d:11c:2s"));
        }
        let devices: usize = devices.parse().map_err(text)?;
        let (kind, least) = match kind {
            "stripe" => (TopKind::Leaf, 1),
            "mirror" => (TopKind::Mirror, 2),
            "raidz1" => (TopKind::Raidz(1), 2),
            "raidz2" => (TopKind::Raidz(2), 3),
            "raidz3" => (TopKind::Raidz(3), 4),
            _ => return Err(format!("unknown layout '{kind}'")),
        };
        if devices < least {
            return Err(format!("{spec} needs at least {least} devices"));
        }
        Ok(Layout { kind, devices })
    }
}

/// Parses a dRAID layout; its number of devices must be given.
fn draid(parity: &str, fields: &str) -> Option<Layout> {
    let field = |unit: char| fields.split(':').find_map(|field| field.strip_suffix(unit)).map(str::parse::<usize>);
    let (data, devices) = (field('d')?.ok()?, field('c')?.ok()?);
    let spares = field('s').unwrap_or(Ok(0)).ok()?;
    let config = DraidConfig::new(parity.parse().ok()?, data, spares, devices).ok()?;
    Some(Layout { kind: TopKind::Draid(config), devices })
}

impl std::fmt::Display for Layout {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.kind {
            TopKind::Mirror => write!(f, "mirror:{}", self.devices),
            TopKind::Raidz(parity) => write!(f, "raidz{parity}:{}", self.devices),
            TopKind::Draid(config) => {
                write!(f, "draid{}:{}d:{}c:{}s", config.parity(), config.data(), self.devices, config.spares())
            }
            _ => write!(f, "stripe:{}", self.devices),
        }
    }
}

impl Layout {
    /// Number of devices that the data alone would fill.
    pub fn data_devices(self) -> usize {
        match self.kind {
            TopKind::Mirror => 1,
            TopKind::Raidz(parity) => self.devices - parity as usize,
            TopKind::Draid(config) => (config.disks() * config.data() / config.width()).max(1),
            _ => self.devices,
        }
    }

    /// Number of devices that data and parity would fill: room for distributed spares does not count.
    pub fn full_devices(self) -> usize {
        match self.kind {
            TopKind::Draid(config) => config.disks(),
            _ => self.devices,
        }
    }

    /// Number of devices that may be lost together.
    pub fn tolerance(self) -> usize {
        match self.kind {
            TopKind::Mirror => self.devices - 1,
            TopKind::Raidz(parity) => parity as usize,
            TopKind::Draid(config) => config.parity(),
            _ => 0,
        }
    }

    /// Top-level vdevs: kind, and number of devices of each.
    pub fn tops(self) -> Vec<(TopKind, usize)> {
        match self.kind {
            TopKind::Leaf => vec![(TopKind::Leaf, 1); self.devices],
            kind => vec![(kind, self.devices)],
        }
    }

    /// Bytes of the I/O that one record makes on one data device.
    pub fn device_io_bytes(self, record: u64) -> u64 {
        match self.kind {
            TopKind::Draid(config) => record.div_ceil(config.data() as u64).next_multiple_of(SECTOR_BYTES),
            TopKind::Raidz(_) => record.div_ceil(self.data_devices() as u64).next_multiple_of(SECTOR_BYTES),
            _ => record,
        }
    }

    /// Ratio of data bytes to device bytes when written.
    pub fn efficiency(self) -> f64 {
        match self.kind {
            TopKind::Mirror => 1.0 / self.devices as f64,
            TopKind::Draid(config) => config.data() as f64 / config.width() as f64,
            _ => self.data_devices() as f64 / self.devices as f64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The floor is measured with these sizes: a wrong one makes every overhead wrong.
    #[test]
    fn device_io_sizes_follow_the_geometry() {
        let io = |spec: &str, record| spec.parse::<Layout>().expect("a layout").device_io_bytes(record);
        assert_eq!(io("stripe:4", 1 << 20), 1 << 20);
        assert_eq!(io("raidz2:6", 1 << 20), 256 << 10);
        assert_eq!(io("raidz2:6", 16 << 10), 4096);
        assert_eq!(io("raidz2:12", 1 << 20), 106_496);
        assert_eq!(io("draid2:4d:11c:2s", 1 << 20), 256 << 10);
        assert_eq!(io("mirror:2", 128 << 10), 128 << 10);
    }

    /// A layout that is misread would be reported under the wrong name.
    #[test]
    fn names_are_read_back() {
        for spec in ["stripe:1", "mirror:3", "raidz1:3", "raidz3:8", "draid2:4d:11c:2s", "draid1:3d:4c:0s"] {
            assert_eq!(spec.parse::<Layout>().expect("a layout").to_string(), spec);
        }
        assert!("raidz2:2".parse::<Layout>().is_err());
        assert!("raidz4:9".parse::<Layout>().is_err());
        assert!("draid2:11c".parse::<Layout>().is_err());
        assert!("draid2:8d:9c".parse::<Layout>().is_err());
    }
}
