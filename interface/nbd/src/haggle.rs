//! The haggling over options (fixed newstyle): what a client asks for, and the answers. No I/O, and no export: who has them is asked in between.

use crate::export::{Refusal, Shape};
use crate::outbox::Outbox;
use crate::proto::{
    ALLOCATION, ALLOCATION_ID, NO_ZEROES, OPTION_REPLY_MAGIC, PAYLOAD_BYTES_MAX, STRING_BYTES_MAX, field, flag, info, option, reply,
};

/// Bytes of zeros behind the answer to `NBD_OPT_EXPORT_NAME`, for clients that did not ask to do without.
const ZEROES: usize = 124;
/// Smallest block in bytes that the network may ask for, and of which preferred ones are made.
const BLOCK_BYTES_MIN: u32 = 1;
const PREFERRED_BYTES_MIN: u32 = 512;

/// Wish of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    /// Names of all exports.
    List,
    /// An export from now on, whose name is all that is said (`NBD_OPT_EXPORT_NAME`).
    Take(String),
    /// Facts about an export; and to have it from now on, if `goes`.
    Info { name: String, infos: Vec<u16>, goes: bool },
    /// Structured replies.
    Structured,
    /// Metadata contexts of an export: to list them, or to have those from now on that the queries name, if `sets`.
    Contexts { name: String, queries: Vec<String>, sets: bool },
    /// End.
    Abort,
    /// Something that is refused, by the number of the answer and in words.
    Refused(u32, &'static str),
}

/// Reads an option's data in order.
struct Data<'a>(&'a [u8]);

impl Data<'_> {
    fn number(&mut self, width: usize) -> Option<u64> {
        let (number, rest) = self.0.split_at_checked(width)?;
        self.0 = rest;
        Some(field(number, 0, width))
    }

    /// String behind its length in 32 bits.
    fn string(&mut self) -> Option<String> {
        let length = self.number(4)?;
        let (text, rest) = self.0.split_at_checked(usize::try_from(length).ok()?)?;
        self.0 = rest;
        string(text)
    }
}

/// A string of the protocol: not too long, UTF-8 without NUL.
fn string(bytes: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(bytes).ok()?;
    (bytes.len() <= STRING_BYTES_MAX && !text.contains('\0')).then(|| text.to_string())
}

/// Name and numbers of what is wanted to be known of `NBD_OPT_INFO` and `NBD_OPT_GO`.
fn infos(data: &[u8]) -> Option<(String, Vec<u16>)> {
    let mut data = Data(data);
    let (name, count) = (data.string()?, data.number(2)?);
    let infos: Vec<u16> = (0..count).map_while(|_| data.number(2)).map(|info| info as u16).collect();
    (infos.len() as u64 == count && data.0.is_empty()).then_some((name, infos))
}

/// Name and queries of the options about metadata contexts.
fn queries(data: &[u8]) -> Option<(String, Vec<String>)> {
    let mut data = Data(data);
    let (name, count) = (data.string()?, data.number(4)?);
    let queries: Vec<String> = (0..count).map_while(|_| data.string()).collect();
    (queries.len() as u64 == count && data.0.is_empty()).then_some((name, queries))
}

/// Understands an option.
pub(crate) fn understand(number: u32, data: &[u8]) -> Wish {
    const MALFORMED: Wish = Wish::Refused(reply::ERR_INVALID, "the data of the option makes no sense");
    let alone = |wish: Wish| if data.is_empty() { wish } else { MALFORMED };
    match number {
        // Without an answer for what is malformed: no export has such a name.
        option::EXPORT_NAME => Wish::Take(string(data).unwrap_or_default()),
        option::ABORT => Wish::Abort,
        option::LIST => alone(Wish::List),
        option::STRUCTURED_REPLY => alone(Wish::Structured),
        option::STARTTLS => alone(Wish::Refused(reply::ERR_UNSUP, "there is no TLS here")),
        option::INFO | option::GO => infos(data).map_or(MALFORMED, |(name, infos)| Wish::Info { name, infos, goes: number == option::GO }),
        option::LIST_META_CONTEXT | option::SET_META_CONTEXT => {
            let sets = number == option::SET_META_CONTEXT;
            queries(data).map_or(MALFORMED, |(name, queries)| Wish::Contexts { name, queries, sets })
        }
        _ => Wish::Refused(reply::ERR_UNSUP, "there is no such option here"),
    }
}

/// Agreement so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Agreed {
    /// True when replies are structured.
    pub(crate) is_structured: bool,
    /// True when the client does without zeros behind the answer to `NBD_OPT_EXPORT_NAME`.
    without_zeroes: bool,
    /// Export of which the client has the context `base:allocation`.
    context_of: Option<String>,
}

impl Agreed {
    /// Notes the client's flags.
    pub(crate) fn flags(&mut self, flags: u32) {
        self.without_zeroes = flags & NO_ZEROES != 0;
    }

    /// Forgets the metadata contexts that were set, as every new attempt to set some does.
    pub(crate) fn forget_contexts(&mut self) {
        self.context_of = None;
    }

    /// True when the client may ask for the status of blocks of this export.
    pub(crate) fn has_context(&self, name: &str) -> bool {
        self.context_of.as_deref() == Some(name)
    }

    /// Transmission flags of an export.
    fn transmission_flags(&self, shape: &Shape) -> u16 {
        let always = flag::HAS_FLAGS | flag::SEND_FLUSH | flag::SEND_FUA | flag::SEND_CACHE | flag::CAN_MULTI_CONN;
        let fragments = if self.is_structured { flag::SEND_DF } else { 0 };
        let changes = flag::SEND_TRIM | flag::SEND_WRITE_ZEROES | flag::SEND_FAST_ZERO;
        always | fragments | if shape.is_read_only { flag::READ_ONLY } else { changes }
    }

    /// Size and flags of an export.
    fn facts(&self, shape: &Shape) -> Vec<u8> {
        [&shape.bytes.to_be_bytes()[..], &self.transmission_flags(shape).to_be_bytes()].concat()
    }

    /// Answers `NBD_OPT_EXPORT_NAME`, which is the end of the haggling.
    pub(crate) fn take(&self, shape: &Shape, out: &mut Outbox) {
        let mut answer = self.facts(shape);
        if !self.without_zeroes {
            answer.resize(answer.len() + ZEROES, 0);
        }
        out.push(answer, None);
    }

    /// Answers `NBD_OPT_INFO` and `NBD_OPT_GO`.
    pub(crate) fn inform(&self, number: u32, (name, infos): (&str, &[u16]), shape: &Shape, out: &mut Outbox) {
        let mut inform = |kind: u16, data: &[u8]| answer(out, number, reply::INFO, &[&kind.to_be_bytes()[..], data].concat());
        inform(info::EXPORT, &self.facts(shape));
        if infos.contains(&info::NAME) {
            inform(info::NAME, name.as_bytes());
        }
        if infos.contains(&info::BLOCK_SIZE) {
            let sizes = [BLOCK_BYTES_MIN, shape.block_bytes.clamp(PREFERRED_BYTES_MIN, PAYLOAD_BYTES_MAX), PAYLOAD_BYTES_MAX];
            inform(info::BLOCK_SIZE, &sizes.map(u32::to_be_bytes).concat());
        }
        answer(out, number, reply::ACK, &[]);
    }

    /// Answers the options about metadata contexts of an export that is there.
    pub(crate) fn contexts(&mut self, number: u32, name: &str, queries: &[String], out: &mut Outbox) {
        let sets = number == option::SET_META_CONTEXT;
        let namespace = &ALLOCATION[..=ALLOCATION.find(':').unwrap_or_default()];
        let is_meant = |query: &String| query == ALLOCATION || (!sets && query == namespace);
        if queries.iter().any(is_meant) || (!sets && queries.is_empty()) {
            let id = if sets { ALLOCATION_ID } else { 0 };
            answer(out, number, reply::META_CONTEXT, &[&id.to_be_bytes()[..], ALLOCATION.as_bytes()].concat());
            if sets {
                self.context_of = Some(name.to_string());
            }
        }
        answer(out, number, reply::ACK, &[]);
    }
}

/// Answers `NBD_OPT_LIST`.
pub(crate) fn list(names: &[String], out: &mut Outbox) {
    for name in names {
        answer(out, option::LIST, reply::SERVER, &[&(name.len() as u32).to_be_bytes()[..], name.as_bytes()].concat());
    }
    answer(out, option::LIST, reply::ACK, &[]);
}

/// Refuses an export.
pub(crate) fn refuse(out: &mut Outbox, number: u32, refusal: Refusal) {
    let (kind, why) = match refusal {
        Refusal::Unknown => (reply::ERR_UNKNOWN, "there is no such export"),
        Refusal::Unavailable => (reply::ERR_POLICY, "the export cannot be had now"),
        Refusal::Stopping => (reply::ERR_SHUTDOWN, "the server stops"),
    };
    answer(out, number, kind, why.as_bytes());
}

/// Answers an option; with a text for people where `kind` is an error.
pub(crate) fn answer(out: &mut Outbox, number: u32, kind: u32, data: &[u8]) {
    let mut bytes = OPTION_REPLY_MAGIC.to_be_bytes().to_vec();
    for word in [number, kind, data.len() as u32] {
        bytes.extend(word.to_be_bytes());
    }
    bytes.extend(data);
    out.push(bytes, None);
}
