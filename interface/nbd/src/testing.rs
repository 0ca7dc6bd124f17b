//! Connections without a socket, to exports in memory, and what clients send: for tests, and for fuzzing.

use crate::connection::{Action, Connection};
use crate::export::{Done, Export, ExportError, Exports, Listed, Opened, Piece, Refusal, Run, Shape};
use crate::proto::{OPTION_MAGIC, REQUEST_MAGIC, SIMPLE_REPLY_MAGIC, command, command_flag, field, option};
use crate::transmit::Finished;
use crate::work;
use abd::Abd;
use exec::Mutex;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use tokio::sync::mpsc;

/// Answer that is held back.
type Held = Box<dyn FnOnce() + Send>;

struct State {
    shape: Shape,
    bytes: Vec<u8>,
    /// Bytes as a loss of power would leave them.
    stable: Vec<u8>,
    /// True for each block that is stored.
    stored: Vec<bool>,
    lost: Range<usize>,
    is_gone: bool,
    held: Option<Vec<Held>>,
}

/// Export in memory, thin: what was never written is not stored.
pub struct RamExport {
    state: Mutex<State>,
}

impl RamExport {
    /// Makes an empty one.
    pub fn new(shape: Shape) -> Arc<RamExport> {
        let (bytes, blocks) = (shape.bytes as usize, shape.bytes.div_ceil(u64::from(shape.block_bytes)) as usize);
        let (stable, stored) = (vec![0; bytes], vec![false; blocks]);
        let state = State { shape, bytes: vec![0; bytes], stable, stored, lost: 0..0, is_gone: false, held: None };
        Arc::new(RamExport { state: Mutex::new(state) })
    }

    /// Changes its shape; the room for bytes stays.
    pub fn reshape(&self, change: impl FnOnce(&mut Shape)) {
        change(&mut self.state.lock().shape);
    }

    /// Bytes as a loss of power would leave them.
    pub fn stable(&self) -> Vec<u8> {
        self.state.lock().stable.clone()
    }

    /// Has these bytes be unreadable.
    pub fn lose(&self, range: Range<usize>) {
        self.state.lock().lost = range;
    }

    /// Takes it away from who has it.
    pub fn take_away(&self) {
        self.state.lock().is_gone = true;
    }

    /// Holds answers back from now on.
    pub fn hold(&self) {
        self.state.lock().held = Some(Vec::new());
    }

    /// Gives the answers that were held back, the last first, and holds none back any more.
    pub fn release(&self) {
        let held = self.state.lock().held.take();
        held.into_iter().flatten().rev().for_each(|answer| answer());
    }

    /// Number of answers that are held back.
    pub fn held(&self) -> usize {
        self.state.lock().held.as_ref().map_or(0, Vec::len)
    }

    fn serve<T: Send + 'static>(
        &self,
        range: Range<u64>,
        done: Done<T>,
        work: impl FnOnce(&mut State, Range<usize>) -> Result<T, ExportError>,
    ) {
        let mut state = self.state.lock();
        let result = match (state.is_gone, range.end <= state.shape.bytes) {
            (true, _) => Err(ExportError::Gone),
            (false, false) => Err(ExportError::OutOfRange),
            (false, true) => work(&mut state, range.start as usize..range.end as usize),
        };
        match &mut state.held {
            Some(held) => held.push(Box::new(move || done(result))),
            None => {
                drop(state);
                done(result);
            }
        }
    }
}

impl State {
    fn blocks(&self, range: &Range<usize>) -> Range<usize> {
        let block = self.shape.block_bytes as usize;
        range.start / block..range.end.div_ceil(block)
    }

    fn set(&mut self, range: Range<usize>, bytes: Option<&[u8]>, is_durable: bool) {
        match bytes {
            Some(bytes) => self.bytes[range.clone()].copy_from_slice(bytes),
            None => self.bytes[range.clone()].fill(0),
        }
        let blocks = self.blocks(&range);
        self.stored[blocks].fill(bytes.is_some());
        if is_durable {
            self.stable[range.clone()].copy_from_slice(&self.bytes[range]);
        }
    }

    /// Runs of blocks that are stored, or not, in a range.
    fn runs(&self, range: &Range<usize>) -> Vec<Run> {
        let (block, mut at, mut runs) = (self.shape.block_bytes as usize, range.start, Vec::<Run>::new());
        while at < range.end {
            let next = ((at / block + 1) * block).min(range.end);
            let (bytes, is_stored) = ((next - at) as u64, self.stored[at / block]);
            match runs.last_mut() {
                Some(last) if last.is_stored == is_stored => last.bytes += bytes,
                _ => runs.push(Run { bytes, is_stored }),
            }
            at = next;
        }
        runs
    }

    fn piece(&self, range: Range<usize>, is_stored: bool) -> Piece {
        let bytes = range.len() as u64;
        match is_stored {
            false => Piece::Hole(bytes),
            true if range.start < self.lost.end && self.lost.start < range.end => Piece::Lost(bytes, ExportError::Io),
            true => Piece::Data(Abd::from_slice(&self.bytes[range])),
        }
    }
}

impl Export for RamExport {
    fn shape(&self) -> Shape {
        self.state.lock().shape
    }

    fn read(&self, range: Range<u64>, is_whole: bool, done: Done<Vec<Piece>>) {
        self.serve(range, done, |state, range| {
            if is_whole {
                return Ok(vec![state.piece(range, true)]);
            }
            let mut at = range.start;
            let mut pieces = Vec::new();
            for run in state.runs(&range) {
                let end = at + run.bytes as usize;
                pieces.push(state.piece(at..end, run.is_stored));
                at = end;
            }
            Ok(pieces)
        });
    }

    fn write(&self, at: u64, data: Abd, is_durable: bool, done: Done<()>) {
        self.serve(at..at + data.len() as u64, done, |state, range| {
            state.set(range, Some(&data.to_vec()), is_durable);
            Ok(())
        });
    }

    fn trim(&self, range: Range<u64>, is_durable: bool, done: Done<()>) {
        self.write_zeroes(range, false, is_durable, done);
    }

    fn write_zeroes(&self, range: Range<u64>, keeps_space: bool, is_durable: bool, done: Done<()>) {
        self.serve(range, done, |state, range| {
            let zeros = vec![0; range.len()];
            let block = state.shape.block_bytes as usize;
            let is_whole = range.start.is_multiple_of(block) && range.end.is_multiple_of(block);
            state.set(range, (keeps_space || !is_whole).then_some(&zeros[..]), is_durable);
            Ok(())
        });
    }

    fn flush(&self, done: Done<()>) {
        self.serve(0..0, done, |state, _| {
            state.stable.clone_from(&state.bytes);
            Ok(())
        });
    }

    fn cache(&self, range: Range<u64>, done: Done<()>) {
        self.serve(range, done, |_, _| Ok(()));
    }

    fn status(&self, range: Range<u64>, runs_max: usize, done: Done<Vec<Run>>) {
        self.serve(range, done, |state, range| {
            let mut runs = state.runs(&range);
            runs.truncate(runs_max);
            Ok(runs)
        });
    }
}

/// Exports in memory, by their names.
#[derive(Default)]
pub struct RamExports {
    exports: Mutex<BTreeMap<String, Arc<RamExport>>>,
}

impl RamExports {
    /// Exports of these names and shapes.
    pub fn new(exports: &[(&str, Shape)]) -> Arc<RamExports> {
        let exports = exports.iter().map(|(name, shape)| ((*name).to_string(), RamExport::new(*shape))).collect();
        Arc::new(RamExports { exports: Mutex::new(exports) })
    }

    /// Export of this name.
    pub fn get(&self, name: &str) -> Option<Arc<RamExport>> {
        self.exports.lock().get(name).cloned()
    }
}

impl Exports for RamExports {
    fn list(&self, then: Listed) {
        let names = self.exports.lock().keys().cloned().collect();
        then(names);
    }

    fn open(&self, name: &str, then: Opened) {
        then(self.get(name).map(|export| export as Arc<dyn Export>).ok_or(Refusal::Unknown));
    }
}

/// A connection without a socket: what it sends is kept.
pub struct Bench {
    exports: Arc<dyn Exports>,
    connection: Connection,
    results: (mpsc::UnboundedSender<Finished>, mpsc::UnboundedReceiver<Finished>),
    /// Bytes that it sent.
    pub sent: Vec<u8>,
    /// Reason why it closed.
    pub closed: Option<&'static str>,
}

impl Bench {
    /// Makes one whose client has said nothing yet.
    pub fn new<E: Exports + 'static>(exports: &Arc<E>) -> Bench {
        let (exports, results) = (exports.clone() as Arc<dyn Exports>, mpsc::unbounded_channel());
        Bench { exports, connection: Connection::new(), results, sent: Vec::new(), closed: None }
    }

    /// Takes bytes of the client until the connection wants no more, and gives the number of those.
    pub fn take(&mut self, bytes: &[u8]) -> usize {
        self.settle();
        let mut rest = bytes;
        while !rest.is_empty() && self.closed.is_none() && self.connection.wants_bytes() {
            let count = self.connection.incoming.push(rest);
            assert!(count > 0, "there is always room");
            rest = &rest[count..];
            self.settle();
        }
        bytes.len() - rest.len()
    }

    /// Does all that can be done now.
    pub fn settle(&mut self) {
        loop {
            self.connection.advance();
            let mut is_idle = true;
            while let Some(action) = self.connection.next_action() {
                is_idle = false;
                self.act(action);
            }
            while let Ok(end) = self.results.1.try_recv() {
                is_idle = false;
                self.connection.finished(end);
            }
            while !self.connection.out.is_empty() {
                let bytes: Vec<u8> = self.connection.out.slices().iter().flat_map(|slice| slice.iter().copied()).collect();
                self.connection.out.took(bytes.len());
                self.sent.extend(bytes);
            }
            if is_idle {
                return;
            }
        }
    }

    /// Has the client go, as the server's end does.
    pub fn leave(&mut self) {
        self.connection.leave("it is told to");
        self.settle();
    }

    /// True when what the client asked for has ended.
    pub fn is_idle(&self) -> bool {
        self.connection.under_way() == 0
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::List => {
                let (sender, receiver) = std::sync::mpsc::channel();
                self.exports.list(Box::new(move |names| drop(sender.send(names))));
                receiver.try_iter().for_each(|names| self.connection.listed(&names));
            }
            Action::Open(name) => {
                let (sender, receiver) = std::sync::mpsc::channel();
                self.exports.open(&name, Box::new(move |opened| drop(sender.send(opened))));
                receiver.try_iter().for_each(|opened| self.connection.opened(opened));
            }
            Action::Begin(_) => {}
            Action::Start(export, request, work) => work::start(&*export, request, work, self.results.0.clone()),
            Action::Close(why) => {
                self.closed.get_or_insert(why);
            }
        }
    }
}

/// Client that has an export, and asks for one thing at a time; replies are simple ones.
pub struct Client(Bench);

impl Client {
    /// Client that has the export of this name.
    ///
    /// # Errors
    /// The reason why it has none.
    pub fn new<E: Exports + 'static>(exports: &Arc<E>, name: &str) -> Result<Client, String> {
        let mut bench = Bench::new(exports);
        bench.take(&Script::begin(MODERN).about(option::GO, name, &[]).0);
        bench.sent.clear();
        match bench.closed {
            None if bench.connection.is_serving() => Ok(Client(bench)),
            why => Err(format!("no export: {}", why.unwrap_or("it is refused"))),
        }
    }

    /// Sends a request and gives the data of the reply.
    fn ask(&mut self, (flags, kind): (u16, u16), at: u64, bytes: usize, data: &[u8]) -> Result<Vec<u8>, String> {
        self.0.take(&Script::default().request((flags, kind), at, bytes as u32, data).0);
        let reply = std::mem::take(&mut self.0.sent);
        match (field(&reply, 0, 4) == u64::from(SIMPLE_REPLY_MAGIC), field(&reply, 4, 4), reply.get(REPLY_BYTES..)) {
            (true, 0, Some(data)) => Ok(data.to_vec()),
            (true, number, _) => Err(format!("error {number}")),
            (false, ..) => Err(format!("no reply: {}", self.0.closed.unwrap_or("it is late"))),
        }
    }

    /// Reads bytes.
    ///
    /// # Errors
    /// The error of the reply in words, as of all requests.
    pub fn read(&mut self, at: u64, bytes: usize) -> Result<Vec<u8>, String> {
        self.ask((0, command::READ), at, bytes, &[])
    }

    /// Writes bytes; with FUA where they are to be durable.
    ///
    /// # Errors
    /// As of [`Client::read`].
    pub fn write(&mut self, at: u64, data: &[u8], is_durable: bool) -> Result<(), String> {
        self.ask((fua(is_durable), command::WRITE), at, data.len(), data).map(drop)
    }

    /// Lets go of a range.
    ///
    /// # Errors
    /// As of [`Client::read`].
    pub fn trim(&mut self, range: Range<u64>, is_durable: bool) -> Result<(), String> {
        self.ask((fua(is_durable), command::TRIM), range.start, (range.end - range.start) as usize, &[]).map(drop)
    }

    /// Makes a range zeros, which take space where it is to be kept.
    ///
    /// # Errors
    /// As of [`Client::read`].
    pub fn write_zeroes(&mut self, range: Range<u64>, keeps_space: bool, is_durable: bool) -> Result<(), String> {
        let flags = fua(is_durable) | if keeps_space { command_flag::NO_HOLE } else { 0 };
        self.ask((flags, command::WRITE_ZEROES), range.start, (range.end - range.start) as usize, &[]).map(drop)
    }

    /// Has all that was answered before be durable.
    ///
    /// # Errors
    /// As of [`Client::read`].
    pub fn flush(&mut self) -> Result<(), String> {
        self.ask((0, command::FLUSH), 0, 0, &[]).map(drop)
    }
}

/// Flag of requests whose changes are to be durable.
fn fua(is_durable: bool) -> u16 {
    if is_durable { command_flag::FUA } else { 0 }
}

/// Bytes that a client sends, one behind the other.
#[derive(Clone, Debug, Default)]
pub struct Script(pub Vec<u8>);

impl Script {
    /// Begins with the client's flags.
    #[must_use]
    pub fn begin(flags: u32) -> Script {
        Script(flags.to_be_bytes().to_vec())
    }

    /// Goes on with an option.
    #[must_use]
    pub fn option(mut self, number: u32, data: &[u8]) -> Script {
        self.0.extend(OPTION_MAGIC.to_be_bytes());
        self.0.extend([number, data.len() as u32].map(u32::to_be_bytes).concat());
        self.0.extend(data);
        self
    }

    /// Goes on with `NBD_OPT_GO`, or `NBD_OPT_INFO`, of an export.
    #[must_use]
    pub fn about(self, number: u32, name: &str, infos: &[u16]) -> Script {
        let mut data = [&(name.len() as u32).to_be_bytes()[..], name.as_bytes()].concat();
        data.extend((infos.len() as u16).to_be_bytes());
        data.extend(infos.iter().flat_map(|info| info.to_be_bytes()));
        self.option(number, &data)
    }

    /// Goes on with an option about metadata contexts.
    #[must_use]
    pub fn contexts(self, number: u32, name: &str, queries: &[&str]) -> Script {
        let mut data = [&(name.len() as u32).to_be_bytes()[..], name.as_bytes()].concat();
        data.extend((queries.len() as u32).to_be_bytes());
        for query in queries {
            data.extend((query.len() as u32).to_be_bytes());
            data.extend(query.as_bytes());
        }
        self.option(number, &data)
    }

    /// Goes on with a request and its data; its number is its place in bytes.
    #[must_use]
    pub fn request(mut self, (flags, kind): (u16, u16), at: u64, bytes: u32, data: &[u8]) -> Script {
        let cookie = self.0.len() as u64;
        self.0.extend(REQUEST_MAGIC.to_be_bytes());
        self.0.extend([flags, kind].map(u16::to_be_bytes).concat());
        self.0.extend([cookie, at].map(u64::to_be_bytes).concat());
        self.0.extend(bytes.to_be_bytes());
        self.0.extend(data);
        self
    }
}

/// Flags of a client that knows all of the handshake.
const MODERN: u32 = 3;
/// Bytes of a simple reply before its data.
const REPLY_BYTES: usize = 16;
/// Name of the export of [`serve`].
const NAME: &str = "tank/vol";
/// Shape of it.
const SHAPE: Shape = Shape { bytes: 64 << 10, block_bytes: 4096, is_read_only: false };

/// Conversations that make sense, of clients of [`serve`].
pub fn conversations() -> Vec<Vec<u8>> {
    let haggled = |flags| {
        Script::begin(flags)
            .option(option::LIST, &[])
            .option(option::STARTTLS, &[])
            .about(option::INFO, NAME, &[0, 1, 3])
            .option(option::STRUCTURED_REPLY, &[])
            .contexts(option::LIST_META_CONTEXT, NAME, &["base:"])
            .contexts(option::SET_META_CONTEXT, NAME, &["base:allocation"])
            .about(option::GO, NAME, &[3])
    };
    let used = |script: Script| {
        let written = script.request((1, command::WRITE), 4096, 600, &[7; 600]).request((0, command::READ), 0, 16 << 10, &[]);
        let freed = written.request((1, command::TRIM), 0, 8192, &[]).request((0x10, command::WRITE_ZEROES), 4096, 4096, &[]);
        let asked = freed.request((0, command::BLOCK_STATUS), 0, 64 << 10, &[]).request((0, command::CACHE), 512, 512, &[]);
        asked.request((0, command::FLUSH), 0, 0, &[]).request((0, command::DISC), 0, 0, &[])
    };
    let old = Script::begin(0).option(option::EXPORT_NAME, NAME.as_bytes());
    vec![used(haggled(3)).0, used(haggled(1)).0, used(old).0, Script::begin(3).option(option::ABORT, &[]).0]
}

/// Serves a client that sends these bytes; it may have two exports, of which one is read only.
pub fn serve(bytes: &[u8]) {
    let exports = RamExports::new(&[(NAME, SHAPE), ("tank/ro", Shape { is_read_only: true, ..SHAPE })]);
    let mut bench = Bench::new(&exports);
    let taken = bench.take(bytes);
    assert!(taken == bytes.len() || bench.closed.is_some(), "nothing is waited for here");
    assert!(bench.is_idle());
}
