//! Messages for whoever looks for the cause of something (OpenZFS: `zfs_dbgmsg`, kstat `dbgmsg`): the newest of the process, in memory.
//!
//! Crates say what there is to say through `tracing`; `logging` hands it on to this log. Nothing is kept, and no text made, before a program
//! starts it.

use crate::{Records, WallClock};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// Bytes of messages kept unless told otherwise (OpenZFS: `zfs_dbgmsg_maxsize`).
const MESSAGE_BYTES_MAX: usize = 4 << 20;

/// A message of the debug log.
#[derive(Debug)]
pub struct DebugMessage {
    /// Wall-clock time in seconds.
    seconds: i64,
    text: String,
}

impl DebugMessage {
    fn show(&self) -> String {
        format!("{:<12} {}\n", self.seconds, self.text)
    }
    fn cost(&self) -> usize {
        size_of::<DebugMessage>() + self.text.len()
    }
}

/// The log of a process.
pub struct DebugLog {
    clock: WallClock,
    enabled: AtomicBool,
    messages: Arc<Records<DebugMessage>>,
}

static LOG: OnceLock<DebugLog> = OnceLock::new();

impl DebugLog {
    /// Starts the log of this process, if nobody has; gives it.
    pub fn start(clock: WallClock) -> &'static DebugLog {
        LOG.get_or_init(|| {
            let header = format!("{:<12} {:<8}\n", "timestamp", "message");
            let messages = Records::new(header, DebugMessage::show, DebugMessage::cost, MESSAGE_BYTES_MAX);
            DebugLog { clock, enabled: AtomicBool::new(true), messages: Arc::new(messages) }
        })
    }

    /// The log, once it was started.
    pub fn get() -> Option<&'static DebugLog> {
        LOG.get()
    }

    /// Messages that are kept.
    pub fn messages(&self) -> Arc<Records<DebugMessage>> {
        self.messages.clone()
    }

    /// Sets whether messages are kept from now on, and how many bytes of them (OpenZFS: `zfs_dbgmsg_enable`, `zfs_dbgmsg_maxsize`).
    pub fn tune(&self, enabled: bool, bytes_max: usize) {
        self.enabled.store(enabled, Ordering::Relaxed);
        self.messages.set_limit(bytes_max);
    }

    /// The log, where it was started and keeps messages.
    pub fn listening() -> Option<&'static DebugLog> {
        LOG.get().filter(|log| log.enabled.load(Ordering::Relaxed))
    }

    /// Keeps a message, which is one line, said at a place in the source.
    pub fn add(&self, file: &str, line: u32, text: &str) {
        let file = file.rsplit('/').next().unwrap_or(file);
        self.messages.add(DebugMessage { seconds: (self.clock)().0, text: format!("{file}:{line}: {text}") });
    }
}

impl std::fmt::Debug for DebugLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DebugLog").field("messages", &self.messages).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Cursor;

    /// A log that nobody reads must not grow for ever, and one that is off keeps nothing.
    #[test]
    fn the_log_is_off_until_started_and_bounded_then() {
        assert!(DebugLog::listening().is_none());
        let log = DebugLog::start(Box::new(|| (1_700_000_000, 0)));
        let text = || String::from_utf8(Cursor::new(log.messages()).read(0, 1 << 20).unwrap()).unwrap();
        assert_eq!(text(), "timestamp    message \n");
        log.add("object/pool/src/open/find.rs", 7, "pool 'tank' is open");
        assert!(text().ends_with("\n1700000000   find.rs:7: pool 'tank' is open\n"), "{}", text());
        log.tune(false, 1 << 20);
        assert!(DebugLog::listening().is_none());
        log.tune(true, 1000);
        assert!(DebugLog::listening().is_some());
        (0..1000).for_each(|n| log.add("a.rs", n, &format!("message {n}")));
        assert!(text().ends_with("message 999\n") && text().len() < 1100);
    }
}
