//! How fast the modelled accelerator is: link, engines, memory. Published figures where there are any, and which are assumed.

/// Bytes per second of something of which there are several.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lane {
    /// Bytes per second of one.
    pub bytes_per_second: f64,
    /// Time that each operation costs besides, in nanoseconds.
    pub latency_ns: u64,
    /// Number of those that work at the same time.
    pub engines: usize,
}

impl Lane {
    /// Time of one operation, in nanoseconds.
    pub fn time_ns(&self, bytes: u64) -> u64 {
        self.latency_ns + (bytes as f64 * 1e9 / self.bytes_per_second.max(1.0)) as u64
    }
}

/// Speeds of an accelerator.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    /// Copies from host to device.
    pub link_in: Lane,
    /// Copies from device to host.
    pub link_out: Lane,
    /// Compression, by bytes of the source.
    pub compress: Lane,
    /// Decompression, by bytes of the result.
    pub decompress: Lane,
    /// Checksums, by bytes of the source.
    pub checksum: Lane,
    /// Parity, by bytes of all columns.
    pub raid: Lane,
    /// Zeros, tests, comparisons, by bytes of the buffer.
    pub memory: Lane,
    /// Writes from device to disk.
    pub store: Lane,
}

const GB: f64 = 1e9;

impl Rates {
    /// `devices` U.2 NoLoad cards: PCIe Gen3 x4 (3.94 GB/s raw, 3.5 usable); more than 3 GB/s of compression and of decompression
    /// each (published). Checksum and erasure coding at 10 GB/s and 10 µs per operation are assumed: nothing is published.
    pub fn noload_u2(devices: usize) -> Rates {
        let lane = |gigabytes: f64, latency_ns| Lane { bytes_per_second: gigabytes * GB, latency_ns, engines: devices.max(1) };
        Rates {
            link_in: lane(3.5, 5_000),
            link_out: lane(3.5, 5_000),
            compress: lane(3.0, 10_000),
            decompress: lane(3.0, 10_000),
            checksum: lane(10.0, 10_000),
            raid: lane(10.0, 10_000),
            memory: lane(10.0, 10_000),
            store: lane(3.5, 5_000),
        }
    }

    /// A GPU on PCIe Gen5 x16 (50 GB/s usable with pinned memory) with the published rates of nvCOMP's LZ4 on an A100 (90 GB/s, of
    /// very compressible data, 313 GB/s back). 0.1 ms per operation is the lower end of what is reported for single calls;
    /// checksum and parity at 500 GB/s are assumed (bound by the device's memory).
    pub fn gpu_gen5() -> Rates {
        let lane = |gigabytes: f64, latency_ns, engines| Lane { bytes_per_second: gigabytes * GB, latency_ns, engines };
        Rates {
            link_in: lane(50.0, 10_000, 1),
            link_out: lane(50.0, 10_000, 1),
            compress: lane(90.0 / 16.0, 100_000, 16),
            decompress: lane(313.0 / 16.0, 100_000, 16),
            checksum: lane(500.0 / 16.0, 100_000, 16),
            raid: lane(500.0 / 16.0, 100_000, 16),
            memory: lane(500.0 / 16.0, 100_000, 16),
            store: lane(50.0, 10_000, 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A model that is faster or slower than its published figures proves nothing about the accelerator.
    #[test]
    fn a_mebibyte_takes_its_time() {
        let rates = Rates::noload_u2(1);
        assert_eq!(rates.compress.time_ns(3_000_000), 1_010_000);
        assert_eq!(rates.link_in.time_ns(0), 5_000);
    }
}
