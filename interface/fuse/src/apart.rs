//! Work on mounts of our own, from a thread that has none of our descriptors.
//!
//! Whoever uses a mount of this process from inside of it waits in the kernel for an answer of the process itself, once the request was read where
//! not even SIGKILL reaches. A connection ends with the last who has it open: were that the one who waits, the killed process would
//! never be gone, its mounts neither dead nor alive, and no other could take its place. So such work runs apart, on a thread that
//! keeps no connection open.

use exec::{Exec, Mutex};
use std::sync::Arc;

/// Runs work apart and waits for it; returns `otherwise` when it came to no end.
pub fn apart<T: Send + 'static>(exec: &Exec, otherwise: T, work: impl FnOnce() -> T + Send + 'static) -> T {
    let result = Arc::new(Mutex::new(None));
    let work = Arc::new(Mutex::new(Some(work)));
    let (told, taken) = (result.clone(), work.clone());
    let operation = move || {
        // Where that is not possible the work is done all the same: it is needed, and nobody may come to kill us meanwhile.
        service::stand_apart();
        let work = taken.lock().take();
        *told.lock() = work.map(|work| work());
    };
    match exec.spawn_alone("z-fuse-own", Box::new(operation)) {
        Ok(operation) => operation.join(),
        // Nor where the system starts no thread: no other may be without descriptors for ever.
        Err(_) => {
            let work = work.lock().take();
            return work.map_or(otherwise, |work| work());
        }
    }
    let done = result.lock().take();
    done.unwrap_or(otherwise)
}
