//! The threads that work on the files of one pool which are devices of others.

use exec::{Condvar, Exec, Mutex};
use std::collections::VecDeque;
use std::sync::Arc;

/// Number of threads that work on the files of one pool.
const THREADS: usize = 4;

/// Work of one I/O, with the file that it is for.
pub(crate) type Work = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct State {
    waiting: VecDeque<Work>,
    is_over: bool,
}

#[derive(Default)]
struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

impl Queue {
    fn run(&self) {
        loop {
            let work = {
                let mut state = self.state.lock();
                loop {
                    match state.waiting.pop_front() {
                        Some(work) => break work,
                        None if state.is_over => return,
                        None => self.changed.wait(&mut state),
                    }
                }
            };
            work();
        }
    }
}

/// Threads that work on the files of one pool which are devices of others; they end when nobody has them any more.
pub(crate) struct Workers {
    queue: Arc<Queue>,
}

impl std::fmt::Debug for Workers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Workers")
    }
}

impl Workers {
    /// Starts the threads.
    pub(crate) fn start(exec: &Exec) -> Arc<Workers> {
        let queue = Arc::<Queue>::default();
        for _ in 0..THREADS {
            let queue = queue.clone();
            drop(exec.spawn_operation("z-served", Box::new(move || queue.run())));
        }
        Arc::new(Workers { queue })
    }

    /// Gives work to one of the threads.
    pub(crate) fn push(&self, work: Work) {
        self.queue.state.lock().waiting.push_back(work);
        self.queue.changed.notify_one();
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.queue.state.lock().is_over = true;
        self.queue.changed.notify_all();
    }
}
