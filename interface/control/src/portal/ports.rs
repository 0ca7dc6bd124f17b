//! Ports of the network at which the daemon is to serve and cannot: somebody else has them, or their address is not there yet. Whoever opens them tries
//! again; meanwhile this is what is said of them.

use crate::events::Events;
use control_api::os_error;
use exec::Mutex;
use kstat::{Event, EventSink};
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;

/// Class of the event of a port that cannot be opened …
const CLOSED: &str = "sysevent.fs.zfs.zirconia_port_closed";
/// … and of one that could at last.
const OPENED: &str = "sysevent.fs.zfs.zirconia_port_opened";

/// Service at an address and port.
pub(crate) type Port = (&'static str, SocketAddr);

/// Ports that are not open, each with the reason.
#[derive(Debug, Default)]
pub(crate) struct Ports(Mutex<BTreeMap<Port, String>>);

fn event(class: &'static str, (service, address): Port) -> Event {
    Event::new(class).with("service", service).with("address", address.to_string())
}

fn sentence((service, address): &Port, why: &str) -> String {
    format!("{service}: not served at {address}: {why}; it is tried again")
}

impl Ports {
    /// Notes that a port could not be opened, and tells of it where that is news.
    pub(crate) fn closed(&self, events: &Events, port: Port, error: &io::Error) {
        let why = os_error(error);
        if self.0.lock().insert(port, why.clone()).as_ref() == Some(&why) {
            return;
        }
        tracing::warn!("{}", sentence(&port, &why));
        events.log.event(event(CLOSED, port).with("error", why));
    }

    /// Notes that a port is open, and tells of it where it was not before.
    pub(crate) fn opened(&self, events: &Events, port: Port) {
        if self.0.lock().remove(&port).is_some() {
            tracing::info!("{}: {} is free at last", port.0, port.1);
            events.log.event(event(OPENED, port));
        }
    }

    /// Sentences about the ports that are not open.
    pub(crate) fn sentences(&self) -> Vec<String> {
        self.0.lock().iter().map(|(port, why)| sentence(port, why)).collect()
    }
}
