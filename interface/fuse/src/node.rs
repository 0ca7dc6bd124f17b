//! Numbers that nodes have in the protocol, between the kernel and the server.

/// Node number of the protocol; 1 is the root.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u64);

impl NodeId {
    /// Node number of the root directory.
    pub const ROOT: NodeId = NodeId(1);
}
