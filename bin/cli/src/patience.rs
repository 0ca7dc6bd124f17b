//! Words for whoever waits for something that takes long: silence looks like a command that hangs.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Time after which somebody who waits is told what for.
const FIRST: Duration = Duration::from_secs(4);
/// Time after which they are told again.
const NEXT: Duration = Duration::from_secs(30);

/// Does `work`; once that has taken a while, and now and then after that, standard error says what is waited for.
pub fn patiently<T>(what: &str, work: impl FnOnce() -> T) -> T {
    let (working, ended) = channel::<()>();
    let begun = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut pause = FIRST;
            while ended.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                crate::errln!("waiting for {} s: {what}", begun.elapsed().as_secs());
                pause = NEXT;
            }
        });
        let done = work();
        drop(working);
        done
    })
}
