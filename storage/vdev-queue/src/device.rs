//! What the policy knows of the device that it serves: nothing of its size, its address or its health.

/// What the policy must know of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device {
    /// True when places far apart are expensive.
    pub rotational: bool,
    /// How many leaves a request of its vdev waits for: whoever made it sees the slowest of them. 1 where a leaf serves requests alone.
    pub width: u32,
}
