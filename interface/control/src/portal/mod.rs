//! The door of volumes to the network: targets of iSCSI, who may use them, and what of a volume each of them shows (docs/adr/0020).

mod door;
mod hands;
mod names;
mod requests;
mod reservations;
mod rights;
#[cfg(test)]
mod tests;
mod unit;

pub(crate) use door::Portal;
pub(crate) use requests::changes_volumes;
