//! Threads of listeners to the network, and how they end.

use std::future::Future;
use std::io;
use std::time::Duration;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Threads that move data between sockets and volumes.
const THREADS: usize = 4;
/// Time that clients have to go when the daemon ends.
pub(super) const DRAIN: Duration = Duration::from_secs(5);

/// Waits until the value is true, or nobody can change it any more.
pub(super) async fn stopped(stop: &mut watch::Receiver<bool>) {
    // Nothing is kept of the value: it is locked.
    let _ = stop.wait_for(|is_stopping| *is_stopping).await.is_ok();
}

/// Threads of some listeners.
pub(super) struct Running {
    runtime: Runtime,
    served: Vec<JoinHandle<()>>,
    stop: watch::Sender<bool>,
}

impl Running {
    /// Starts threads of this name.
    ///
    /// # Errors
    /// Those of the system.
    pub(super) fn new(name: &'static str) -> io::Result<Running> {
        // The runtime panics where it gets no thread.
        if exec::lacks_threads(THREADS) {
            return Err(io::Error::new(io::ErrorKind::WouldBlock, exec::NoThread));
        }
        let runtime = Builder::new_multi_thread().worker_threads(THREADS).thread_name(name).enable_all().build()?;
        Ok(Running { runtime, served: Vec::new(), stop: watch::channel(false).0 })
    }

    /// Way to the threads.
    pub(super) fn handle(&self) -> &Handle {
        self.runtime.handle()
    }

    /// Value that is true when a listener has to end.
    pub(super) fn stop(&self) -> watch::Receiver<bool> {
        self.stop.subscribe()
    }

    /// Runs a listener, which ends by itself when it is told to.
    pub(super) fn serve(&mut self, listener: impl Future<Output = ()> + Send + 'static) {
        self.served.push(self.runtime.spawn(listener));
    }

    /// Ends the listeners: their clients, of whom `who` speaks, have some time to go.
    pub(super) fn end(self, who: &str) {
        let Running { runtime, served, stop } = self;
        stop.send_replace(true);
        let all = async {
            for listener in served {
                // One that broke has ended too.
                let _ = listener.await;
            }
        };
        if runtime.block_on(async { tokio::time::timeout(2 * DRAIN, all).await.is_err() }) {
            tracing::warn!("requests of {who} are given up: they do not end");
        }
        runtime.shutdown_background();
    }

    /// Ends the listeners at once.
    pub(super) fn cut(self) {
        self.runtime.shutdown_background();
    }
}
