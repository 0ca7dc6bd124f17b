//! The doors of volumes to the network (docs/adr/0020): targets of iSCSI, who may use them, and what of a volume each of them shows; and exports of NBD.

mod door;
mod export;
mod exports;
mod names;
mod ports;
mod reads;
mod requests;
mod reservations;
mod rights;
mod running;
#[cfg(test)]
mod tests;
mod unit;

pub(crate) use door::Portal;
#[cfg(feature = "testing")]
pub(crate) use export::export_of;
pub(crate) use exports::NbdDoor;
pub(crate) use ports::Ports;
pub(crate) use requests::changes_volumes;

/// Number of threads of a disk, at most. Each disk has its own, so that requests that wait for a suspended pool hold up nobody else's.
const THREADS_MAX: usize = 16;
