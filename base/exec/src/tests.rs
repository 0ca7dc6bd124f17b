//! Executors: what hangs, gets lost or becomes irreproducible when these fail.

use crate::threads::{Start, missing, of_the_system};
use crate::{Condvar, Exec, Executor, Inline, Job, Lockstep, Mutex, OperationHandle, Pool, RwLock, TaskClass, WaitQueue, completion};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

fn pool(threads: usize) -> Exec {
    Arc::new(Pool::new(threads))
}

/// A program whose jobs spawn jobs; returns the order in which they ran.
fn trace(exec: &Exec) -> Vec<u64> {
    let order = Arc::new(Mutex::new(Vec::new()));
    let (completer, done) = completion();
    let left = Arc::new(AtomicUsize::new(60));
    let completer = Arc::new(Mutex::new(Some(completer)));
    for number in 0..20 {
        let (order, left, completer, spawner) = (order.clone(), left.clone(), completer.clone(), exec.clone());
        let finish = move |number: u64, order: &Mutex<Vec<u64>>| {
            order.lock().push(number);
            if left.fetch_sub(1, Ordering::SeqCst) == 1
                && let Some(completer) = completer.lock().take()
            {
                completer.complete(());
            }
        };
        let job = move || {
            finish(number, &order);
            for child in 1..=2 {
                let (finish, order) = (finish.clone(), order.clone());
                spawner.spawn_after(child * 100, TaskClass::Read, Box::new(move || finish(number + child * 100, &order)));
            }
        };
        exec.spawn(TaskClass::Write, Box::new(job));
    }
    done.wait(exec);
    order.lock().clone()
}

/// A failure found under a seed must be found again under that seed.
#[test]
fn the_same_seed_gives_the_same_trace() {
    let run = |seed| {
        let inline = Arc::new(Inline::new(seed));
        let exec: Exec = inline.clone();
        (trace(&exec), inline.now_ns(), inline.random_u64())
    };
    let orders: std::collections::BTreeSet<_> = (0..20).map(|seed| run(seed).0).collect();
    (0..20).for_each(|seed| assert_eq!(run(seed), run(seed)));
    assert!(orders.len() > 15, "seeds explore different orders");
    assert_eq!(trace(&pool(3)).len(), 60);
}

/// Waiting for something that nobody will do must say so, with the seed, instead of hanging the build.
#[test]
#[should_panic(expected = "deadlock: nothing is runnable (seed 77)")]
fn a_deadlock_panics_with_the_seed() {
    let exec: Exec = Arc::new(Inline::new(77));
    let (_completer, never) = completion::<()>();
    never.wait(&exec);
}

/// Timers run in order of their due time, and the virtual clock jumps to them.
#[test]
fn virtual_time_passes_when_nothing_is_runnable() {
    let inline = Arc::new(Inline::new(1));
    let exec: Exec = inline.clone();
    let (completer, done) = completion();
    let order = Arc::new(Mutex::new(Vec::new()));
    for delay in [3_000_000_000u64, 5_000_000_000, 1_000_000_000] {
        let (order, clock) = (order.clone(), inline.clone());
        exec.spawn_after(delay, TaskClass::Background, Box::new(move || order.lock().push((delay, clock.now_ns()))));
    }
    exec.spawn_after(6_000_000_000, TaskClass::Background, Box::new(move || completer.complete(())));
    inline.run_ready();
    assert!(order.lock().is_empty(), "no timer is due");
    done.wait(&exec);
    let order = order.lock().clone();
    assert_eq!(order.iter().map(|(delay, _)| *delay).collect::<Vec<_>>(), [1_000_000_000, 3_000_000_000, 5_000_000_000]);
    assert!(order.iter().all(|(delay, at)| at >= delay));
}

/// A job that is never run is an I/O that never ends: bursts from outside and from workers, with workers asleep between.
#[test]
fn the_pool_runs_every_job_however_it_was_spawned() {
    for threads in [1, 2, 5] {
        let exec = pool(threads);
        for _ in 0..200 {
            let ran = Arc::new(AtomicUsize::new(0));
            let queue = Arc::new(WaitQueue::new());
            for number in 0..8u64 {
                let (ran, queue, spawner) = (ran.clone(), queue.clone(), exec.clone());
                let class = if number % 2 == 0 { TaskClass::Interrupt } else { TaskClass::Background };
                let job = move || {
                    for _ in 0..3 {
                        let (ran, queue) = (ran.clone(), queue.clone());
                        let child = move || {
                            ran.fetch_add(1, Ordering::SeqCst);
                            queue.notify_all();
                        };
                        spawner.spawn(TaskClass::Write, Box::new(child));
                    }
                };
                exec.spawn(class, Box::new(job));
            }
            queue.wait_until(&exec, &|| ran.load(Ordering::SeqCst) == 24);
        }
    }
}

/// One blocked worker must not keep the jobs of its queue from running.
#[test]
fn other_workers_steal_from_a_busy_one() {
    let exec = pool(2);
    let gate = Arc::new(AtomicBool::new(false));
    let (completer, done) = completion();
    let (spawner, held) = (exec.clone(), gate.clone());
    let job = move || {
        let opener = held.clone();
        spawner.spawn(TaskClass::Write, Box::new(move || opener.store(true, Ordering::SeqCst)));
        while !held.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        completer.complete(());
    };
    exec.spawn(TaskClass::Write, Box::new(job));
    done.wait(&exec);
    assert!(gate.load(Ordering::SeqCst));
}

/// Urgent jobs overtake background ones that were queued earlier.
#[test]
fn urgent_classes_go_first() {
    let exec = pool(1);
    let order = Arc::new(Mutex::new(Vec::new()));
    let (completer, done) = completion();
    let (spawner, log) = (exec.clone(), order.clone());
    let job = move || {
        for class in [TaskClass::Background, TaskClass::Write, TaskClass::Interrupt] {
            let log = log.clone();
            spawner.spawn(class, Box::new(move || log.lock().push(class)));
        }
        spawner.spawn(TaskClass::Background, Box::new(move || completer.complete(())));
    };
    exec.spawn(TaskClass::Write, Box::new(job));
    done.wait(&exec);
    assert_eq!(*order.lock(), [TaskClass::Interrupt, TaskClass::Write, TaskClass::Background]);
}

/// A notify between the look at the predicate and the sleep must wake the sleeper, or a commit hangs for ever.
#[test]
fn no_wake_up_is_lost() {
    let exec = pool(2);
    let (ball, queue) = (Arc::new(AtomicU64::new(0)), Arc::new(WaitQueue::new()));
    let player = |parity: u64| {
        let (ball, queue, own) = (ball.clone(), queue.clone(), exec.clone());
        let play = move || {
            for _ in 0..2_000 {
                queue.wait_until(&own, &|| ball.load(Ordering::SeqCst) % 2 == parity);
                ball.fetch_add(1, Ordering::SeqCst);
                queue.notify_all();
            }
        };
        exec.spawn_operation("player", Box::new(play))
    };
    let (ping, pong) = (player(0), player(1));
    ping.join();
    pong.join();
    assert_eq!(ball.load(Ordering::SeqCst), 4_000);
}

/// Timers of the real executor fire, also those started while others wait, and a dropped pool does not wait for them.
#[test]
fn pool_timers_fire_in_order() {
    let exec = pool(1);
    let order = Arc::new(Mutex::new(Vec::new()));
    let (completer, done) = completion();
    let (late, early) = (order.clone(), order.clone());
    exec.spawn_after(
        30_000_000,
        TaskClass::Read,
        Box::new(move || {
            late.lock().push(2);
            completer.complete(());
        }),
    );
    exec.spawn_after(1_000_000, TaskClass::Read, Box::new(move || early.lock().push(1)));
    exec.spawn_after(u64::MAX, TaskClass::Read, Box::new(|| {}));
    done.wait(&exec);
    assert_eq!(*order.lock(), [1, 2]);
}

/// Two operations that each read a counter and write it back one higher, with the lock let go in between.
fn lost_update(seed: u64, keep_lock: bool) -> u64 {
    Lockstep::run(seed, |exec| {
        let counter = Arc::new(Mutex::new(0u64));
        let handles: Vec<_> = (0..2)
            .map(|_| {
                let counter = counter.clone();
                let add = move || {
                    let mut guard = counter.lock();
                    let seen = *guard;
                    if !keep_lock {
                        drop(guard);
                        guard = counter.lock();
                    }
                    *guard = seen + 1;
                };
                exec.spawn_operation("adder", Box::new(add))
            })
            .collect();
        handles.into_iter().for_each(OperationHandle::join);
        *counter.lock()
    })
}

/// The race is found within a few seeds, again under the same seed, and never where there is none.
#[test]
fn lockstep_finds_a_lost_update_and_replays_it() {
    let found: Vec<u64> = (0..40).filter(|seed| lost_update(*seed, false) == 1).collect();
    assert!(!found.is_empty(), "no seed below 40 shows the race");
    found.iter().for_each(|seed| assert_eq!(lost_update(*seed, false), 1));
    assert!((0..40).all(|seed| lost_update(seed, true) == 2));
}

/// Two locks taken in opposite orders: some seed deadlocks, and says so instead of hanging.
#[test]
fn lockstep_notices_a_deadlock() {
    let run = |seed| {
        std::panic::catch_unwind(|| {
            Lockstep::run(seed, |exec| {
                let locks = Arc::new((Mutex::new(()), RwLock::new(())));
                let other = locks.clone();
                let operation = move || {
                    let _first = other.1.write();
                    let _second = other.0.lock();
                };
                let handle = exec.spawn_operation("other", Box::new(operation));
                {
                    let _first = locks.0.lock();
                    let _second = locks.1.read();
                }
                handle.join();
            });
        })
    };
    let messages: Vec<String> = (0..60)
        .filter_map(|seed| run(seed).err().map(|panic| (seed, panic)))
        .map(|(seed, panic)| {
            let text = panic.downcast_ref::<String>().cloned().unwrap_or_default();
            assert!(text.ends_with(&format!("(lockstep seed {seed})")), "{text}");
            text
        })
        .collect();
    assert!(messages.iter().any(|text| text.starts_with("deadlock: every thread waits")), "no seed below 60 deadlocks");
    assert!(messages.len() < 60, "some seed gets through");
}

/// Jobs, timers, completions, wait queues and condition variables all run under the baton; the order follows from the seed.
#[test]
fn lockstep_runs_whole_programs() {
    let run = |seed| {
        Lockstep::run(seed, |exec| {
            assert_eq!(trace(exec).len(), 60);
            let started = exec.now_ns();
            exec.sleep_ns(5_000_000);
            assert!(exec.now_ns() >= started + 5_000_000);
            let shared = Arc::new((Mutex::new(0u32), Condvar::new(), WaitQueue::new()));
            let (own, waiter) = (shared.clone(), exec.clone());
            let consume = move || {
                let mut count = own.0.lock();
                while *count < 3 {
                    own.1.wait(&mut count);
                }
                assert!(own.1.wait_for(&mut count, std::time::Duration::from_millis(1)).timed_out());
                *count += 10;
                drop(count);
                own.2.notify_all();
                waiter.sleep_ns(10);
            };
            let handle = exec.spawn_operation("consumer", Box::new(consume));
            for _ in 0..3 {
                *shared.0.lock() += 1;
                shared.1.notify_one();
            }
            shared.2.wait_until(exec, &|| *shared.0.lock() == 13);
            handle.join();
            (trace(exec), exec.now_ns(), exec.random_u64())
        })
    };
    let traces: std::collections::BTreeSet<_> = (0..10).map(|seed| run(seed).0).collect();
    assert!(traces.len() > 8);
    (0..10).for_each(|seed| assert_eq!(run(seed), run(seed), "seed {seed}"));
}

/// An assertion that fails in an operation fails the program, with the seed.
#[test]
#[should_panic(expected = "a thread panicked (lockstep seed 3)")]
fn lockstep_reports_a_panic_of_an_operation() {
    Lockstep::run(3, |exec| exec.spawn_operation("bad", Box::new(|| panic!("on purpose"))).join());
}

/// Threads of the system, of which those at these places of the order are refused.
fn refusing(is_refused: impl Fn(usize) -> bool + Send + Sync + 'static) -> Start {
    let (system, started) = (of_the_system(), AtomicUsize::new(0));
    Arc::new(move |name: &str, job: Job| match is_refused(started.fetch_add(1, Ordering::SeqCst)) {
        true => Err(io::Error::from(io::ErrorKind::WouldBlock)),
        false => system(name, job),
    })
}

/// Operations that start operations and wait for them, timers and jobs; returns how many ran.
fn nested(exec: &Exec) -> usize {
    let ran = Arc::new(AtomicUsize::new(0));
    let handles: Vec<OperationHandle> = (0..4)
        .map(|_| {
            let (ran, own) = (ran.clone(), exec.clone());
            let outer = move || {
                let counted = ran.clone();
                let inner = move || {
                    counted.fetch_add(1, Ordering::SeqCst);
                };
                own.spawn_operation("inner", Box::new(inner)).join();
                let (completer, done) = completion();
                own.spawn_after(1, TaskClass::Read, Box::new(move || completer.complete(())));
                done.wait(&own);
                ran.fetch_add(1, Ordering::SeqCst);
            };
            exec.spawn_operation("outer", Box::new(outer))
        })
        .collect();
    handles.into_iter().for_each(OperationHandle::join);
    ran.load(Ordering::SeqCst)
}

/// If this fails, a limit of threads has a daemon abort, or its operations stand still, whichever thread the system refuses: also all from one on.
#[test]
fn every_refused_thread_is_survived() {
    const POOL: usize = 2 + 1 + 2;
    for refused in 0..POOL + 12 {
        for is_lasting in [false, true] {
            let start = refusing(move |number| if is_lasting { number >= refused } else { number == refused });
            match Pool::by(start, 2, 2) {
                Err(error) => assert!(refused < POOL, "thread {refused}: {error}"),
                Ok(pool) => {
                    assert!(refused >= POOL, "thread {refused} of a pool is missing");
                    assert_eq!(nested(&(Arc::new(pool) as Exec)), 8, "thread {refused}");
                }
            }
        }
    }
}

/// If this fails, whoever starts a daemon with too few threads is not told how many are missing.
#[test]
fn threads_that_the_system_refuses_are_counted() {
    assert_eq!(missing(&refusing(|_| false), 8), 0);
    assert_eq!(missing(&refusing(|number| number >= 5), 8), 3);
    assert_eq!(missing(&refusing(|_| true), 8), 8);
}

/// If this fails, work from outside takes all threads that are kept for what it starts itself, and everything stands still; or a thread is lost with
/// each operation that panics.
#[test]
fn work_from_outside_leaves_kept_threads_to_what_it_starts() {
    let pool = Pool::by(refusing(|number| number >= 1 + 1 + 4), 1, 4).expect("a pool");
    let exec: Exec = Arc::new(pool);
    assert!(exec.lacks_threads(1) && exec.spawn_alone("alone", Box::new(|| {})).is_err());
    exec.spawn_operation("bad", Box::new(|| panic!("on purpose"))).join();
    let (gate, ran) = (Arc::new((Mutex::new(false), Condvar::new())), Arc::new(AtomicUsize::new(0)));
    let entered = |number: usize| {
        let (gate, ran, own) = (gate.clone(), ran.clone(), exec.clone());
        let work = move || {
            let mut is_open = gate.0.lock();
            while !*is_open {
                gate.1.wait(&mut is_open);
            }
            drop(is_open);
            // Waited for by other means than a join.
            let (completer, done) = completion();
            drop(own.spawn_operation("inner", Box::new(move || completer.complete(()))));
            done.wait(&own);
            ran.fetch_add(number, Ordering::SeqCst);
        };
        exec.enter("outside", Box::new(work))
    };
    // A kept thread may not yet be where it waits for work.
    let patiently = |number| loop {
        match entered(number) {
            Ok(handle) => return handle,
            Err(_) => std::thread::yield_now(),
        }
    };
    let (first, second) = (patiently(1), patiently(2));
    assert!(entered(4).is_err(), "a third one is refused");
    *gate.0.lock() = true;
    gate.1.notify_all();
    first.join();
    second.join();
    assert_eq!(ran.load(Ordering::SeqCst), 3);
    patiently(8).join();
}
