//! What a library prints: read from the pipe that its process has as its output, and said line by line, so much in a minute and no more.
//!
//! Whoever prints never waits for who listens: everything is read, and what is too much is counted.

use exec::{Condvar, Exec, Mutex};
use std::io::{self, PipeReader, Read};
use std::sync::Arc;
use std::time::Duration;

/// Bytes that are said of a library in a minute, the costs of its lines included.
const BYTES_MAX: usize = 64 << 10;
/// Length of a minute, in nanoseconds.
const MINUTE_NS: u64 = 60_000_000_000;
/// Longest line, in bytes: one that is longer is said as several.
const LINE_BYTES_MAX: usize = 1024;
/// Bytes that a line costs besides its own: time, level and name stand before it.
const LINE_COST: usize = 64;
/// Bytes that are read at a time.
const READ_BYTES: usize = 64 << 10;
/// Time for which the last words of a process that has ended are waited for: somebody else may hold its output open.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// Lines of a library, and how many of their bytes were said in the minute of now.
struct Lines {
    library: String,
    /// Begin of a line whose end was not read yet.
    line: Vec<u8>,
    since_ns: u64,
    spent: usize,
    left_out: u64,
}

impl Lines {
    fn new(library: String, now_ns: u64) -> Lines {
        Lines { library, line: Vec::new(), since_ns: now_ns, spent: 0, left_out: 0 }
    }

    /// Takes bytes that were printed, and says what ends with them.
    fn take(&mut self, bytes: &[u8], now_ns: u64, say: &mut dyn FnMut(&str)) {
        if now_ns.saturating_sub(self.since_ns) >= MINUTE_NS {
            self.tell_left_out(say);
            (self.since_ns, self.spent) = (now_ns, 0);
        }
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            if self.spent >= BYTES_MAX {
                self.left_out += piece.len() as u64;
                continue;
            }
            self.line.extend_from_slice(piece);
            if piece.ends_with(b"\n") || self.line.len() >= LINE_BYTES_MAX {
                self.say_line(say);
            }
        }
    }

    /// Says what was read of a line, as far as there is room for it.
    fn say_line(&mut self, say: &mut dyn FnMut(&str)) {
        let line = std::mem::take(&mut self.line);
        for part in line.trim_ascii_end().chunks(LINE_BYTES_MAX) {
            if self.spent >= BYTES_MAX {
                self.left_out += part.len() as u64;
                continue;
            }
            let text = String::from_utf8_lossy(part);
            let text: String = text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
            say(&format!("library '{}' says: {text}", self.library));
            self.spent += part.len() + LINE_COST;
            if self.spent >= BYTES_MAX {
                say(&format!("library '{}' prints more than {} KiB in a minute: the rest is left out", self.library, BYTES_MAX >> 10));
            }
        }
    }

    fn tell_left_out(&mut self, say: &mut dyn FnMut(&str)) {
        if self.left_out > 0 {
            say(&format!("library '{}' printed {} bytes more, which were left out", self.library, self.left_out));
            self.left_out = 0;
        }
    }

    /// Says what is left when nothing more can come.
    fn end(&mut self, say: &mut dyn FnMut(&str)) {
        self.say_line(say);
        self.tell_left_out(say);
    }
}

/// State of a reader of what a library prints.
#[derive(Default)]
struct Reading {
    is_over: Mutex<bool>,
    told: Condvar,
}

/// Reader of what a library prints, as far as somebody waits for its end.
pub(crate) struct Words(Arc<Reading>);

impl Words {
    /// Reads `from` to its end, and calls `say` with each line. Not for executors without threads.
    pub(crate) fn follow(exec: &Exec, library: String, mut say: fn(&str), mut from: PipeReader) -> Words {
        let reading: Arc<Reading> = Arc::default();
        let (own, clock) = (reading.clone(), exec.clone());
        let work = move || {
            let mut lines = Lines::new(library, clock.now_ns());
            let mut bytes = vec![0; READ_BYTES];
            loop {
                match from.read(&mut bytes) {
                    Ok(0) => break,
                    Ok(count) => lines.take(&bytes[..count], clock.now_ns(), &mut say),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(_) => break,
                }
            }
            lines.end(&mut say);
            *own.is_over.lock() = true;
            own.told.notify_all();
        };
        // It ends by itself, with the last process that can print there.
        drop(exec.spawn_operation("z-provider-words", Box::new(work)));
        Words(reading)
    }

    /// Waits, a moment at most, until the last words of a process that has ended were said. For operations only.
    pub(crate) fn wait(&self) {
        let mut is_over = self.0.is_over.lock();
        if !*is_over {
            self.0.told.wait_for(&mut is_over, LAST_WORDS);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use exec::Pool;
    use std::io::Write;

    fn take(lines: &mut Lines, bytes: &[u8], now_ns: u64) -> Vec<String> {
        let mut said = Vec::new();
        lines.take(bytes, now_ns, &mut |line| said.push(line.to_string()));
        said
    }

    /// A library that prints without end would fill the disk that the daemon's log is on; one that prints a little is to be heard.
    #[test]
    fn what_a_library_prints_is_bounded_and_counted() {
        let mut lines = Lines::new("acme.so".into(), 0);
        assert_eq!(take(&mut lines, b"no li", 1), Vec::<String>::new());
        assert_eq!(take(&mut lines, b"cence\x1b[2J\n\n", 2), ["library 'acme.so' says: no licence [2J"]);
        let flood = b"an error in line 7\n".repeat(100_000);
        let said = take(&mut lines, &flood, 3);
        let bytes: usize = said.iter().map(String::len).sum();
        assert!(bytes < 2 * BYTES_MAX, "{bytes} bytes");
        assert_eq!(said.last().map(String::as_str), Some("library 'acme.so' prints more than 64 KiB in a minute: the rest is left out"));
        assert_eq!(take(&mut lines, &flood, 4), Vec::<String>::new(), "and again");
        let said_of_flood = (said.len() - 1) * b"an error in line 7\n".len();
        let left_out = 2 * flood.len() - said_of_flood;
        let next = take(&mut lines, b"hello\n", MINUTE_NS);
        let counted = format!("library 'acme.so' printed {left_out} bytes more, which were left out");
        assert_eq!(next, [counted, "library 'acme.so' says: hello".into()]);
        let mut said = Vec::new();
        lines.take(&vec![b'x'; 3 * BYTES_MAX], MINUTE_NS + 1, &mut |line| said.push(line.to_string()));
        assert!(said.iter().all(|line| line.len() < 2 * LINE_BYTES_MAX), "a line without end");
        said.clear();
        lines.end(&mut |line| said.push(line.to_string()));
        assert_eq!(said.len(), 1, "{said:?}");
    }

    /// A pipe that nobody empties would stop the library in the middle of a block.
    #[test]
    fn who_prints_much_does_not_wait() {
        static SAID: Mutex<usize> = Mutex::new(0);
        let (from, mut to) = io::pipe().unwrap();
        let exec: Exec = Arc::new(Pool::new(2));
        let words = Words::follow(&exec, "acme.so".into(), |line| *SAID.lock() += line.len(), from);
        for _ in 0..64 {
            to.write_all(&b"an error in line 7\n".repeat(10_000)).unwrap();
        }
        drop(to);
        while !*words.0.is_over.lock() {
            words.wait();
        }
        let said = *SAID.lock();
        assert!(said > 1000 && said < 2 * BYTES_MAX, "{said} bytes");
    }
}
