//! The ledger: what an intent log holds, in terms of the model. It says in which order operations get into the log, and which of them are safe.
//!
//! Names go with every commit; bytes, sizes, owners and extended attributes with the commits of their object, or with all once it was renamed; what an
//! object is deleted with is forgotten. A commit takes what is its in the order of the operations. Bytes are those of the moment of the commit.

use super::program::{Op, put};
use crate::model::{Contents, Model, NodeId};
use ondisk::Txg;
use std::collections::BTreeSet;

/// Change as a record of the log has it.
#[derive(Clone, Debug)]
pub enum Change {
    /// All that the operation does.
    Whole(Op),
    /// Bytes at an offset; those before the end of a log block may be there without the others.
    Bytes(NodeId, usize, Vec<u8>),
}

impl Change {
    /// Does to the model what the replay of the record does.
    pub fn replay(&self, model: &mut Model) {
        match self {
            Change::Whole(op) => super::program::imagine(model, op),
            Change::Bytes(node, offset, bytes) => put(model, *node, *offset, bytes),
        }
    }
}

/// Operation in the log, or offered to it.
#[derive(Clone, Debug)]
pub struct Logged {
    /// Txg of the operation: once it is on disk, the record counts no more.
    pub txg: Txg,
    /// Change that the record makes.
    pub change: Change,
}

#[derive(Clone, Debug)]
struct Noted {
    number: usize,
    txg: Txg,
    op: Op,
    /// Node whose commits alone take it along.
    only_with: Option<NodeId>,
}

/// Operation that somebody may want durable.
#[derive(Clone, Debug)]
struct Owed {
    number: usize,
    txg: Txg,
    nodes: Vec<NodeId>,
}

/// Ledger of a program.
#[derive(Default)]
pub struct Ledger {
    noted: Vec<Noted>,
    logged: Vec<Logged>,
    /// Numbers of the operations in the log.
    numbers: BTreeSet<usize>,
    owed: Vec<Owed>,
}

impl Ledger {
    /// Notes an operation that is about to be done; `after` is the model with it.
    pub fn note(&mut self, number: usize, op: &Op, txg: Txg, after: &Model) {
        let (only_with, nodes) = match op {
            Op::Create(directory, name, _) => (None, [Some(*directory), after.lookup(*directory, name)].into_iter().flatten().collect()),
            Op::Remove(directory, _) => (None, vec![*directory]),
            Op::Link(node, directory, _) => (None, vec![*node, *directory]),
            Op::Rename(from, to) => (None, vec![from.0, to.0]),
            Op::Exchange(one, other) => {
                let moved = [one, other].map(|at| after.lookup(at.0, &at.1));
                (None, [Some(one.0), Some(other.0)].into_iter().chain(moved).flatten().collect())
            }
            Op::Write(node, ..)
            | Op::Truncate(node, _)
            | Op::Punch(node, ..)
            | Op::Discard(node, ..)
            | Op::Attribute(node, ..)
            | Op::Own(node, _) => (Some(*node), vec![*node]),
            Op::Fsync(_) | Op::SyncAll | Op::Snapshot(_) | Op::Txg => return,
        };
        if let Op::Rename(_, to) = op {
            self.promote(after.lookup(to.0, &to.1));
        }
        if let Op::Exchange(_, other) = op {
            self.promote(after.lookup(other.0, &other.1));
        }
        self.owed.push(Owed { number, txg, nodes });
        self.noted.push(Noted { number, txg, op: op.clone(), only_with });
        self.noted.retain(|noted| noted.only_with.is_none_or(|node| after.links(node) > 0 && !is_gone(after, node)));
    }

    fn promote(&mut self, node: Option<NodeId>) {
        self.noted.iter_mut().filter(|noted| noted.only_with == node).for_each(|noted| noted.only_with = None);
    }

    /// A commit of a node begins, of all without one: what goes into the log now. Returns how many operations were in it before, and are now.
    pub fn offer(&mut self, node: Option<NodeId>, synced: Txg, now: &Model) -> (usize, usize) {
        let before = self.logged.len();
        let takes = |noted: &Noted| noted.only_with.is_none() || node.is_none() || noted.only_with == node;
        let (taken, kept) = std::mem::take(&mut self.noted).into_iter().filter(|noted| noted.txg > synced).partition(takes);
        self.noted = kept;
        for noted in Vec::<Noted>::from_iter(taken) {
            self.numbers.insert(noted.number);
            let change = filled(noted.op, now);
            self.logged.extend(change.map(|change| Logged { txg: noted.txg, change }));
        }
        (before, self.logged.len())
    }

    /// Fails unless every operation on the node, on all without one, is on disk with its txg or in the log.
    pub fn check_promise(&self, node: Option<NodeId>, synced: Txg) -> Result<(), String> {
        let is_broken =
            |owed: &&Owed| node.is_none_or(|node| owed.nodes.contains(&node)) && owed.txg > synced && !self.numbers.contains(&owed.number);
        match self.owed.iter().find(is_broken) {
            None => Ok(()),
            Some(owed) => Err(format!("operation {} of txg {:?} is neither in the log nor on disk ({synced:?})", owed.number, owed.txg)),
        }
    }

    /// Everything that was offered to the log, in its order.
    pub fn into_logged(self) -> Vec<Logged> {
        self.logged
    }
}

/// True for a directory without a name: its own entry still counts as a link.
fn is_gone(model: &Model, node: NodeId) -> bool {
    node != 0 && matches!(model.contents(node), Contents::Directory(_)) && model.links(node) < 2
}

/// Change that the record of an operation has when it is written now; None when it has nothing to tell any more.
fn filled(op: Op, now: &Model) -> Option<Change> {
    let Op::Write(node, offset, bytes, _) = &op else { return Some(Change::Whole(op)) };
    let Contents::File(data) = now.contents(*node) else { return None };
    if now.links(*node) == 0 || *offset >= data.len() {
        return None;
    }
    let mut filled = data[*offset..(offset + bytes.len()).min(data.len())].to_vec();
    filled.resize(bytes.len(), 0);
    Some(Change::Bytes(*node, *offset, filled))
}
