//! A proxy between host and target that knows where frames begin and end, and lets a test decide over each of them.

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use target_wire::{Address, Connection, HEADER_BYTES, Listener};

/// What becomes of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It goes on.
    Pass,
    /// It goes on with this bit (of all its bits, modulo their number) flipped.
    Flip(u64),
    /// It does not go on, and the connection ends; the next one is as good as this one was.
    Break,
    /// It does not go on, and nothing does any more.
    Cut,
    /// It goes on, and nothing does after it.
    CutAfter,
}

/// Asked for each frame in both directions, in the order in which they come by.
pub type Judge = Arc<dyn Fn() -> Fate + Send + Sync>;

/// See the module.
pub struct Proxy {
    pub address: Address,
    is_cut: Arc<AtomicBool>,
}

impl Proxy {
    pub fn new(target: &Address, judge: Judge) -> Proxy {
        let listener = Listener::bind(&Address::Tcp("127.0.0.1:0".to_string())).unwrap();
        let address = listener.address().unwrap();
        let is_cut = Arc::new(AtomicBool::new(false));
        let (target, cut) = (target.clone(), is_cut.clone());
        std::thread::spawn(move || {
            while let Ok(host) = listener.accept() {
                if cut.load(Ordering::Acquire) {
                    // The port is gone from here on.
                    return;
                }
                let Ok(far) = Connection::open(&target, Duration::from_secs(5)) else { continue };
                for (from, to) in [(host.try_clone(), far.try_clone()), (far.try_clone(), host.try_clone())] {
                    let (judge, cut) = (judge.clone(), cut.clone());
                    std::thread::spawn(move || pump(from.unwrap(), to.unwrap(), &judge, &cut));
                }
            }
        });
        Proxy { address, is_cut }
    }

    pub fn is_cut(&self) -> bool {
        self.is_cut.load(Ordering::Acquire)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.is_cut.store(true, Ordering::Release);
        let _ = Connection::open(&self.address, Duration::from_secs(1));
    }
}

fn frame(from: &mut Connection) -> Option<Vec<u8>> {
    let mut bytes = vec![0; HEADER_BYTES];
    from.read_exact(&mut bytes).ok()?;
    let half = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]) as usize;
    let rest = half(32) + half(36);
    bytes.resize(HEADER_BYTES + rest, 0);
    from.read_exact(&mut bytes[HEADER_BYTES..]).ok()?;
    Some(bytes)
}

fn pump(mut from: Connection, mut to: Connection, judge: &Judge, cut: &AtomicBool) {
    while let Some(mut bytes) = frame(&mut from) {
        if cut.load(Ordering::Acquire) {
            break;
        }
        let fate = judge();
        match fate {
            Fate::Pass | Fate::CutAfter => {}
            Fate::Flip(bit) => {
                let bit = bit as usize % (bytes.len() * 8);
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
            Fate::Break => break,
            Fate::Cut => {
                cut.store(true, Ordering::Release);
                break;
            }
        }
        let is_last = fate == Fate::CutAfter;
        if is_last {
            cut.store(true, Ordering::Release);
        }
        if to.write_all(&bytes).is_err() || is_last {
            break;
        }
    }
    from.shut_down();
    to.shut_down();
}
