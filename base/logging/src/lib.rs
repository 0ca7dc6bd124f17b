//! Where the log goes that every crate writes through `tracing` (docs/adr/0014): the ring `dbgmsg`, and a daemon's standard error.
//!
//! A program that asks for neither has no log: then a message costs a look at one number. Neither makes any text of a message that nobody
//! listens to. Standard error hears each place in the code so often and not more; the ring, which has an end, always.
#![forbid(unsafe_code)]

mod limits;
mod line;

use kstat::{DebugLog, WallClock};
use limits::Limits;
use line::{Stamp, Text};
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::{Interest, Subscriber};
use tracing::{Event, Level, Metadata};

/// Least level that the ring takes.
const RING_LEVEL: Level = Level::DEBUG;
/// The environment variable that says how much goes to standard error.
pub const VARIABLE: &str = "ZIRCONIA_LOG";

/// Levels of messages that go to standard error, by the number of them: none so far.
static TOLD: AtomicU8 = AtomicU8::new(0);
/// Number of messages that standard error hears.
static LIMITS: Limits = Limits::new();
/// True when a service manager reads standard error and adds the time itself.
static IS_JOURNAL: AtomicBool = AtomicBool::new(false);

/// The levels, from the one that is said of the least to the one that is said of the most.
const LEVELS: [Level; 5] = [Level::ERROR, Level::WARN, Level::INFO, Level::DEBUG, Level::TRACE];

fn rank(level: Level) -> u8 {
    LEVELS.iter().position(|one| *one == level).map_or(u8::MAX, |at| at as u8 + 1)
}

/// Returns the least level that standard error is told, from [`VARIABLE`]: from errors on down to a level, or nothing (`off`); `info` where it says nothing.
///
/// # Errors
/// The word, where it is none of these.
pub fn wish() -> Result<Option<Level>, String> {
    let text = std::env::var_os(VARIABLE).unwrap_or_default().to_string_lossy().into_owned();
    match text.as_str() {
        "" => Ok(Some(Level::INFO)),
        "off" => Ok(None),
        word => LEVELS.into_iter().find(|level| level.as_str().eq_ignore_ascii_case(word)).map(Some).ok_or(text),
    }
}

/// Keeps the newest messages of the process, down to debug, in the ring; by this clock.
pub fn keep(clock: WallClock) -> &'static DebugLog {
    let log = DebugLog::start(clock);
    listen();
    log
}

/// Tells standard error from now on, down to this level: to be called once it leads where it is to stay.
pub fn tell(level: Option<Level>) {
    let journal = std::env::var("JOURNAL_STREAM").ok();
    IS_JOURNAL.store(journal.is_some_and(|name| is_standard_error(&name)), Ordering::Relaxed);
    TOLD.store(level.map_or(0, rank), Ordering::Relaxed);
    listen();
}

/// True when messages go to standard error: what a program has to say itself belongs among them.
pub fn is_telling() -> bool {
    TOLD.load(Ordering::Relaxed) > 0
}

fn listen() {
    // The first call counts; all listeners are the same one.
    let _ = tracing::subscriber::set_global_default(Listener);
    tracing::callsite::rebuild_interest_cache();
}

/// True when this device and inode (systemd: `$JOURNAL_STREAM`) are those of standard error: it may lead elsewhere by now.
fn is_standard_error(name: &str) -> bool {
    rustix::fs::fstat(std::io::stderr()).is_ok_and(|file| format!("{}:{}", file.st_dev, file.st_ino) == name)
}

fn is_told(level: Level) -> bool {
    rank(level) <= TOLD.load(Ordering::Relaxed)
}

/// Hands events on to the ring and to standard error. Spans are not used.
struct Listener;

impl Subscriber for Listener {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        // Parameters switch the ring on and off.
        if metadata.is_event() { Interest::sometimes() } else { Interest::never() }
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let level = *metadata.level();
        metadata.is_event() && (is_told(level) || level <= RING_LEVEL && DebugLog::listening().is_some())
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        let ring = if DebugLog::get().is_some() { rank(RING_LEVEL) } else { 0 };
        let most = ring.max(TOLD.load(Ordering::Relaxed));
        Some(most.checked_sub(1).map_or(LevelFilter::OFF, |at| LevelFilter::from_level(LEVELS[usize::from(at)])))
    }

    fn event(&self, event: &Event<'_>) {
        let (metadata, text) = (event.metadata(), Text::of(event));
        let level = *metadata.level();
        if let Some(log) = DebugLog::listening().filter(|_| level <= RING_LEVEL) {
            log.add(metadata.file().unwrap_or_default(), metadata.line().unwrap_or_default(), &text.0);
        }
        if is_told(level) {
            let clock = exec::system_clock();
            let stamp = if IS_JOURNAL.load(Ordering::Relaxed) { Stamp::Priority } else { Stamp::time(clock) };
            let place = (metadata.file().unwrap_or_default(), metadata.line().unwrap_or_default());
            for (level, text) in LIMITS.admit(place, (level, text), clock.0) {
                // In one piece, and nobody is told when it cannot be written: there is no other place to say it.
                let _ = std::io::stderr().lock().write_all(stamp.line(level, &text).as_bytes());
            }
        }
    }

    fn new_span(&self, _span: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _span: &Id, _values: &Record<'_>) {}
    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}
    fn enter(&self, _span: &Id) {}
    fn exit(&self, _span: &Id) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use kstat::Cursor;
    use std::cell::Cell;
    use std::fmt;

    /// Counts how often text is made of it.
    #[derive(Default)]
    struct Costly(Cell<u32>);

    impl fmt::Display for Costly {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            self.0.set(self.0.get() + 1);
            f.write_str("made")
        }
    }

    /// If this fails, whoever looks for a cause does not find what was said, or everybody pays for text that nobody reads.
    #[test]
    fn the_ring_has_what_is_said_while_it_listens() {
        let cost = Costly::default();
        tracing::error!("nobody hears {cost}");
        assert_eq!(cost.0.get(), 0, "before there is a log");
        let log = keep(Box::new(|| (1_700_000_000, 0)));
        let text = || String::from_utf8(Cursor::new(log.messages()).read(0, 1 << 20).unwrap()).unwrap();
        tracing::trace!("{cost}");
        assert_eq!(cost.0.get(), 0, "less than debug");
        tracing::debug!(txg = 7, "pool 'tank' is {cost}");
        let (last, line) = (text(), line!() - 1);
        assert!(last.ends_with(&format!("\n1700000000   lib.rs:{line}: pool 'tank' is made txg=7\n")), "{last}");
        log.tune(false, 1 << 20);
        tracing::error!("not kept: {cost}");
        assert_eq!(cost.0.get(), 1, "while it is off");
        log.tune(true, 1 << 20);
        tracing::info!(%cost, "again");
        assert!(text().ends_with(": again cost=made\n"), "{}", text());
    }

    /// If this fails, lines in the journal lack their level, or a log file its times, after the daemon was started by a service manager.
    #[test]
    fn the_journal_is_known_by_its_stream() {
        let own = rustix::fs::fstat(std::io::stderr()).unwrap();
        assert!(is_standard_error(&format!("{}:{}", own.st_dev, own.st_ino)));
        assert!(!is_standard_error(&format!("{}:{}", own.st_dev, own.st_ino + 1)) && !is_standard_error(""));
    }
}
