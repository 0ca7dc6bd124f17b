//! Streams that are sent from a pool and received into it: who cannot go on because of them says which they are, and who goes on all the same ends them.

use exec::{Exec, Mutex};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Nanoseconds that streams get which are just ending: who makes or takes one hears a moment later that nobody wants it any more.
const PATIENCE_NS: u64 = 5_000_000_000;
/// Nanoseconds between two looks at them.
const STEP_NS: u64 = 10_000_000;

/// End of a stream for whoever works on it. It waits for nothing, and does nothing when it is called again.
pub(crate) type Cut = Arc<dyn Fn() + Send + Sync>;

/// Way of a stream.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Way {
    Sent,
    Received,
}

struct Stream {
    way: Way,
    /// Full name of the snapshot.
    name: String,
    cut: Cut,
}

#[derive(Default)]
struct Known {
    /// Number of the last one that began.
    last: u64,
    streams: BTreeMap<u64, Stream>,
}

/// Streams of a pool that are under way.
#[derive(Default)]
pub(crate) struct Streams(Mutex<Known>);

/// Stream that is under way as long as this lives.
pub(crate) struct UnderWay {
    streams: Arc<Streams>,
    number: u64,
}

impl Streams {
    /// Notes that a stream begins, which `cut` ends.
    pub fn begin(self: &Arc<Self>, way: Way, name: String, cut: Cut) -> UnderWay {
        let mut known = self.0.lock();
        known.last += 1;
        let number = known.last;
        known.streams.insert(number, Stream { way, name, cut });
        UnderWay { streams: self.clone(), number }
    }

    /// Sentences about the streams that are under way: `'tank/a@b' is being sent`.
    pub fn sentences(&self) -> Vec<String> {
        let sentence = |stream: &Stream| match stream.way {
            Way::Sent => format!("'{}' is being sent", stream.name),
            Way::Received => format!("'{}' is being received", stream.name),
        };
        self.0.lock().streams.values().map(sentence).collect()
    }

    /// Waits a while for those that are just ending; returns sentences about the others.
    pub fn settle(&self, exec: &Exec) -> Vec<String> {
        let until = exec.now_ns().saturating_add(PATIENCE_NS);
        loop {
            let sentences = self.sentences();
            if sentences.is_empty() || exec.now_ns() >= until {
                return sentences;
            }
            exec.sleep_ns(STEP_NS);
        }
    }

    /// Number of streams that are received into a dataset.
    pub fn received_into(&self, dataset: &str) -> usize {
        let is_it = |stream: &&Stream| stream.way == Way::Received && stream.name.split('@').next() == Some(dataset);
        self.0.lock().streams.values().filter(is_it).count()
    }

    /// Ends all of them; does not wait for that.
    pub fn cut(&self) {
        let cuts: Vec<Cut> = self.0.lock().streams.values().map(|stream| stream.cut.clone()).collect();
        cuts.iter().for_each(|cut| cut());
    }
}

impl UnderWay {
    /// Notes which snapshot it is about by now.
    pub fn now(&self, name: String) {
        if let Some(stream) = self.streams.0.lock().streams.get_mut(&self.number) {
            stream.name = name;
        }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        // What it ends is let go of without the lock.
        let ended = self.streams.0.lock().streams.remove(&self.number);
        drop(ended);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// If this fails, an export or an upgrade cuts a backup without a word, or is refused because of one that ended long ago.
    #[test]
    fn streams_are_named_until_they_end_and_can_be_ended() {
        let exec: Exec = Arc::new(exec::Inline::new(1));
        let (streams, cuts) = (Arc::<Streams>::default(), Arc::new(AtomicU32::new(0)));
        let counted = cuts.clone();
        let cut: Cut = Arc::new(move || {
            counted.fetch_add(1, Ordering::Relaxed);
        });
        let sent = streams.begin(Way::Sent, "t/a@1".to_string(), cut.clone());
        let received = streams.begin(Way::Received, "t/b@1".to_string(), cut);
        sent.now("t/a@2".to_string());
        assert_eq!(streams.settle(&exec), ["'t/a@2' is being sent", "'t/b@1' is being received"]);
        assert_eq!(["t/a", "t/b", "t"].map(|name| streams.received_into(name)), [0, 1, 0]);
        streams.cut();
        assert_eq!(cuts.load(Ordering::Relaxed), 2);
        drop(received);
        assert_eq!(streams.sentences(), ["'t/a@2' is being sent"]);
        drop(sent);
        assert!(streams.settle(&exec).is_empty());
    }
}
