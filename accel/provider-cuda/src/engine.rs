//! From programs to waves: programs wait until there is a lane and a reason to go, run together, and are answered.
//!
//! ```text
//! queue ──a lane is free, and: nothing else runs, or enough programs, or enough bytes, or the oldest waited long──► wave
//! wave: put a step on the stream, mark ──poll──► done: answers ──► next step … ──► all programs answered, lane free
//! ```
//! Programs with work for the library (gzip, zstd: tenths of a second, for one block as for many) have a queue and waves of their own, on half of the
//! lanes: nothing that takes microseconds waits behind them.
//!
//! No job waits: whether a mark is reached is asked for on a timer, which slows down while nothing happens. Any failed call is the
//! failure of the operations that it was for. When a stream can't be marked or asked, it is drained; when that fails too, the device is
//! lost: all programs end with `Down`, and nothing is called any more.

use crate::codec;
use crate::gpu::{Gpu, GpuError};
use crate::heap::Heap;
use crate::jobs::ANSWER_BYTES;
use crate::step::{ANSWERS_MAX, ARGUMENT_BYTES, Issued, Lane, Pending, Step, Task};
use abd::AbdPart;
use dpusm::{NodeResult, Op, OpError, Operand, Outcome, Program, Run};
use exec::{Exec, Mutex, TaskClass};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Time between two looks at the oldest marks: the shortest and the longest, in nanoseconds.
const POLL_NS_MIN: u64 = 20_000;
const POLL_NS_MAX: u64 = 200_000;

/// Limits by which work is put together.
#[derive(Clone, Copy, Debug)]
pub struct Batching {
    /// Waves at the same time, each on a stream and with staging memory of its own.
    pub lanes: usize,
    /// Staging memory of each lane, in bytes, for each direction: the most that one copy can have.
    pub staging_bytes: usize,
    /// Most programs of a wave; so many of a kind that wait go at once.
    pub programs_max: usize,
    /// Most bytes of copies of a wave (but for one program alone); so many that wait go at once.
    pub bytes_max: u64,
    /// Time that a program waits for others while something runs, in nanoseconds.
    pub wait_ns: u64,
    /// Most programs that wait.
    pub queue_max: usize,
}

impl Default for Batching {
    fn default() -> Batching {
        Batching { lanes: 4, staging_bytes: 32 << 20, programs_max: 64, bytes_max: 32 << 20, wait_ns: 50_000, queue_max: 1024 }
    }
}

/// Programs that run together.
struct Wave {
    lane: Lane,
    pace: Pace,
    tasks: Vec<Task>,
    issued: Issued,
    /// Time in ns at which the step began.
    begun_ns: u64,
}

/// Kind of a program, by the time that it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pace {
    /// Kernels of ours and copies.
    Quick,
    /// Work for the library.
    Slow,
}

impl Pace {
    const ALL: [Pace; 2] = [Pace::Quick, Pace::Slow];

    fn of(program: &Program) -> Pace {
        let is_slow = program.nodes().iter().any(|op| match op {
            Op::Compress { how, .. } => codec::packer(how.kind).is_some(),
            Op::Decompress { kind, .. } => codec::unpacker(*kind).is_some(),
            _ => false,
        });
        if is_slow { Pace::Slow } else { Pace::Quick }
    }
}

/// Programs of a kind that wait, with the bytes that they copy.
#[derive(Default)]
struct Queue {
    programs: VecDeque<(Program, u64)>,
    bytes: u64,
    /// Time in ns at which the oldest program came, or the last wave left.
    since_ns: u64,
}

/// Reason to go on, or to wait.
enum Next {
    Go(Pace),
    /// Nanoseconds until somebody has waited long enough.
    Later(u64),
    Nothing,
}

#[derive(Default)]
struct State {
    /// By [`Pace`].
    queues: [Queue; Pace::ALL.len()],
    /// Waves of slow programs.
    slow_waves: usize,
    idle: Vec<Lane>,
    /// Waves that the device works on.
    busy: Vec<Wave>,
    /// Lanes that a job of ours has.
    taken: usize,
    is_polling: bool,
    is_timing: bool,
    is_shut_down: bool,
}

/// See the module.
pub(crate) struct Engine {
    exec: Exec,
    pub(crate) gpu: Arc<dyn Gpu>,
    pub(crate) heap: Heap,
    batching: Batching,
    state: Mutex<State>,
    is_lost: AtomicBool,
}

/// Bytes that a program copies.
fn copied_bytes(program: &Program) -> u64 {
    let of = |op: &Op| match op {
        Op::CopyIn { target } => target.len(),
        Op::CopyOut { source: Operand::View(view) } => view.len(),
        Op::CopyOut { source: Operand::Result(node) } => match program.nodes().get(node.0 as usize) {
            Some(Op::Compress { source, .. }) => source.len(),
            _ => 0,
        },
        _ => 0,
    };
    program.nodes().iter().map(|op| of(op) as u64).sum()
}

/// Answers every operation that is left with an error.
fn fail(mut run: Run, error: OpError) {
    while run.next_node().is_some() {
        run.record(Err(error).into());
    }
    run.finish();
}

impl Engine {
    /// An engine with its lanes.
    pub(crate) fn new(exec: &Exec, gpu: Arc<dyn Gpu>, batching: Batching, memory_bytes_max: u64) -> Result<Arc<Engine>, OpError> {
        let heap = Heap::new(gpu.clone(), memory_bytes_max);
        let (exec, state, is_lost) = (exec.clone(), Mutex::default(), AtomicBool::new(false));
        let engine = Engine { exec, gpu, heap, batching, state, is_lost };
        for _ in 0..batching.lanes.max(1) {
            let lane = engine.lane()?;
            engine.state.lock().idle.push(lane);
        }
        Ok(Arc::new(engine))
    }

    fn lane(&self) -> Result<Lane, OpError> {
        let staging_bytes = self.batching.staging_bytes;
        let (stream, gpu) = (self.gpu.stream()?, &self.gpu);
        let (up, down) = (gpu.pin(staging_bytes)?, gpu.pin(staging_bytes)?);
        let (arguments, answers) = (gpu.pin(ARGUMENT_BYTES)?, gpu.pin(ANSWERS_MAX * ANSWER_BYTES)?);
        let device_arguments = self.heap.alloc(ARGUMENT_BYTES)?;
        match self.heap.alloc(ANSWERS_MAX * ANSWER_BYTES) {
            Ok(device_answers) => Ok(Lane { stream, staging_bytes, up, down, arguments, answers, device_arguments, device_answers }),
            Err(error) => {
                self.heap.free(device_arguments);
                Err(error)
            }
        }
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Acquire) || self.heap.is_lost()
    }

    /// Takes programs; gives those back for which there is no room.
    pub(crate) fn submit(self: &Arc<Self>, mut programs: Vec<Program>) -> Result<(), Vec<Program>> {
        let mut refused = Vec::new();
        let mut state = self.state.lock();
        if !state.is_shut_down && !self.is_lost() {
            let queued: usize = state.queues.iter().map(|queue| queue.programs.len()).sum();
            refused = programs.split_off(self.batching.queue_max.saturating_sub(queued).min(programs.len()));
            for program in programs.drain(..) {
                let bytes = copied_bytes(&program);
                let queue = &mut state.queues[Pace::of(&program) as usize];
                if queue.programs.is_empty() {
                    queue.since_ns = self.exec.now_ns();
                }
                queue.bytes += bytes;
                queue.programs.push_back((program, bytes));
            }
        }
        drop(state);
        // What is left comes too late; dropping it answers `Down`.
        drop(programs);
        self.pump();
        if refused.is_empty() { Ok(()) } else { Err(refused) }
    }

    /// Drops what is queued; what runs goes on to its end.
    pub(crate) fn shut_down(&self) {
        let mut state = self.state.lock();
        state.is_shut_down = true;
        let queues = std::mem::take(&mut state.queues);
        drop(state);
        drop(queues);
    }

    /// Sends waves on their way as long as there is a reason to.
    fn pump(self: &Arc<Self>) {
        loop {
            let mut state = self.state.lock();
            let pace = match self.next(&state) {
                Next::Nothing => return,
                Next::Later(delay_ns) => {
                    let is_first = !std::mem::replace(&mut state.is_timing, true);
                    drop(state);
                    if is_first {
                        self.pump_after(delay_ns);
                    }
                    return;
                }
                Next::Go(pace) => pace,
            };
            let Some(lane) = state.idle.pop() else { return };
            let programs = self.take_programs(&mut state.queues[pace as usize]);
            state.taken += 1;
            state.slow_waves += usize::from(pace == Pace::Slow);
            drop(state);
            let engine = self.clone();
            self.exec.spawn(TaskClass::Write, Box::new(move || engine.begin(lane, pace, programs)));
        }
    }

    fn pump_after(self: &Arc<Self>, delay_ns: u64) {
        let engine = self.clone();
        let job = move || {
            engine.state.lock().is_timing = false;
            engine.pump();
        };
        self.exec.spawn_after(delay_ns, TaskClass::Write, Box::new(job));
    }

    /// Turn of those programs that wait longest, of all that have a reason to go.
    fn next(&self, state: &State) -> Next {
        if state.idle.is_empty() {
            return Next::Nothing;
        }
        let (now_ns, is_quiet) = (self.exec.now_ns(), state.busy.is_empty() && state.taken == 0);
        let (mut go, mut later_ns): (Option<(u64, Pace)>, Option<u64>) = (None, None);
        for (pace, queue) in Pace::ALL.into_iter().zip(&state.queues) {
            let is_slow_enough = pace == Pace::Slow && state.slow_waves >= (self.batching.lanes / 2).max(1);
            if queue.programs.is_empty() || is_slow_enough {
                continue;
            }
            let waited_ns = now_ns.saturating_sub(queue.since_ns);
            let is_enough = queue.programs.len() >= self.batching.programs_max || queue.bytes >= self.batching.bytes_max;
            if !is_quiet && !is_enough && waited_ns < self.batching.wait_ns {
                let left_ns = self.batching.wait_ns - waited_ns;
                later_ns = Some(later_ns.map_or(left_ns, |least: u64| least.min(left_ns)));
            } else if go.is_none_or(|(since_ns, _)| queue.since_ns < since_ns) {
                go = Some((queue.since_ns, pace));
            }
        }
        match (go, later_ns) {
            (Some((_, pace)), _) => Next::Go(pace),
            (None, Some(delay_ns)) => Next::Later(delay_ns),
            (None, None) => Next::Nothing,
        }
    }

    fn take_programs(&self, queue: &mut Queue) -> Vec<Program> {
        let (mut programs, mut bytes) = (Vec::new(), 0);
        while programs.len() < self.batching.programs_max.max(1) {
            let Some((_, next)) = queue.programs.front() else { break };
            if !programs.is_empty() && bytes + next > self.batching.bytes_max {
                break;
            }
            let Some((program, own)) = queue.programs.pop_front() else { break };
            bytes += own;
            queue.bytes -= own;
            programs.push(program);
        }
        queue.since_ns = self.exec.now_ns();
        programs
    }

    fn begin(self: &Arc<Self>, lane: Lane, pace: Pace, programs: Vec<Program>) {
        let begun_ns = self.exec.now_ns();
        let task = |program: Program| {
            program.start(begun_ns);
            Task { run: Run::new(program), pending: Vec::new() }
        };
        let issued = Issued { scratch: Vec::new(), is_issued: false, no_answers: None };
        self.advance(Wave { lane, pace, tasks: programs.into_iter().map(task).collect(), issued, begun_ns });
    }

    /// Goes on with a wave whose step is done.
    fn advance(self: &Arc<Self>, mut wave: Wave) {
        loop {
            self.settle(&mut wave);
            if self.is_lost() {
                return self.lose(vec![wave]);
            }
            if wave.tasks.is_empty() {
                return self.release(wave);
            }
            wave.begun_ns = self.exec.now_ns();
            wave.issued = Step::new(&*self.gpu, &self.heap, &wave.lane).issue(&mut wave.tasks);
            if !wave.issued.is_issued {
                // Only failures, or nothing at all, which must not go on for ever.
                if wave.tasks.iter().all(|task| task.pending.is_empty()) {
                    wave.tasks.drain(..).for_each(|task| fail(task.run, OpError::Failed));
                }
                continue;
            }
            match self.gpu.mark(wave.lane.stream).or_else(|_| self.gpu.drain(wave.lane.stream)) {
                Ok(()) => return self.watch(wave),
                Err(_) => return self.lose(vec![wave]),
            }
        }
    }

    /// Answers what the step gave, and every program that is at its end.
    fn settle(&self, wave: &mut Wave) {
        for memory in wave.issued.scratch.drain(..) {
            self.heap.free(memory);
        }
        let operations: usize = wave.tasks.iter().map(|task| task.pending.len()).sum();
        let device_ns = self.exec.now_ns().saturating_sub(wave.begun_ns) / operations.max(1) as u64;
        for mut task in std::mem::take(&mut wave.tasks) {
            let first = task.run.results().len();
            let is_done = loop {
                let Some(node) = task.run.next_node() else { break true };
                let Some(pending) = task.pending.get(node - first) else { break false };
                let outcome = self.outcome(wave, &task.run, node, *pending);
                if matches!(outcome, Err(OpError::Down)) {
                    self.is_lost.store(true, Ordering::Release);
                }
                task.run.record(NodeResult { outcome, device_ns });
            };
            task.pending.clear();
            if is_done { task.run.finish() } else { wave.tasks.push(task) }
        }
    }

    fn outcome(&self, wave: &Wave, run: &Run, node: usize, pending: Pending) -> Result<Outcome, OpError> {
        let words = |answer: usize| self.answer(wave, answer);
        Ok(match pending {
            Pending::Failed(error) => return Err(error),
            Pending::Done => Outcome::Done,
            Pending::Copied { at, bytes } => {
                let mut parts = run.program().take_target(node)?;
                self.copy_out(wave, &mut parts, at, bytes)?;
                Outcome::Copied { parts, bytes }
            }
            Pending::Differ { answer } => Outcome::Flag(words(answer)?[0] != 0),
            Pending::Zero { answer } => Outcome::Flag(words(answer)?[0] == 0),
            Pending::Sum { answer } => Outcome::Checksum(words(answer)?),
            Pending::Packed { answer, how, source_bytes } => {
                let [length, has_failed, ..] = words(answer)?;
                if has_failed != 0 {
                    return Err(OpError::Failed);
                }
                let length = usize::try_from(length).map_err(|_| OpError::BadResult)?;
                Outcome::Compressed(how.is_worth(length, source_bytes).then_some(length))
            }
            Pending::Unpacked { answer } if words(answer)?[0] == 1 => Outcome::Done,
            Pending::Unpacked { .. } => return Err(OpError::Failed),
        })
    }

    fn answer(&self, wave: &Wave, number: usize) -> Result<[u64; 4], OpError> {
        if let Some(error) = wave.issued.no_answers {
            return Err(error);
        }
        let mut words = [0; 4];
        let at = number * ANSWER_BYTES;
        self.gpu.fetch(wave.lane.answers, at..at + ANSWER_BYTES, &mut |bytes| {
            for (word, bytes) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
                *word = u64::from_le_bytes(*bytes);
            }
        })?;
        Ok(words)
    }

    fn copy_out(&self, wave: &Wave, parts: &mut [AbdPart], at: usize, bytes: usize) -> Result<(), OpError> {
        let mut done = 0;
        for part in parts {
            let count = part.len().min(bytes - done);
            self.gpu.fetch(wave.lane.down, at + done..at + done + count, &mut |bytes| part.copy_at(0, bytes))?;
            done += count;
        }
        if done == bytes { Ok(()) } else { Err(OpError::Invalid) }
    }

    /// A wave has ended: its lane is free.
    fn release(self: &Arc<Self>, wave: Wave) {
        let mut state = self.state.lock();
        state.taken -= 1;
        state.slow_waves -= usize::from(wave.pace == Pace::Slow);
        state.idle.push(wave.lane);
        drop(state);
        self.pump();
    }

    /// The device works on a wave now.
    fn watch(self: &Arc<Self>, wave: Wave) {
        let mut state = self.state.lock();
        state.taken -= 1;
        state.busy.push(wave);
        let is_first = !std::mem::replace(&mut state.is_polling, true);
        drop(state);
        if is_first {
            self.poll_after(POLL_NS_MIN);
        }
    }

    fn poll_after(self: &Arc<Self>, delay_ns: u64) {
        let engine = self.clone();
        self.exec.spawn_after(delay_ns, TaskClass::Interrupt, Box::new(move || engine.poll(delay_ns)));
    }

    /// Looks at every wave that the device works on; those that are done go on in jobs of their own.
    fn poll(self: &Arc<Self>, waited_ns: u64) {
        let waves = {
            let mut state = self.state.lock();
            let waves = std::mem::take(&mut state.busy);
            state.taken += waves.len();
            waves
        };
        let (mut working, mut lost, mut is_progress) = (Vec::new(), Vec::new(), false);
        for wave in waves {
            let stream = wave.lane.stream;
            match self.gpu.is_done(stream) {
                Ok(false) => working.push(wave),
                Err(GpuError::Lost { .. }) => lost.push(wave),
                Err(_) if self.gpu.drain(stream).is_err() => lost.push(wave),
                Ok(true) | Err(_) => {
                    is_progress = true;
                    let engine = self.clone();
                    self.exec.spawn(TaskClass::Write, Box::new(move || engine.advance(wave)));
                }
            }
        }
        if !lost.is_empty() || self.is_lost() {
            lost.append(&mut working);
            self.lose(lost);
        }
        let mut state = self.state.lock();
        state.taken -= working.len();
        state.busy.append(&mut working);
        state.is_polling = !state.busy.is_empty();
        let goes_on = state.is_polling;
        drop(state);
        if goes_on {
            self.poll_after(if is_progress { POLL_NS_MIN } else { (waited_ns * 2).min(POLL_NS_MAX) });
        }
    }

    /// The device is gone: these waves, and all programs that wait, end with `Down`. Other waves follow when they are looked at.
    fn lose(&self, waves: Vec<Wave>) {
        self.is_lost.store(true, Ordering::Release);
        self.heap.lose();
        let mut state = self.state.lock();
        state.taken -= waves.len();
        let queues = std::mem::take(&mut state.queues);
        drop(state);
        drop(queues);
        for mut wave in waves {
            wave.tasks.drain(..).for_each(|task| fail(task.run, OpError::Down));
            self.discard(wave);
        }
    }

    fn discard(&self, mut wave: Wave) {
        wave.issued.scratch.drain(..).for_each(|memory| self.heap.free(memory));
        self.free_lane(wave.lane);
    }

    fn free_lane(&self, lane: Lane) {
        self.heap.free(lane.device_arguments);
        self.heap.free(lane.device_answers);
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        let lanes = std::mem::take(&mut self.state.lock().idle);
        lanes.into_iter().for_each(|lane| self.free_lane(lane));
    }
}
