//! How much background I/O a device needs at a time to be as fast as it can, so that the first who uses it after a while does not meet
//! a full queue: half as much again as the device does in the time of its quickest I/O (bandwidth × delay). Constant memory, no clock.

/// Number of I/Os that are never too many.
const IOS_MIN: u32 = 4;

#[derive(Clone, Debug)]
pub(crate) struct Flight {
    /// I/Os and bytes in the device, and bytes that came back so far.
    ios: u32,
    bytes: u64,
    delivered: u64,
    /// Most bytes a second that came back during an I/O; what was seen long ago counts less.
    best_per_second: u64,
    least_ns: u64,
}

impl Flight {
    pub(crate) fn new() -> Flight {
        Flight { ios: 0, bytes: 0, delivered: 0, best_per_second: 0, least_ns: u64::MAX }
    }

    /// A background I/O goes to the device. Says what came back before; [`Flight::landed`] is to be told that.
    pub(crate) fn launched(&mut self, size_bytes: u64) -> u64 {
        self.ios += 1;
        self.bytes += size_bytes;
        self.delivered
    }

    /// Counts a background I/O that came back after so long.
    pub(crate) fn landed(&mut self, size_bytes: u64, delivered_before: u64, device_ns: u64) {
        self.ios = self.ios.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(size_bytes);
        self.delivered += size_bytes;
        let meanwhile = u128::from(self.delivered - delivered_before) * 1_000_000_000;
        let per_second = u64::try_from(meanwhile / u128::from(device_ns.max(1))).unwrap_or(u64::MAX);
        self.best_per_second = per_second.max(self.best_per_second - self.best_per_second / 1024);
        self.least_ns = self.least_ns.min(device_ns);
    }

    /// Bytes in the device.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Time in ns that the device needs for so many bytes in sequence; 0 where that is not known yet.
    pub(crate) fn takes_ns(&self, bytes: u64) -> u64 {
        let product = u128::from(bytes) * 1_000_000_000;
        product.checked_div(u128::from(self.best_per_second)).map_or(0, |ns| u64::try_from(ns).unwrap_or(u64::MAX))
    }

    /// True when more at a time would not be faster.
    pub(crate) fn is_enough(&self) -> bool {
        let product = u128::from(self.best_per_second) * u128::from(self.least_ns) / 1_000_000_000;
        self.ios >= IOS_MIN && u128::from(self.bytes) * 2 >= product * 3
    }
}
