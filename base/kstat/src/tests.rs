//! What monitoring would read wrongly if these failed.

use crate::{Counter, Event, EventLog, EventSink, FieldValue, Histogram, Kstat, Registry, Value};
use std::sync::Arc;

/// Counters that lose additions make every rate a lie.
#[test]
fn no_addition_is_lost_between_threads() {
    let counter = Counter::new();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| (0..1000).for_each(|_| counter.add(3)));
        }
    });
    assert_eq!(counter.get(), 24_000);
    // Subtraction on another thread's shard must not disturb the sum.
    std::thread::scope(|scope| scope.spawn(|| counter.sub(23_999)).join().unwrap());
    assert_eq!(counter.get(), 1);
    counter.reset();
    assert_eq!(counter.get(), 0);
}

/// The buckets are OpenZFS's: `zpool iostat -w` would otherwise show latencies one bucket off.
#[test]
fn histogram_buckets_are_powers_of_two() {
    let histogram = Histogram::new(Histogram::SIZE_BUCKETS);
    [0, 1, 2, 3, 4, 512, 1023, 1 << 24, 1 << 40].iter().for_each(|value| histogram.add(*value));
    let counts = histogram.counts();
    assert_eq!(counts.len(), 25);
    assert_eq!((counts[0], counts[1], counts[2], counts[9], counts[24]), (2, 2, 1, 2, 2));
    assert_eq!(counts.iter().sum::<u64>(), 9);
}

/// arcstat splits lines at white space and skips two header lines; node_exporter reads the type column.
#[test]
fn text_has_the_kernels_shape() {
    let registry = Registry::new();
    let mut kstat = Kstat::named();
    let hits = kstat.counter("hits");
    let size = kstat.gauge("size");
    kstat.computed("state", || Value::Text("ONLINE".to_string()));
    kstat.computed("balance", || Value::I64(-5));
    hits.add(41);
    hits.bump();
    size.set(7);
    size.raise(9);
    size.raise(8);
    let guard = registry.register("zfs/arcstats", kstat, 100);
    let text = registry.render("zfs/arcstats", 250).unwrap();
    let expected = "1 1 0x01 4 1088 100 250\n\
        name                            type data\n\
        hits                            4    42\n\
        size                            4    9\n\
        state                           7    ONLINE\n\
        balance                         3    -5\n";
    assert_eq!(text, expected);
    assert_eq!(guard.kstat().values()[0], ("hits", Value::U64(42)));
    let raw = registry.register("zfs/tank/txgs", Kstat::raw(|| "txg birth\n4 1\n".to_string()), 300);
    assert_eq!(registry.render("zfs/tank/txgs", 301).unwrap(), "2 0 0x01 0 14 300 301\ntxg birth\n4 1\n");
    assert_eq!(registry.paths(), ["zfs/arcstats", "zfs/tank/txgs"]);
    drop(raw);
    assert_eq!(registry.paths(), ["zfs/arcstats"]);
    assert_eq!(registry.render("zfs/tank/txgs", 302), None);
}

/// A pool imported again registers its statistics before the guards of the old ones are gone.
#[test]
fn an_old_guard_does_not_remove_its_successor() {
    let registry = Registry::new();
    let old = registry.register("zfs/tank/io", Kstat::named(), 1);
    let new = registry.register("zfs/tank/io", Kstat::named(), 2);
    drop(old);
    assert!(registry.get("zfs/tank/io").is_some());
    drop(new);
    assert!(registry.get("zfs/tank/io").is_none());
}

/// Events are numbered without gaps and the newest survive; an event daemon resumes at its last number.
#[test]
fn the_log_keeps_the_newest_events_in_order() {
    let log = EventLog::new(3, Box::new(|| (1_700_000_000, 5)));
    let heard = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let ears = heard.clone();
    log.listen(Arc::new(move |logged| ears.lock().push(logged.eid)));
    for txg in 1..=5u64 {
        log.event(Event::new("sysevent.fs.zfs.config_sync").with("pool", "tank").with("txg", txg));
    }
    let events = log.since(0);
    assert_eq!(events.iter().map(|logged| logged.eid).collect::<Vec<_>>(), [3, 4, 5]);
    assert_eq!(events[0].event.field("txg"), Some(&FieldValue::U64(3)));
    assert_eq!(events[0].time, (1_700_000_000, 5));
    assert_eq!(log.since(4).len(), 1);
    assert_eq!(*heard.lock(), [1, 2, 3, 4, 5]);
    let json = serde_json::to_string(&events[0].event).unwrap();
    assert_eq!(json, r#"{"class":"sysevent.fs.zfs.config_sync","fields":[["pool","tank"],["txg",3]]}"#);
    log.set_capacity(1);
    assert_eq!(log.since(0).iter().map(|logged| logged.eid).collect::<Vec<_>>(), [5], "fewer are kept at once");
    assert_eq!((log.clear(), log.since(0).len()), (1, 0));
}
