//! Executors: what hangs, gets lost or becomes irreproducible when these fail.

use crate::{Exec, Executor, Inline, Mutex, Pool, TaskClass, WaitQueue, completion};
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
