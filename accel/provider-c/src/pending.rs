//! Programs that a C provider has: their nodes in C's form, with everything that these point to, until they are answered.
//!
//! A cookie is a number, not an address: a second answer, or one to a program of long ago, finds nothing and does nothing.

use crate::ffi::{self, CNode, COperand, COwn, CPiece, CProgram, CResult, CView};
use crate::guard::{Copies, Guarded};
use abd::{Abd, AbdPart};
use dpusm::{NodeResult, Op, OpError, Operand, Outcome, Program, RaidContext, Store, View};
use exec::Mutex;
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};

/// Memory that a program's nodes point to. Never changed after it was built, so addresses of list elements stay.
#[derive(Default)]
struct Held {
    pieces: Vec<Vec<CPiece>>,
    columns: Vec<Vec<CView>>,
    lost: Vec<Vec<u32>>,
    sources: Vec<Abd>,
    targets: BTreeMap<usize, Vec<AbdPart>>,
    /// Memory that C has in the place of sources and targets, by node.
    guarded: BTreeMap<usize, Guarded>,
}

/// A program that C has.
pub(crate) struct Pending {
    program: Program,
    nodes: Vec<CNode>,
    held: Held,
}

// SAFETY: the addresses inside are of memory that the value itself owns (or of the provider, which may be used by any thread, as
// the header demands); nothing here is tied to a thread.
unsafe impl Send for Pending {}

/// All programs that C has, of all providers, by their cookies.
static PENDING: Mutex<BTreeMap<u64, Pending>> = Mutex::new(BTreeMap::new());
static COOKIES: AtomicU64 = AtomicU64::new(1);

/// A cookie as C carries it.
fn cookie_of(number: u64) -> *mut c_void {
    std::ptr::without_provenance_mut(number as usize)
}

/// The number that C carries.
pub(crate) fn number_of(cookie: *mut c_void) -> u64 {
    cookie.addr() as u64
}

/// A program on its way to C.
pub(crate) struct Sent {
    pub(crate) cookie: u64,
    pub(crate) entry: CProgram,
}

/// Brings a program into C's form; `copies` says which are guarded. One for which that can't be done is answered, with the reason, and None.
pub(crate) fn send(program: Program, copies: &Copies) -> Option<Sent> {
    let mut held = Held::default();
    let mut nodes = Vec::with_capacity(program.nodes().len());
    for node in 0..program.nodes().len() {
        match c_node(&program, node, &mut held, copies) {
            Ok(c) => nodes.push(c),
            Err(error) => {
                let results = program.nodes().iter().map(|_| Err(error).into()).collect();
                program.finish(results);
                return None;
            }
        }
    }
    let cookie = COOKIES.fetch_add(1, Ordering::Relaxed);
    let pending = Pending { program, nodes, held };
    let entry = CProgram { cookie: cookie_of(cookie), nodes: pending.nodes.as_ptr(), nodes_count: pending.nodes.len() as u64 };
    PENDING.lock().insert(cookie, pending);
    Some(Sent { cookie, entry })
}

/// Takes a program back that C did not take or that it answered; None when it was answered before.
pub(crate) fn take(cookie: u64) -> Option<Pending> {
    PENDING.lock().remove(&cookie)
}

/// Looks at a program that C has.
pub(crate) fn look<T>(cookie: u64, look: impl FnOnce(&Program) -> T) -> Option<T> {
    PENDING.lock().get(&cookie).map(|pending| look(&pending.program))
}

impl Pending {
    /// The program as it came, because C did not take it.
    pub(crate) fn into_program(self) -> Program {
        for (node, parts) in self.held.targets {
            self.program.restore_target(node, parts);
        }
        self.program
    }

    /// Hands C's answers on.
    pub(crate) fn answer(self, answers: &[CResult]) {
        let Pending { program, nodes, mut held } = self;
        let results = nodes.iter().enumerate().map(|(node, c)| match answers.get(node) {
            Some(answer) => {
                let mut parts = held.targets.remove(&node);
                let guarded = held.guarded.remove(&node);
                let is_clean = guarded.is_none_or(|guarded| guarded.end(parts.as_deref_mut().unwrap_or_default()));
                let outcome = if is_clean { outcome(c.op, answer, parts) } else { Err(OpError::WroteOutside) };
                NodeResult { outcome, device_ns: answer.device_ns }
            }
            None => Err(OpError::BadResult).into(),
        });
        let results: Vec<NodeResult> = results.collect();
        drop(held);
        program.finish(results);
    }
}

/// Outcome that an answer stands for.
fn outcome(op: u32, answer: &CResult, parts: Option<Vec<AbdPart>>) -> Result<Outcome, OpError> {
    ffi::status(answer.status, answer.error_number)?;
    let value = usize::try_from(answer.value).map_err(|_| OpError::BadResult)?;
    match op {
        ffi::COPY_OUT => Ok(Outcome::Copied { parts: parts.ok_or(OpError::BadResult)?, bytes: value }),
        ffi::ZERO_TEST | ffi::COMPARE if value > 1 => Err(OpError::BadResult),
        ffi::ZERO_TEST | ffi::COMPARE => Ok(Outcome::Flag(value == 1)),
        ffi::COMPRESS => Ok(Outcome::Compressed((value > 0).then_some(value))),
        ffi::CHECKSUM => Ok(Outcome::Checksum(answer.checksum)),
        ffi::STORE => Ok(Outcome::Stored(answer.value)),
        _ => Ok(Outcome::Done),
    }
}

fn c_view(view: &View) -> Result<CView, OpError> {
    let own = view.handle().get::<COwn>().ok_or(OpError::Mismatch)?;
    Ok(CView { buffer: own.0, offset: view.offset() as u64, length: view.len() as u64 })
}

fn c_operand(operand: &Operand) -> Result<COperand, OpError> {
    Ok(match operand {
        Operand::View(view) => COperand { view: c_view(view)?, ..COperand::NONE },
        Operand::Result(node) => COperand { kind: ffi::RESULT, node: node.0, ..COperand::NONE },
        Operand::Padding(node) => COperand { kind: ffi::PADDING, node: node.0, ..COperand::NONE },
    })
}

fn of_view(view: &View) -> Result<COperand, OpError> {
    Ok(COperand { view: c_view(view)?, ..COperand::NONE })
}

fn c_store(store: &Store) -> Result<*mut c_void, OpError> {
    store.handle().get::<COwn>().map(|own| own.0).ok_or(OpError::Mismatch)
}

/// Adds a list to what is held; where its elements are.
fn hold<T>(lists: &mut Vec<Vec<T>>, list: Vec<T>) -> (*const T, u64) {
    let found = (list.as_ptr(), list.len() as u64);
    lists.push(list);
    found
}

/// Holds guarded memory; its pieces.
fn guard(held: &mut Held, node: usize, mut guarded: Guarded) -> Vec<CPiece> {
    let pieces = guarded.c_pieces();
    held.guarded.insert(node, guarded);
    pieces
}

fn put_pieces(c: &mut CNode, held: &mut Held, pieces: Vec<CPiece>) {
    (c.pieces, c.pieces_count) = hold(&mut held.pieces, pieces);
}

fn put_row(c: &mut CNode, held: &mut Held, row: &RaidContext) -> Result<(), OpError> {
    let columns = row.columns().iter().map(c_view).collect::<Result<Vec<_>, _>>()?;
    c.columns_count = columns.len() as u32;
    c.parity_count = row.parities() as u32;
    c.columns = hold(&mut held.columns, columns).0;
    Ok(())
}

fn c_node(program: &Program, node: usize, held: &mut Held, copies: &Copies) -> Result<CNode, OpError> {
    let op = &program.nodes()[node];
    let mut c = CNode::new(number(op));
    match op {
        Op::CopyIn { target } => {
            c.target = of_view(target)?;
            // C must not see memory that changes under it.
            let source = program.source(node)?.to_stable();
            let pieces = if copies.is_next_guarded() {
                guard(held, node, Guarded::of_source(&source))
            } else {
                source.extents().map(|(bytes, length)| CPiece { bytes: bytes.cast_mut().cast(), length: length as u64 }).collect()
            };
            put_pieces(&mut c, held, pieces);
            held.sources.push(source);
        }
        Op::CopyOut { source } => {
            c.source = c_operand(source)?;
            let mut parts = program.take_target(node)?;
            if parts.iter().any(AbdPart::is_unstable) {
                return Err(OpError::NotSupported);
            }
            let pieces = if copies.is_next_guarded() {
                guard(held, node, Guarded::of_targets(&parts))
            } else {
                parts.iter_mut().map(|part| CPiece { bytes: part.as_mut_ptr().cast(), length: part.len() as u64 }).collect()
            };
            put_pieces(&mut c, held, pieces);
            held.targets.insert(node, parts);
        }
        Op::ZeroFill { target } => c.target = c_operand(target)?,
        Op::ZeroTest { source } => c.source = c_operand(source)?,
        Op::Compress { source, target, how } => {
            (c.source, c.target) = (of_view(source)?, of_view(target)?);
            (c.algorithm, c.level) = (u32::from(how.kind.0), u32::from(how.level));
            (c.limit, c.round_to) = (how.limit_bytes as u64, how.round_to_bytes as u64);
        }
        Op::Decompress { source, target, kind } => {
            (c.source, c.target, c.algorithm) = (of_view(source)?, of_view(target)?, u32::from(kind.0));
        }
        Op::Checksum { source, kind, order } => {
            (c.source, c.algorithm, c.big_endian) = (c_operand(source)?, u32::from(kind.0), u32::from(!order.is_little()));
        }
        Op::RaidGenerate { row } => put_row(&mut c, held, row)?,
        Op::RaidReconstruct { row, targets } => {
            put_row(&mut c, held, row)?;
            let lost = targets.iter().map(|index| *index as u32).collect();
            (c.lost, c.lost_count) = hold(&mut held.lost, lost);
        }
        Op::Compare { left, right } => (c.source, c.target) = (of_view(left)?, of_view(right)?),
        Op::Store { source, store, offset } => (c.source, c.store, c.offset) = (c_operand(source)?, c_store(store)?, *offset),
        Op::Flush { store } => c.store = c_store(store)?,
        // No library can say that it does this, so none is asked for it.
        Op::Load { .. } => return Err(OpError::NotImplemented),
    }
    Ok(c)
}

fn number(op: &Op) -> u32 {
    match op {
        Op::CopyIn { .. } => ffi::COPY_IN,
        Op::CopyOut { .. } => ffi::COPY_OUT,
        Op::ZeroFill { .. } => ffi::ZERO_FILL,
        Op::ZeroTest { .. } => ffi::ZERO_TEST,
        Op::Compress { .. } => ffi::COMPRESS,
        Op::Decompress { .. } => ffi::DECOMPRESS,
        Op::Checksum { .. } => ffi::CHECKSUM,
        Op::RaidGenerate { .. } => ffi::RAID_GENERATE,
        Op::RaidReconstruct { .. } => ffi::RAID_RECONSTRUCT,
        Op::Compare { .. } => ffi::COMPARE,
        Op::Store { .. } => ffi::STORE,
        Op::Flush { .. } => ffi::FLUSH,
        // Never asked for: `c_node` refuses it.
        Op::Load { .. } => u32::MAX,
    }
}
