//! What the policy knows of the device that it serves: nothing of its size, its address or its health.

/// Facts of a device that the policy must know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device {
    /// True when places far apart are expensive.
    pub rotational: bool,
    /// Number of leaves that a request of its vdev waits for: whoever made it sees the slowest of them. 1 where a leaf serves requests alone.
    pub width: u32,
}
