//! Lists that are read as files, record by record, while they change (OpenZFS: `procfs_list_t`).
//!
//! A reader goes on where it stopped, however much was added meanwhile; when records that it had still before it are gone, it
//! gets an error instead of a text with a hole.

use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;

/// Records that a reader had still before it are gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Missed;

/// A list of records as text.
pub trait Listing: Send + Sync {
    /// The line above the records.
    fn header(&self) -> String;
    /// The records from number `from` on (0: from the oldest), at least `bytes` of them if there are so many, and the number that
    /// comes next. Nothing when there are no more.
    ///
    /// # Errors
    /// [`Missed`] when record `from` was there and is not any more.
    fn lines(&self, from: u64, bytes: usize) -> Result<(String, u64), Missed>;
    /// Forgets all records; their numbers are not used again.
    fn clear(&self);
}

struct Kept<T> {
    /// Number of the oldest record; numbers begin with 1.
    first: u64,
    records: VecDeque<T>,
    cost: usize,
    limit: usize,
}

impl<T> Kept<T> {
    fn trim(&mut self, cost: fn(&T) -> usize) {
        while self.cost > self.limit {
            let Some(record) = self.records.pop_front() else { return };
            self.cost -= cost(&record);
            self.first += 1;
        }
    }
}

/// The newest records of a kind, up to a limit.
pub struct Records<T> {
    header: String,
    show: fn(&T) -> String,
    cost: fn(&T) -> usize,
    kept: Mutex<Kept<T>>,
}

impl<T> Records<T> {
    /// No records yet. `show` makes a line, with its end; all records together may cost `limit`.
    pub fn new(header: String, show: fn(&T) -> String, cost: fn(&T) -> usize, limit: usize) -> Records<T> {
        Records { header, show, cost, kept: Mutex::new(Kept { first: 1, records: VecDeque::new(), cost: 0, limit }) }
    }

    /// Adds the newest record; the oldest go for it if there are too many.
    pub fn add(&self, record: T) {
        let mut kept = self.kept.lock();
        kept.cost += (self.cost)(&record);
        kept.records.push_back(record);
        kept.trim(self.cost);
    }

    /// Has `change` look at the records, newest first, until it says that it was the right one. What a record costs must stay.
    pub fn change(&self, mut change: impl FnMut(&mut T) -> bool) {
        self.kept.lock().records.iter_mut().rev().any(&mut change);
    }

    /// Sets what all records together may cost from now on.
    pub fn set_limit(&self, limit: usize) {
        let mut kept = self.kept.lock();
        kept.limit = limit;
        kept.trim(self.cost);
    }
}

impl<T: Send> Listing for Records<T> {
    fn header(&self) -> String {
        self.header.clone()
    }

    fn lines(&self, from: u64, bytes: usize) -> Result<(String, u64), Missed> {
        let kept = self.kept.lock();
        if from != 0 && from < kept.first {
            return Err(Missed);
        }
        let (mut text, mut next) = (String::new(), from.max(kept.first));
        let skipped = usize::try_from(next - kept.first).unwrap_or(usize::MAX);
        for record in kept.records.iter().skip(skipped) {
            if text.len() >= bytes {
                break;
            }
            text += &(self.show)(record);
            next += 1;
        }
        Ok(if text.is_empty() { (text, from) } else { (text, next) })
    }

    fn clear(&self) {
        let mut kept = self.kept.lock();
        kept.first += kept.records.len() as u64;
        kept.records.clear();
        kept.cost = 0;
    }
}

impl<T> std::fmt::Debug for Records<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kept = self.kept.lock();
        f.debug_struct("Records").field("first", &kept.first).field("count", &kept.records.len()).finish_non_exhaustive()
    }
}

/// One reader of a listing: the place where it is, and what it did not take yet of a record.
pub struct Cursor {
    listing: Arc<dyn Listing>,
    /// Offset in the file of the first byte of `text`.
    start: u64,
    text: Vec<u8>,
    next: u64,
}

impl Cursor {
    /// A reader at the beginning.
    pub fn new(listing: Arc<dyn Listing>) -> Cursor {
        let text = listing.header().into_bytes();
        Cursor { listing, start: 0, text, next: 0 }
    }

    /// Returns up to `size` bytes from `offset` on; none at the end. Reading from before the last place begins anew.
    ///
    /// # Errors
    /// [`Missed`] as [`Listing::lines`], when nothing else is left to be given.
    pub fn read(&mut self, offset: u64, size: usize) -> Result<Vec<u8>, Missed> {
        if offset < self.start {
            *self = Cursor::new(self.listing.clone());
        }
        let at = loop {
            let at = usize::try_from(offset - self.start).unwrap_or(usize::MAX);
            let wanted = at.saturating_add(size);
            if self.text.len() >= wanted {
                break at;
            }
            match self.listing.lines(self.next, wanted - self.text.len()) {
                Ok((text, _)) if text.is_empty() => break at,
                Ok((text, next)) => {
                    self.text.extend_from_slice(text.as_bytes());
                    self.next = next;
                }
                Err(Missed) if self.text.len() > at => break at,
                Err(Missed) => return Err(Missed),
            }
        };
        let at = at.min(self.text.len());
        let end = at.saturating_add(size).min(self.text.len());
        let given = self.text[at..end].to_vec();
        self.text.drain(..end);
        self.start += end as u64;
        Ok(given)
    }
}

impl std::fmt::Debug for Cursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cursor").field("start", &self.start).field("next", &self.next).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(limit: usize) -> Arc<Records<u32>> {
        Arc::new(Records::new("head\n".into(), |n| format!("record {n}\n"), |_| 1, limit))
    }

    fn all(cursor: &mut Cursor, mut offset: u64, size: usize) -> Result<String, Missed> {
        let mut text = Vec::new();
        loop {
            let more = cursor.read(offset, size)?;
            if more.is_empty() {
                return Ok(String::from_utf8(text).unwrap());
            }
            offset += more.len() as u64;
            text.extend(more);
        }
    }

    /// A program that reads in small pieces would see other messages than one that reads in large ones.
    #[test]
    fn the_text_does_not_depend_on_how_it_is_read() {
        let records = list(20);
        (0..30).for_each(|n| records.add(n));
        let whole: String = "head\n".to_string() + &(10..30).map(|n| format!("record {n}\n")).collect::<String>();
        for size in [1, 7, 64, 4096] {
            assert_eq!(all(&mut Cursor::new(records.clone()), 0, size).unwrap(), whole, "{size}");
        }
        let mut cursor = Cursor::new(records.clone());
        assert_eq!(cursor.read(0, 8).unwrap(), b"head\nrec");
        assert_eq!(cursor.read(0, 4).unwrap(), b"head", "a second look at the beginning");
        records.set_limit(2);
        assert_eq!(all(&mut Cursor::new(records), 0, 64).unwrap(), "head\nrecord 28\nrecord 29\n");
    }

    /// A reader that lost records would believe that nothing happened in between.
    #[test]
    fn lost_records_are_an_error_and_new_ones_are_not() {
        let records = list(20);
        (0..10).for_each(|n| records.add(n));
        let mut cursor = Cursor::new(records.clone());
        let head = cursor.read(0, 20).unwrap().len() as u64;
        records.add(10);
        let other = all(&mut Cursor::new(records.clone()), 0, 9).unwrap();
        records.clear();
        let rest = cursor.read(head, 4096).unwrap();
        assert_eq!(rest, b" 1\n", "what was begun is ended");
        assert_eq!(cursor.read(head + rest.len() as u64, 4096), Err(Missed));
        assert!(other.ends_with("record 10\n"));
        let mut cursor = Cursor::new(records.clone());
        assert_eq!(all(&mut cursor, 0, 64).unwrap(), "head\n", "nothing there is no error");
        records.add(11);
        assert_eq!(all(&mut cursor, 5, 64).unwrap(), "record 11\n");
        records.clear();
        assert_eq!(cursor.read(15, 64), Ok(Vec::new()), "all of it was read");
    }
}
