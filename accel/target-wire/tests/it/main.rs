//! Frames of targets and shared regions, as a hostile peer or somebody on the link fills them. One program: each file of tests by itself would be linked with all that is below.

mod hostile;
mod region;
mod sealed;

use target_wire::{Channel, Initiator, Secret, respond};

/// Both ends of a connection after its handshake.
fn channels() -> (Channel, Channel) {
    let secret = Secret::new(b"correct horse battery staple").unwrap();
    let (initiator, hello) = Initiator::new(&secret).unwrap();
    let (challenge, target) = respond(&secret, &hello).unwrap();
    (initiator.finish(&challenge).unwrap(), target)
}
