//! The recording: every write and flush of all devices in the order they happened, for building crash images later.

use crate::crash::{CrashChoice, CrashWalker};
use crate::pages::Image;
use abd::Abd;

/// Number of a device of a simulation, in order of their creation.
pub type DeviceIndex = usize;
/// Number of a write, in order of their submission.
pub type WriteId = usize;

/// Event that changes what a power cut would leave, or what it may leave.
#[derive(Clone, Debug)]
pub enum Event {
    /// A write was submitted: from here on it may have reached the medium, wholly or in part.
    Write {
        /// Number of the write.
        id: WriteId,
        /// Index of the device.
        device: DeviceIndex,
        /// First byte on the device.
        offset: u64,
        /// The bytes, shared with the writer.
        data: Abd,
    },
    /// A write completed: a flush submitted from here on makes it durable.
    Done {
        /// Number of the write.
        id: WriteId,
    },
    /// A flush completed.
    Flushed {
        /// Index of the device.
        device: DeviceIndex,
        /// Writes whose `Done` event has a lower index than this are durable.
        covers: usize,
    },
    /// A write is durable by itself: no flush is needed.
    Durable {
        /// Number of the write.
        id: WriteId,
    },
    /// The program said something, such as "fsync number n returned".
    Mark(u64),
}

/// All events of a simulation, and what the devices held before the first.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    pub(crate) initial: Vec<Image>,
    pub(crate) events: Vec<Event>,
    pub(crate) writes: usize,
}

impl Recording {
    /// The events in order.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// Number of devices.
    pub fn devices(&self) -> usize {
        self.initial.len()
    }

    /// Number of writes.
    pub fn writes(&self) -> usize {
        self.writes
    }

    /// The moments worth cutting at, as numbers of events that happened: before everything, and after each write and each
    /// flush, and once a write is durable by itself (marks change no image).
    pub fn cuts(&self) -> Vec<usize> {
        let changes = |event: &Event| matches!(event, Event::Write { .. } | Event::Flushed { .. } | Event::Durable { .. });
        std::iter::once(0).chain(self.events.iter().enumerate().filter(|(_, event)| changes(event)).map(|(index, _)| index + 1)).collect()
    }

    /// The last mark among the first `cut` events.
    pub fn mark_at(&self, cut: usize) -> Option<u64> {
        self.events[..cut].iter().rev().find_map(|event| if let Event::Mark(mark) = event { Some(*mark) } else { None })
    }

    /// A walker over the moments of this recording, at its beginning.
    pub fn walk(&self) -> CrashWalker<'_> {
        CrashWalker::new(self)
    }

    /// Visits the moments of [`Recording::cuts`] whose number leaves `rest` when divided by `every`, in their order.
    pub fn each_cut(&self, (every, rest): (usize, usize), each: &mut dyn FnMut(&Cut<'_>)) {
        let mut walk = self.walk();
        for (number, events) in self.cuts().into_iter().enumerate() {
            walk.advance(events);
            if number % every.max(1) == rest {
                each(&Cut { number, events, mark: self.mark_at(events), walk: &walk });
            }
        }
    }
}

/// Moment at which the power goes off.
#[derive(Debug)]
pub struct Cut<'a> {
    /// Number among all moments.
    pub number: usize,
    /// Number of events that happened before.
    pub events: usize,
    /// Last mark before.
    pub mark: Option<u64>,
    walk: &'a CrashWalker<'a>,
}

impl Cut<'_> {
    /// The image of every device, if these writes reached the medium.
    pub fn images(&self, choice: CrashChoice) -> Vec<Image> {
        self.walk.images(choice)
    }

    /// Images of the three kinds: everything that was not flushed is lost, written, or torn and chosen at random.
    pub fn each_image(&self, seed: u64, each: &mut dyn FnMut(CrashChoice, Vec<Image>)) {
        for choice in [CrashChoice::Lost, CrashChoice::Applied, CrashChoice::Random(seed ^ self.events as u64)] {
            each(choice, self.images(choice));
        }
    }
}

/// Number of moments of which a test visits one: `$POWER_CUTS_EVERY` (1 for all of them), else `usual`.
pub fn cuts_every(usual: usize) -> usize {
    std::env::var("POWER_CUTS_EVERY").ok().and_then(|text| text.parse().ok()).unwrap_or(usual).max(1)
}
