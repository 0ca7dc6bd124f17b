//! Messages for whoever looks for the cause of something (OpenZFS: `zfs_dbgmsg`, kstat `dbgmsg`): the newest of the process, in memory.
//!
//! Nothing is kept, and no text made, before a program starts the log.

use crate::{Records, WallClock};
use std::fmt::Arguments;
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

    fn is_enabled(&self) -> bool {
        self.enabled.load(Ordering::Relaxed)
    }

    fn add(&self, file: &str, line: u32, text: Arguments<'_>) {
        let file = file.rsplit('/').next().unwrap_or(file);
        let text = format!("{file}:{line}: {text}").replace('\n', " ");
        self.messages.add(DebugMessage { seconds: (self.clock)().0, text });
    }
}

impl std::fmt::Debug for DebugLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DebugLog").field("messages", &self.messages).finish_non_exhaustive()
    }
}

/// Keeps a message; what [`crate::debug!`] calls.
pub fn debug_message(file: &str, line: u32, text: Arguments<'_>) {
    if let Some(log) = DebugLog::get().filter(|log| log.is_enabled()) {
        log.add(file, line, text);
    }
}

/// Keeps a message in the log of the process, if it has one: written as for `format!`.
#[macro_export]
macro_rules! debug {
    ($($text:tt)*) => {
        $crate::debug_message(file!(), line!(), format_args!($($text)*))
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Cursor;

    /// A log that is off must cost nothing, and one that is on must not grow for ever.
    #[test]
    fn the_log_is_off_until_started_and_bounded_then() {
        crate::debug!("nobody hears {}", 1);
        assert!(DebugLog::get().is_none());
        let log = DebugLog::start(Box::new(|| (1_700_000_000, 0)));
        let text = || String::from_utf8(Cursor::new(log.messages()).read(0, 1 << 20).unwrap()).unwrap();
        assert_eq!(text(), "timestamp    message \n");
        crate::debug!("pool {}\nis open", "tank");
        let last = text();
        assert!(last.contains("\n1700000000   debug.rs:") && last.ends_with(": pool tank is open\n"), "{last}");
        log.tune(false, 1 << 20);
        crate::debug!("not kept");
        assert!(!text().contains("not kept"));
        log.tune(true, 1000);
        (0..1000).for_each(|n| crate::debug!("message {n}"));
        assert!(text().ends_with("message 999\n") && text().len() < 1100);
    }
}
