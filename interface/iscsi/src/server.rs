//! The listener: who may connect, how many, and an end that lets initiators log out.

use crate::driver::drive;
use crate::targets::Targets;
use crowd::{Crowd, Origin, Place};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Pause after a connection that could not be accepted, for example without descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Limits of a server.
#[derive(Clone, Debug)]
pub struct Options {
    /// Connections at the same time. With one more, that which did not log in and was silent longest is closed.
    pub connections_max: usize,
    /// Connections of one address that have not logged in yet; so with them.
    pub logins_per_address_max: usize,
    /// Time for a login, in whole seconds.
    pub login_time: Duration,
    /// Silence of an initiator after which it is pinged, in whole seconds; after three times as much it is given up.
    pub ping_after: Duration,
    /// Time that initiators have to log out when the server stops, in whole seconds.
    pub drain: Duration,
    /// Silence after which an initiator without commands under way is given up when the server stops, below a second: it loses nothing.
    pub farewell: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            connections_max: 256,
            logins_per_address_max: 16,
            login_time: Duration::from_secs(30),
            ping_after: Duration::from_secs(10),
            drain: Duration::from_secs(10),
            farewell: Duration::from_millis(500),
        }
    }
}

/// Serves `targets` on `listener` until `stop` is true (or its sender is gone) and all connections have ended: initiators are asked to log
/// out, have [`Options::drain`] for it, or [`Options::farewell`] with nothing under way, and what runs then ends before this returns.
pub async fn serve(listener: TcpListener, targets: Arc<Targets>, options: Options, mut stop: watch::Receiver<bool>) {
    let mut connections = JoinSet::new();
    let (told, is_stopping) = watch::channel(false);
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => {
                    while connections.try_join_next().is_some() {}
                    if let Some(half_open) = enter(targets.crowd(), Origin::Address(peer.ip()), connections.len(), &options) {
                        connections.spawn(one(stream, targets.clone(), options.clone(), half_open, is_stopping.clone()));
                    }
                }
                Err(error) => {
                    tracing::warn!("iSCSI connections cannot be accepted: {error}");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
            Some(_) = connections.join_next() => {}
            () = stopped(&mut stop) => break,
        }
    }
    drop(listener);
    // Nobody listens when there is no connection.
    let _ = told.send(true);
    while connections.join_next().await.is_some() {}
}

/// Place for one more connection beside `count`; None when it cannot be served.
fn enter(crowd: &Arc<Crowd>, origin: Origin, count: usize, options: &Options) -> Option<Place> {
    // Those that make room are not all gone yet.
    if count >= options.connections_max + options.logins_per_address_max {
        crowd.refuse(origin);
        return None;
    }
    crowd.enter(origin, options.logins_per_address_max, count >= options.connections_max)
}

/// Waits until the value is true, or nobody can change it any more.
pub(crate) async fn stopped(stop: &mut watch::Receiver<bool>) {
    // Nothing is kept of the value: it is locked.
    let _ = stop.wait_for(|is_stopping| *is_stopping).await.is_ok();
}

async fn one(stream: TcpStream, targets: Arc<Targets>, options: Options, half_open: Place, stop: watch::Receiver<bool>) {
    if let Err(error) = drive(stream, targets, &options, half_open, stop).await {
        tracing::info!("iSCSI connection ended with an error: {error}");
    }
}
