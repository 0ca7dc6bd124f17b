//! The listeners: how many may connect and haggle, and an end that waits for what is under way.

use crate::driver::drive;
use crate::export::Exports;
use crate::guests::Guests;
use crowd::{Crowd, Origin, Place};
use rustix::net::sockopt;
use std::io::{self, IoSlice, IoSliceMut};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{Interest, Ready};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Pause after a connection that could not be accepted, for example without descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Number of questions whether a client is still there before it counts as gone.
const PROBES: u32 = 3;

/// Limits of a server.
#[derive(Clone, Debug)]
pub struct Options {
    /// Connections of one listener at the same time. With one more, that which has no export and was silent longest is closed, else one of the
    /// address that has most.
    pub connections_max: usize,
    /// Connections of one address, or of this machine, that have no export yet. With one more, that which was silent longest is closed.
    pub haggling_max: usize,
    /// Time until a client has its export, in whole seconds.
    pub haggling_time: Duration,
    /// Silence of a client on another machine after which the system looks whether it is still there, in whole seconds.
    pub probe_after: Duration,
    /// Time that what is under way has to end when the server stops, in whole seconds.
    pub drain: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            connections_max: 256,
            haggling_max: 16,
            haggling_time: Duration::from_secs(15),
            probe_after: Duration::from_secs(30),
            drain: Duration::from_secs(5),
        }
    }
}

/// Socket at which clients are served.
#[derive(Debug)]
pub enum Listener {
    /// Socket of this machine; who may open it may connect.
    Unix(UnixListener),
    /// Port; who reaches it may connect.
    Tcp(TcpListener),
}

impl Listener {
    async fn accept(&self) -> io::Result<Stream> {
        match self {
            Listener::Unix(listener) => {
                let (stream, _) = listener.accept().await?;
                let process = stream.peer_cred().ok().and_then(|peer| peer.pid());
                let client = process.map_or_else(|| "local".to_string(), |process| format!("process {process}"));
                Ok(Stream { socket: Socket::Unix(stream), client, origin: Origin::Machine })
            }
            Listener::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                Ok(Stream { socket: Socket::Tcp(stream), client: peer.to_string(), origin: Origin::Address(peer.ip()) })
            }
        }
    }
}

enum Socket {
    Unix(UnixStream),
    Tcp(TcpStream),
}

/// Connection of a client.
pub(crate) struct Stream {
    socket: Socket,
    client: String,
    origin: Origin,
}

impl Stream {
    /// Name of the client, for people.
    pub(crate) fn client(&self) -> &str {
        &self.client
    }

    /// Sets how it is sent, and when a client that says nothing counts as gone.
    pub(crate) fn prepare(&self, options: &Options) -> io::Result<()> {
        let Socket::Tcp(stream) = &self.socket else { return Ok(()) };
        stream.set_nodelay(true)?;
        sockopt::set_socket_keepalive(stream, true)?;
        sockopt::set_tcp_keepidle(stream, options.probe_after)?;
        sockopt::set_tcp_keepintvl(stream, options.probe_after)?;
        sockopt::set_tcp_keepcnt(stream, PROBES)?;
        sockopt::set_tcp_user_timeout(stream, options.probe_after.as_millis() as u32 * PROBES)?;
        Ok(())
    }

    /// Waits until it can be read or written, as asked for; for ever where neither is.
    pub(crate) async fn ready(&self, interest: Option<Interest>) -> io::Result<Ready> {
        match (&self.socket, interest) {
            (_, None) => std::future::pending().await,
            (Socket::Unix(stream), Some(interest)) => stream.ready(interest).await,
            (Socket::Tcp(stream), Some(interest)) => stream.ready(interest).await,
        }
    }

    pub(crate) fn try_read(&self, spaces: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        match &self.socket {
            Socket::Unix(stream) => stream.try_read_vectored(spaces),
            Socket::Tcp(stream) => stream.try_read_vectored(spaces),
        }
    }

    pub(crate) fn try_write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match &self.socket {
            Socket::Unix(stream) => stream.try_write_vectored(slices),
            Socket::Tcp(stream) => stream.try_write_vectored(slices),
        }
    }

    /// Ends both directions.
    pub(crate) fn shut(&self) -> io::Result<()> {
        let how = rustix::net::Shutdown::Both;
        match &self.socket {
            Socket::Unix(stream) => rustix::net::shutdown(stream, how)?,
            Socket::Tcp(stream) => rustix::net::shutdown(stream, how)?,
        }
        Ok(())
    }
}

/// Serves `exports` on `listener` until `stop` is true (or its sender is gone) and all connections have ended: what is under way then has
/// [`Options::drain`] to end. Who has an export is in `guests`.
pub async fn serve(listener: Listener, exports: Arc<dyn Exports>, guests: Arc<Guests>, options: Options, mut stop: watch::Receiver<bool>) {
    let mut connections = JoinSet::new();
    let crowd = Crowd::new("NBD connections have no volume");
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok(stream) => {
                    while connections.try_join_next().is_some() {}
                    let Some(place) = enter(&crowd, stream.origin, connections.len(), &options) else { continue };
                    let (exports, guests, options, stop) = (exports.clone(), guests.clone(), options.clone(), stop.clone());
                    connections.spawn(async move {
                        if let Err(error) = drive(stream, (&*exports, &guests), &options, place, stop).await {
                            tracing::info!("NBD connection ended with an error: {error}");
                        }
                    });
                }
                Err(error) => {
                    tracing::warn!("NBD connections cannot be accepted: {error}");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
            Some(_) = connections.join_next() => {}
            () = stopped(&mut stop) => break,
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

/// Place for one more connection beside `count`; None when it cannot be served.
fn enter(crowd: &Arc<Crowd>, origin: Origin, count: usize, options: &Options) -> Option<Place> {
    // Those that make room are not all gone yet.
    if count >= options.connections_max + options.haggling_max {
        crowd.refuse(origin);
        return None;
    }
    crowd.enter(origin, options.haggling_max, count >= options.connections_max)
}

/// Waits until the value is true, or nobody can change it any more.
pub(crate) async fn stopped(stop: &mut watch::Receiver<bool>) {
    // Nothing is kept of the value: it is locked.
    let _ = stop.wait_for(|is_stopping| *is_stopping).await.is_ok();
}
