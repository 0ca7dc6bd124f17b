//! Faulty devices: the k-th operation on them fails, for every k of a program.
//!
//! A redundant pool must not notice: every operation succeeds and everything is there afterwards. A pool without redundancy may
//! stop with a typed error; what it promised before must be there when the devices work again.

use crate::cuts::{check_space, go_on};
use crate::machine::{Layout, Machine, Trouble, read_state};
use crate::outcome::Verdict;
use crate::program::{Program, Runner};
use device::DeviceError;
use sim::{Fault, FaultKind, Image};

/// Blow to one operation of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blow {
    /// Operation fails with EIO.
    Error,
    /// Read gives wrong bytes.
    CorruptRead,
    /// Write is acknowledged and not done, and so is a flush.
    Lie,
}

impl Blow {
    fn kind(self) -> FaultKind {
        match self {
            Blow::Error => FaultKind::Error(DeviceError::Io),
            Blow::CorruptRead => FaultKind::CorruptRead,
            Blow::Lie => FaultKind::Lie,
        }
    }
}

/// Remains of a program with a fault.
struct Left {
    program: Program,
    images: Vec<Image>,
    /// Reason why it ended early.
    trouble: Option<Trouble>,
    /// Number of operations on devices from the moment at which the fault was armed.
    operations: u64,
}

fn run(layout: Layout, seed: u64, operations: usize, fault: Option<Fault>) -> Result<Left, Trouble> {
    let machine = Machine::new(layout, seed);
    let pool = machine.create(layout)?;
    // One device that fails once must end in an error here, not in waiting for somebody to replace it.
    pool.set_prop("failmode", "continue")?;
    pool.export()?;
    let before = machine.sim.operations();
    if let Some(fault) = fault {
        machine.sim.arm(fault);
    }
    let mut program = Program::new(seed);
    let trouble = run_imported(&machine, &mut program, operations).err();
    Ok(Left { program, images: machine.images(), trouble, operations: machine.sim.operations() - before })
}

fn run_imported(machine: &Machine, program: &mut Program, operations: usize) -> Result<(), Trouble> {
    let pool = machine.import(false)?;
    {
        let mut runner = Runner::new(&pool)?;
        for _ in 0..operations {
            runner.step(program, &mut |_, _| ())?;
        }
    }
    Ok(pool.export()?)
}

/// Fails the k-th operation of the program for every k whose number leaves `rest` when divided by `every`.
pub fn try_faults(layout: Layout, seed: u64, operations: usize, blow: Blow, (every, rest): (u64, u64)) -> Verdict {
    let mut verdict = Verdict::default();
    let mut count = 0;
    verdict.trial(&format!("{layout} seed {seed} without a fault"), || {
        let left = run(layout, seed, operations, None).map_err(|error| error.to_string())?;
        count = left.operations;
        left.trouble.map_or(Ok(()), |trouble| Err(trouble.to_string()))
    });
    for k in (0..count).filter(|k| k % every == rest) {
        verdict.trial(&format!("{layout} seed {seed} {blow:?} at operation {k} of {count}"), || {
            let left = run(layout, seed, operations, Some(Fault::at(k, blow.kind()))).map_err(|error| format!("not made: {error}"))?;
            judge(layout, seed, left)
        });
    }
    verdict
}

fn judge(layout: Layout, seed: u64, left: Left) -> Result<(), String> {
    if let (Some(trouble), true) = (&left.trouble, layout.is_redundant()) {
        return Err(format!("a redundant pool stopped: {trouble}"));
    }
    let first = if left.trouble.is_none() { left.program.states().len() - 1 } else { left.program.acknowledged() };
    let machine = Machine::with(seed + 1, left.images);
    let pool = machine.import(true).map_err(|error| format!("cannot be imported: {error}"))?;
    let found = read_state(&pool).map_err(|error| format!("cannot be read: {error}"))?;
    let allowed = &left.program.states()[first..];
    if !allowed.contains(&found) {
        return Err(format!("after {:?}: {}", left.trouble, found.difference(&allowed[0])));
    }
    check_space(&pool)?;
    pool.export().map_err(|error| format!("cannot be closed: {error}"))?;
    go_on(&machine, found)
}
