//! One connection as a state machine: bytes, exports and results in, bytes and [`Action`]s out. It does no I/O and knows no clock.

use crate::export::{Export, ExportError, Refusal};
use crate::haggle::{self, Agreed, Wish, answer, understand};
use crate::outbox::Outbox;
use crate::proto::{
    HANDSHAKE_FLAGS, INIT_MAGIC, OPTION_BYTES, OPTION_BYTES_MAX, OPTION_MAGIC, PAYLOAD_BYTES_MAX, REQUEST_BYTES, command, field, option,
    reply,
};
use crate::transmit::{Finished, Request, Terms, Work};
use abd::Abd;
use framing::Incoming;
use std::collections::VecDeque;
use std::sync::Arc;

/// Options of one client, at most: more is no haggling.
const OPTIONS_MAX: usize = 64;
/// Requests of one connection that are under way, at most.
const REQUESTS_MAX: usize = 128;
/// Bytes of data that are under way, or wait to be sent, before another request is taken.
const BYTES_MAX: u64 = PAYLOAD_BYTES_MAX as u64;

/// Something that a connection wants to be done.
pub(crate) enum Action {
    /// Ask for the names of all exports; they are given to [`Connection::listed`].
    List,
    /// Ask for an export; the answer is given to [`Connection::opened`].
    Open(String),
    /// Note that the haggling is over, and that the client has this export.
    Begin(String),
    /// Have work done; its end is given to [`Connection::finished`].
    Start(Arc<dyn Export>, Request, Work),
    /// Close the connection when all that was to be sent before is sent; the text says why.
    Close(&'static str),
}

enum Phase {
    /// The client's flags are awaited.
    Flags,
    /// The header of an option is.
    Option,
    /// The data of an option of this number is.
    OptionData(u32),
    /// An answer about exports is, for an option of this number.
    Asking(u32, Wish),
    /// The header of a request is.
    Request,
    /// The data of a request is.
    RequestData(Request),
    /// Nothing is taken any more; what is under way ends first.
    Leaving(&'static str),
    Closed,
}

/// Export that a client has.
struct Served {
    export: Arc<dyn Export>,
    terms: Terms,
    requests: usize,
    bytes: u64,
}

/// A connection of a client.
pub(crate) struct Connection {
    phase: Phase,
    /// Bytes that came.
    pub(crate) incoming: Incoming,
    /// Bytes that are to be sent.
    pub(crate) out: Outbox,
    agreed: Agreed,
    options: usize,
    served: Option<Served>,
    actions: VecDeque<Action>,
}

impl Connection {
    /// A connection that was just made.
    pub(crate) fn new() -> Connection {
        let mut out = Outbox::default();
        let greeting = [&INIT_MAGIC.to_be_bytes()[..], &OPTION_MAGIC.to_be_bytes(), &HANDSHAKE_FLAGS.to_be_bytes()].concat();
        out.push(greeting, None);
        Connection {
            phase: Phase::Flags,
            incoming: Incoming::default(),
            out,
            agreed: Agreed::default(),
            options: 0,
            served: None,
            actions: VecDeque::new(),
        }
    }

    /// Number of requests whose work is under way.
    pub(crate) fn under_way(&self) -> usize {
        self.served.as_ref().map_or(0, |served| served.requests)
    }

    /// True while the client has an export.
    pub(crate) fn is_serving(&self) -> bool {
        self.served.is_some()
    }

    /// True when more bytes of the client would be taken.
    pub(crate) fn wants_bytes(&self) -> bool {
        match &self.phase {
            Phase::Flags | Phase::Option | Phase::OptionData(_) | Phase::RequestData(_) => true,
            Phase::Request => self.has_room(),
            Phase::Asking(..) | Phase::Leaving(_) | Phase::Closed => false,
        }
    }

    fn has_room(&self) -> bool {
        let bytes = self.served.as_ref().map_or(0, |served| served.bytes) + self.out.len() as u64;
        self.under_way() < REQUESTS_MAX && bytes < BYTES_MAX
    }

    /// The next thing to do.
    pub(crate) fn next_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Takes what has come, as far as it is whole.
    pub(crate) fn advance(&mut self) {
        while self.step().is_some() {}
    }

    /// Takes the next message; None when there is none.
    fn step(&mut self) -> Option<()> {
        match &self.phase {
            Phase::Flags => {
                let flags = self.incoming.head::<4>()?;
                self.take_flags(u32::from_be_bytes(flags));
            }
            Phase::Option => {
                let header = self.incoming.head::<OPTION_BYTES>()?;
                self.take_option(&header);
            }
            Phase::OptionData(number) => {
                let number = *number;
                let data = self.incoming.payload()?;
                self.grant(number, &data.to_vec());
            }
            Phase::Request if self.has_room() => {
                let header = self.incoming.head::<REQUEST_BYTES>()?;
                self.take_request(&header);
            }
            Phase::RequestData(request) => {
                let request = *request;
                let data = self.incoming.payload()?;
                self.perform(request, data);
            }
            Phase::Request | Phase::Asking(..) | Phase::Leaving(_) | Phase::Closed => return None,
        }
        Some(())
    }

    fn close(&mut self, why: &'static str) {
        self.phase = Phase::Closed;
        self.actions.push_back(Action::Close(why));
    }

    /// Takes nothing more, and closes when what is under way has ended.
    pub(crate) fn leave(&mut self, why: &'static str) {
        if matches!(self.phase, Phase::Leaving(_) | Phase::Closed) {
            return;
        }
        self.phase = Phase::Leaving(why);
        self.close_if_left();
    }

    fn close_if_left(&mut self) {
        if let (Phase::Leaving(why), 0) = (&self.phase, self.under_way()) {
            let why = *why;
            self.close(why);
        }
    }

    fn take_flags(&mut self, flags: u32) {
        if flags & !u32::from(HANDSHAKE_FLAGS) != 0 {
            return self.close("it has flags that nobody offered");
        }
        self.agreed.flags(flags);
        self.phase = Phase::Option;
    }

    fn take_option(&mut self, header: &[u8; OPTION_BYTES]) {
        let (number, length) = (field(header, 8, 4) as u32, field(header, 12, 4) as u32);
        self.options += 1;
        if field(header, 0, 8) != OPTION_MAGIC {
            return self.close("what it sent is no option");
        }
        if length > OPTION_BYTES_MAX {
            return self.close("an option of its is too long");
        }
        if self.options > OPTIONS_MAX {
            return self.close("it has too many options");
        }
        self.incoming.expect(length as usize);
        self.phase = Phase::OptionData(number);
    }

    /// Does what an option asks for, or begins to.
    fn grant(&mut self, number: u32, data: &[u8]) {
        self.phase = Phase::Option;
        if number == option::SET_META_CONTEXT {
            self.agreed.forget_contexts();
        }
        match understand(number, data) {
            Wish::Refused(kind, why) => answer(&mut self.out, number, kind, why.as_bytes()),
            Wish::Abort => {
                answer(&mut self.out, number, reply::ACK, &[]);
                self.close("it wants nothing more");
            }
            Wish::Structured => {
                self.agreed.is_structured = true;
                answer(&mut self.out, number, reply::ACK, &[]);
            }
            Wish::Contexts { .. } if !self.agreed.is_structured => {
                answer(&mut self.out, number, reply::ERR_INVALID, b"replies are not structured");
            }
            wish => {
                self.actions.push_back(match &wish {
                    Wish::Take(name) | Wish::Info { name, .. } | Wish::Contexts { name, .. } => Action::Open(name.clone()),
                    _ => Action::List,
                });
                self.phase = Phase::Asking(number, wish);
            }
        }
    }

    /// Takes the names of all exports.
    pub(crate) fn listed(&mut self, names: &[String]) {
        if let Phase::Asking(_, Wish::List) = &self.phase {
            haggle::list(names, &mut self.out);
            self.phase = Phase::Option;
        }
    }

    /// Takes an export that was asked for, or the reason why there is none.
    pub(crate) fn opened(&mut self, opened: Result<Arc<dyn Export>, Refusal>) {
        if !matches!(self.phase, Phase::Asking(..)) {
            return;
        }
        let Phase::Asking(number, wish) = std::mem::replace(&mut self.phase, Phase::Option) else { return };
        match (wish, opened) {
            (Wish::Take(_), Err(_)) => self.close("it cannot have its export"),
            (_, Err(refusal)) => haggle::refuse(&mut self.out, number, refusal),
            (Wish::Take(name), Ok(export)) => {
                self.agreed.take(&export.shape(), &mut self.out);
                self.begin(name, export);
            }
            (Wish::Info { name, infos, goes }, Ok(export)) => {
                self.agreed.inform(number, (name.as_str(), infos.as_slice()), &export.shape(), &mut self.out);
                if goes {
                    self.begin(name, export);
                }
            }
            (Wish::Contexts { name, queries, .. }, Ok(_)) => self.agreed.contexts(number, &name, &queries, &mut self.out),
            (_, Ok(_)) => {}
        }
    }

    fn begin(&mut self, name: String, export: Arc<dyn Export>) {
        let terms = Terms { is_structured: self.agreed.is_structured, has_status: self.agreed.has_context(&name) };
        self.served = Some(Served { export, terms, requests: 0, bytes: 0 });
        self.actions.push_back(Action::Begin(name));
        self.phase = Phase::Request;
    }

    fn take_request(&mut self, header: &[u8; REQUEST_BYTES]) {
        let Some(request) = Request::decode(header) else {
            return self.close("what it sent is no request");
        };
        match request.kind {
            command::DISC => self.leave("it has disconnected"),
            command::WRITE if request.bytes > PAYLOAD_BYTES_MAX => self.close("a write of its is too long"),
            command::WRITE => {
                self.incoming.expect(request.bytes as usize);
                self.phase = Phase::RequestData(request);
            }
            _ => self.perform(request, Abd::default()),
        }
    }

    /// Begins the work of a request that is whole, or answers it at once.
    fn perform(&mut self, request: Request, data: Abd) {
        self.phase = Phase::Request;
        let Some(served) = &mut self.served else { return };
        match served.terms.plan(&request, data, &served.export.shape()) {
            Ok(Some(work)) => {
                served.requests += 1;
                served.bytes += request.payload_bytes();
                self.actions.push_back(Action::Start(served.export.clone(), request, work));
            }
            Ok(None) => served.terms.done(&request, &mut self.out),
            Err(number) => served.terms.fail(&request, number, &mut self.out),
        }
    }

    /// Takes the end of an [`Action::Start`].
    pub(crate) fn finished(&mut self, finished: Finished) {
        let Some(served) = &mut self.served else { return };
        served.requests = served.requests.saturating_sub(1);
        served.bytes = served.bytes.saturating_sub(finished.request.payload_bytes());
        let is_gone = matches!(finished.result, Err(ExportError::Gone));
        served.terms.answer(finished, &mut self.out);
        if is_gone {
            self.leave("its export has gone");
        }
        self.close_if_left();
    }
}
