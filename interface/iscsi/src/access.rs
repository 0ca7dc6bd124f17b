//! The port that says who may use which target, and with which secrets.

use std::net::IpAddr;

/// One name and its secret of CHAP.
#[derive(Clone, PartialEq, Eq)]
pub struct Account {
    /// Name (`CHAP_N`).
    pub name: String,
    /// Secret; 12 bytes at least (RFC 7143, section 12.1.3).
    pub secret: Vec<u8>,
}

impl std::fmt::Debug for Account {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Account").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Secrets that both ends prove to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chap {
    /// Account of the initiator.
    pub initiator: Account,
    /// Account of the target, for initiators that ask it to prove itself; its secret differs from the initiator's.
    pub target: Option<Account>,
}

/// Access of one initiator to one target, or to discovery.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grant {
    /// Secrets to prove; None lets anybody in who says the name.
    pub chap: Option<Chap>,
    /// True when nothing may be written.
    pub is_read_only: bool,
}

/// Rights of initiators. Asked once per login and once per list of targets; answers at once.
pub trait Access: Send + Sync {
    /// Access of `initiator`, which comes from `peer`, to `target`; None is none, and the target is not shown.
    fn target(&self, initiator: &str, peer: IpAddr, target: &str) -> Option<Grant>;
    /// Access of `initiator`, which comes from `peer`, to the list of its targets; None is none.
    fn discovery(&self, initiator: &str, peer: IpAddr) -> Option<Grant>;
}
