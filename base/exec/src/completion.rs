//! One-shot completions and condition waits, built so that any executor can drive them.

use crate::{Condvar, Exec, Mutex};
use std::sync::Arc;

#[derive(Debug)]
struct Shared<T> {
    value: Mutex<Option<T>>,
    changed: Condvar,
}

/// The writing end of a one-shot completion.
#[derive(Debug)]
pub struct Completer<T>(Arc<Shared<T>>);

/// The waiting end of a one-shot completion.
#[derive(Debug)]
pub struct Completion<T>(Arc<Shared<T>>);

/// Makes a connected pair.
pub fn completion<T>() -> (Completer<T>, Completion<T>) {
    let shared = Arc::new(Shared { value: Mutex::new(None), changed: Condvar::new() });
    (Completer(shared.clone()), Completion(shared))
}

impl<T> Completer<T> {
    /// Delivers the value and wakes the waiter.
    pub fn complete(self, value: T) {
        *self.0.value.lock() = Some(value);
        self.0.changed.notify_all();
    }
}

impl<T> Completion<T> {
    /// True once the value is there.
    pub fn is_done(&self) -> bool {
        self.0.value.lock().is_some()
    }

    /// Waits for the value.
    pub fn wait(self, exec: &Exec) -> T {
        exec.wait(&|| self.is_done(), &|| {
            let mut value = self.0.value.lock();
            if value.is_none() {
                self.0.changed.wait(&mut value);
            }
        });
        self.0.value.lock().take().expect("a completion is ready once the executor returns from wait")
    }
}

/// A condition to wait for: `wait_until` re-evaluates its predicate after each `notify_all`.
#[derive(Debug, Default)]
pub struct WaitQueue {
    epoch: Mutex<u64>,
    changed: Condvar,
}

impl WaitQueue {
    /// Makes an empty queue.
    pub fn new() -> Self {
        Self::default()
    }

    /// Wakes every waiter so that it looks at its predicate again. Call it after the state changed.
    pub fn notify_all(&self) {
        *self.epoch.lock() += 1;
        self.changed.notify_all();
    }

    /// Wakes one waiter, of several that wait for the same. The others look at their predicates when somebody calls again.
    pub fn notify_one(&self) {
        *self.epoch.lock() += 1;
        self.changed.notify_one();
    }

    /// Waits until `predicate` holds.
    pub fn wait_until(&self, exec: &Exec, predicate: &dyn Fn() -> bool) {
        // The epoch is read before the predicate, so a notify between the two is never lost.
        let seen = Mutex::new(0u64);
        exec.wait(
            &|| {
                *seen.lock() = *self.epoch.lock();
                predicate()
            },
            &|| {
                let before = *seen.lock();
                let mut epoch = self.epoch.lock();
                if *epoch == before {
                    self.changed.wait(&mut epoch);
                }
            },
        );
    }
}
