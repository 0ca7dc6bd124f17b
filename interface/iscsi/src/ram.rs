//! A logical unit in memory, thin: what was never written takes no space, and reads as zeros. For trying initiators, tests and fuzzing, with rights for
//! anybody.

use crate::access::{Access, Chap, Grant};
use crate::unit::{Done, Extent, Geometry, Identity, Kept, LogicalUnit, ReservationStore, Run, UnitError};
use abd::{Abd, AbdPart};
use exec::Mutex;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

/// Blocks in memory, by physical blocks.
pub struct RamUnit {
    geometry: Mutex<Geometry>,
    serial: String,
    pages: Mutex<BTreeMap<u64, Vec<u8>>>,
}

impl RamUnit {
    /// An empty unit.
    pub fn new(serial: &str, geometry: Geometry) -> RamUnit {
        RamUnit { geometry: Mutex::new(geometry), serial: serial.into(), pages: Mutex::default() }
    }

    /// Changes the shape of the unit.
    pub fn reshape(&self, change: impl FnOnce(&mut Geometry)) {
        change(&mut self.geometry.lock());
    }

    fn page_bytes(&self) -> u64 {
        let geometry = self.geometry.lock();
        u64::from(geometry.block_bytes) << geometry.physical_exponent
    }

    fn fits(&self, at: u64, bytes: u64) -> Result<(), UnitError> {
        if at + bytes <= self.geometry.lock().bytes() { Ok(()) } else { Err(UnitError::OutOfRange) }
    }

    /// Page, offset in it, and length of each part of an extent.
    fn parts(&self, extent: Extent) -> Vec<(u64, usize, usize)> {
        let page = self.page_bytes();
        let mut parts = Vec::new();
        let mut at = extent.at;
        while at < extent.at + extent.bytes {
            let length = (page - at % page).min(extent.at + extent.bytes - at);
            parts.push((at / page, (at % page) as usize, length as usize));
            at += length;
        }
        parts
    }

    fn load(&self, extent: Extent) -> Abd {
        let pages = self.pages.lock();
        let mut part = AbdPart::scratch(extent.bytes as usize);
        let mut done = 0;
        for (page, offset, length) in self.parts(extent) {
            let into = &mut part[done..done + length];
            match pages.get(&page) {
                Some(bytes) => into.copy_from_slice(&bytes[offset..offset + length]),
                None => into.fill(0),
            }
            done += length;
        }
        part.freeze()
    }

    fn clear(&self, extent: Extent) {
        let page_bytes = self.page_bytes() as usize;
        let mut pages = self.pages.lock();
        for (page, offset, length) in self.parts(extent) {
            if length == page_bytes {
                pages.remove(&page);
            } else if let Some(bytes) = pages.get_mut(&page) {
                bytes[offset..offset + length].fill(0);
            }
        }
    }

    fn store(&self, at: u64, data: &Abd) {
        let page_bytes = self.page_bytes() as usize;
        let mut pages = self.pages.lock();
        let mut done = 0;
        for (page, offset, length) in self.parts(Extent { at, bytes: data.len() as u64 }) {
            let bytes = pages.entry(page).or_insert_with(|| vec![0; page_bytes]);
            data.copy_to(done, &mut bytes[offset..offset + length]);
            done += length;
        }
    }
}

impl LogicalUnit for RamUnit {
    fn identity(&self) -> Identity {
        let mut naa = [0; 16];
        naa.iter_mut().zip(self.serial.bytes()).for_each(|(to, from)| *to = from);
        Identity { serial: self.serial.clone(), naa, vendor: "ZIRCONIA".into(), product: "RAM".into(), revision: "0001".into() }
    }

    fn geometry(&self) -> Geometry {
        *self.geometry.lock()
    }

    fn read(&self, extent: Extent, done: Done<Abd>) {
        done(self.fits(extent.at, extent.bytes).map(|()| self.load(extent)));
    }

    fn write(&self, at: u64, data: Abd, _is_durable: bool, done: Done<()>) {
        done(self.fits(at, data.len() as u64).map(|()| self.store(at, &data)));
    }

    fn unmap(&self, extents: Vec<Extent>, done: Done<()>) {
        extents.into_iter().for_each(|extent| self.clear(extent));
        done(Ok(()));
    }

    fn write_zeroes(&self, extent: Extent, _may_unmap: bool, _is_durable: bool, done: Done<()>) {
        done(self.fits(extent.at, extent.bytes).map(|()| self.clear(extent)));
    }

    fn flush(&self, done: Done<()>) {
        done(Ok(()));
    }

    fn status(&self, extent: Extent, done: Done<Vec<Run>>) {
        let pages = self.pages.lock();
        let mut runs: Vec<Run> = Vec::new();
        for (page, _, length) in self.parts(extent) {
            let is_mapped = pages.contains_key(&page);
            match runs.last_mut() {
                Some(last) if last.is_mapped == is_mapped => last.bytes += length as u64,
                _ => runs.push(Run { bytes: length as u64, is_mapped }),
            }
        }
        drop(pages);
        done(Ok(runs));
    }
}

/// Answer that is kept back.
pub type Answer = Box<dyn FnOnce() + Send>;

/// Answers of a unit that keeps them back: a unit that answers late.
#[derive(Default)]
pub struct Held {
    /// None while it answers at once.
    answers: Mutex<Option<Vec<Answer>>>,
}

impl Held {
    /// Keeps back what is asked for from now on.
    pub fn begin(&self) {
        *self.answers.lock() = Some(Vec::new());
    }

    /// Number of requests that wait.
    pub fn waiting(&self) -> usize {
        self.answers.lock().as_ref().map_or(0, Vec::len)
    }

    /// Completion for the unit beneath, which must have called it when the answer is let go.
    pub fn keep<T: Send + 'static>(&self, done: Done<T>) -> Done<T> {
        let mut answers = self.answers.lock();
        let Some(answers) = answers.as_mut() else { return done };
        let slot = Arc::new(Mutex::new(None));
        let filled = slot.clone();
        answers.push(Box::new(move || {
            let result = filled.lock().take();
            if let Some(result) = result {
                done(result);
            }
        }));
        Box::new(move |result: Result<T, UnitError>| *slot.lock() = Some(result))
    }

    /// Answers that wait, in the order of their requests, for whoever lets them go; what is asked for from now on is kept back, too.
    pub fn take(&self) -> Vec<Answer> {
        self.answers.lock().as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Answers that wait; nothing is kept back any more.
    pub fn end(&self) -> Vec<Answer> {
        self.answers.lock().take().unwrap_or_default()
    }
}

/// Reservations in memory.
#[derive(Default)]
pub struct RamStore(pub Mutex<Option<Kept>>);

impl ReservationStore for RamStore {
    fn save(&self, kept: Option<Kept>, done: Done<()>) {
        *self.0.lock() = kept;
        done(Ok(()));
    }
}

/// Rights of anybody to everything, or of anybody who knows the secret.
#[derive(Clone, Debug, Default)]
pub struct Anybody(pub Option<Chap>);

impl Access for Anybody {
    fn target(&self, _initiator: &str, _peer: IpAddr, _target: &str) -> Option<Grant> {
        Some(Grant { chap: self.0.clone(), is_read_only: false })
    }

    fn discovery(&self, _initiator: &str, _peer: IpAddr) -> Option<Grant> {
        Some(Grant::default())
    }
}
