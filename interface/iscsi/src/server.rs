//! The listener: who may connect, how many, and an end that lets initiators log out.

use crate::driver::drive;
use crate::targets::Targets;
use exec::Mutex;
use std::collections::HashMap;
use std::net::IpAddr;
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
    /// Connections at the same time.
    pub connections_max: usize,
    /// Connections of one address that have not logged in yet.
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

type Counts = Arc<Mutex<HashMap<IpAddr, usize>>>;

/// A connection that has not logged in; counted until this is dropped.
#[derive(Debug)]
pub(crate) struct HalfOpen {
    address: IpAddr,
    counts: Counts,
}

impl HalfOpen {
    /// Counts a connection of `address`; None when it has too many.
    fn begin(address: IpAddr, counts: &Counts, most: usize) -> Option<HalfOpen> {
        let mut table = counts.lock();
        let count = table.entry(address).or_default();
        if *count >= most {
            return None;
        }
        *count += 1;
        Some(HalfOpen { address, counts: counts.clone() })
    }
}

impl Drop for HalfOpen {
    fn drop(&mut self) {
        let mut table = self.counts.lock();
        if let Some(count) = table.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                table.remove(&self.address);
            }
        }
    }
}

/// Serves `targets` on `listener` until `stop` is true (or its sender is gone) and all connections have ended: initiators are asked to log
/// out, have [`Options::drain`] for it, or [`Options::farewell`] with nothing under way, and what runs then ends before this returns.
pub async fn serve(listener: TcpListener, targets: Arc<Targets>, options: Options, mut stop: watch::Receiver<bool>) {
    let mut connections = JoinSet::new();
    let counts = Counts::default();
    let (told, is_stopping) = watch::channel(false);
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => {
                    let begin = || HalfOpen::begin(peer.ip(), &counts, options.logins_per_address_max);
                    match (connections.len() < options.connections_max).then(begin).flatten() {
                        Some(half_open) => {
                            connections.spawn(one(stream, targets.clone(), options.clone(), half_open, is_stopping.clone()));
                        }
                        None => tracing::warn!("iSCSI connection of {peer} refused: there are too many"),
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

/// Waits until the value is true, or nobody can change it any more.
pub(crate) async fn stopped(stop: &mut watch::Receiver<bool>) {
    // Nothing is kept of the value: it is locked.
    let _ = stop.wait_for(|is_stopping| *is_stopping).await.is_ok();
}

async fn one(stream: TcpStream, targets: Arc<Targets>, options: Options, half_open: HalfOpen, stop: watch::Receiver<bool>) {
    if let Err(error) = drive(stream, targets, &options, half_open, stop).await {
        tracing::info!("iSCSI connection ended with an error: {error}");
    }
}
