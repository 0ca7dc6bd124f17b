//! Which target a provider is of, and how it is reached. Nothing here connects.

use std::time::Duration;
use target_wire::{Address, Secret};

/// Target to connect to, and its name here.
#[derive(Clone, Debug)]
pub struct TargetOptions {
    /// The provider's name.
    pub name: String,
    /// Address at which the target listens.
    pub address: Address,
    /// Secret that both know.
    pub secret: Secret,
    /// Time that connecting and each step of the handshake may take.
    pub timeout: Duration,
    /// Bytes of memory to share with a target on this machine, over a Unix socket; 0 for none.
    pub shared_bytes: u64,
    /// True when a connection that failed is made again.
    pub reconnects: bool,
}

impl TargetOptions {
    /// Memory to share, where nobody says otherwise: 32 records of 1 MiB.
    pub const SHARED_BYTES: u64 = 32 << 20;

    /// A target at `address`, with five seconds for each step.
    pub fn new(name: &str, address: Address, secret: Secret) -> TargetOptions {
        TargetOptions {
            name: name.to_string(),
            address,
            secret,
            timeout: Duration::from_secs(5),
            shared_bytes: TargetOptions::SHARED_BYTES,
            reconnects: true,
        }
    }

    /// A target at the other end of a pair of sockets, for [`crate::TargetProvider::over`]: there is one connection, and no other.
    pub fn private(name: &str, secret: Secret) -> TargetOptions {
        TargetOptions { reconnects: false, ..TargetOptions::new(name, Address::Unix("-".into()), secret) }
    }
}
