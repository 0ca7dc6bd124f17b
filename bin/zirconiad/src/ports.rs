//! Ports of the network: opened when the daemon starts, and those that somebody else has then again and again. Pools and mounts never wait for them.

use control::Control;
use exec::Mutex;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Pause between two tries, the first of them …
const PAUSE: Duration = Duration::from_secs(1);
/// … which are so many …
const OFTEN: usize = 30;
/// … and those after that.
const PAUSE_LATER: Duration = Duration::from_secs(10);

/// Service that is to be had at a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// Volumes as disks of iSCSI.
    Iscsi,
    /// Volumes over NBD.
    Nbd,
    /// Metrics, over HTTP.
    Metrics,
}

impl Service {
    fn name(self) -> &'static str {
        match self {
            Service::Iscsi => "iSCSI",
            Service::Nbd => "NBD",
            Service::Metrics => "metrics",
        }
    }
}

/// Service, and the address and port at which it is to be.
type Place = (Service, SocketAddr);

/// Ports at which the daemon is to serve, each with its listener, or the reason why there is none.
pub struct Ports(Vec<(Place, io::Result<TcpListener>)>);

impl Ports {
    /// Opens the ports that somebody asked for, as far as that is possible now.
    pub fn open(wishes: [(Service, Option<SocketAddr>); 3]) -> Ports {
        let places = wishes.into_iter().filter_map(|(service, address)| Some((service, address?)));
        Ports(places.map(|place| (place, TcpListener::bind(place.1))).collect())
    }

    /// Serves at those that are open, and has the others tried again until [`Usher::end`]. Does not wait for them. Also gives the listeners for readers
    /// of the metrics, as they come.
    ///
    /// # Errors
    /// Those of the system, of ports that are open.
    pub fn serve(self, control: &Arc<Control>) -> io::Result<(Arc<Usher>, UnboundedReceiver<TcpListener>)> {
        let (metrics, readers) = unbounded_channel();
        let usher = Arc::new(Usher { control: control.clone(), metrics, is_over: Mutex::default() });
        for (place, listener) in self.0 {
            match listener {
                Ok(listener) => usher.serve(place, listener)?,
                Err(error) => {
                    control.port_closed(place.0.name(), place.1, &error);
                    let usher = usher.clone();
                    // Detached: it ends when the port is open, or the daemon ends.
                    std::thread::Builder::new().name("z-port".to_string()).spawn(move || usher.try_again(place))?;
                }
            }
        }
        Ok((usher, readers))
    }
}

/// Way from the ports to what is served there.
pub struct Usher {
    control: Arc<Control>,
    metrics: UnboundedSender<TcpListener>,
    is_over: Mutex<bool>,
}

impl Usher {
    /// Ends the tries: nothing is served at another port from now on.
    pub fn end(&self) {
        *self.is_over.lock() = true;
    }

    fn serve(&self, (service, address): Place, listener: TcpListener) -> io::Result<()> {
        match service {
            Service::Iscsi => self.control.serve_iscsi(listener)?,
            Service::Nbd => self.control.serve_nbd_at(listener)?,
            Service::Metrics => {
                listener.set_nonblocking(true)?;
                // Nobody is there any more when the daemon ends.
                let _ = self.metrics.send(listener);
            }
        }
        self.control.port_opened(service.name(), address);
        Ok(())
    }

    /// Tries to open a port until it is open, or the daemon ends.
    fn try_again(&self, place: Place) {
        let pauses = std::iter::repeat_n(PAUSE, OFTEN).chain(std::iter::repeat(PAUSE_LATER));
        for pause in pauses {
            std::thread::sleep(pause);
            // Held meanwhile: nothing begins while the rest ends.
            let is_over = self.is_over.lock();
            if *is_over {
                return;
            }
            match TcpListener::bind(place.1).and_then(|listener| self.serve(place, listener)) {
                Ok(()) => return,
                Err(error) => self.control.port_closed(place.0.name(), place.1, &error),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, a port that another program has takes all pools away: the daemon does not start.
    #[test]
    fn a_port_that_is_taken_fails_nothing_else() {
        let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = taken.local_addr().expect("its address");
        let Ports(ports) = Ports::open([(Service::Iscsi, Some(address)), (Service::Nbd, None), (Service::Metrics, None)]);
        let failures: Vec<_> = ports.iter().map(|(place, listener)| (*place, listener.as_ref().err().map(io::Error::kind))).collect();
        assert_eq!(failures, [((Service::Iscsi, address), Some(io::ErrorKind::AddrInUse))]);
    }
}
