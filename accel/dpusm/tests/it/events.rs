//! What is told of providers: a breaker that opens or closes, a provider that dies or is replaced. Each of them once.

use crate::common::{Disk, Place, blocks, features, options, write_record};
use dpusm::{BreakerPolicy, OpError, OpKind, RegisterOptions, Registry};
use exec::{Exec, Inline, Mutex, TaskClass};
use kstat::{Event, EventSink, FieldValue};
use provider_faulty::{Fault, Faulty, Harm, When};
use provider_software::{Software, SoftwareOptions};
use std::sync::Arc;

#[derive(Default)]
struct Heard(Mutex<Vec<Event>>);

impl EventSink for Heard {
    fn event(&self, event: Event) {
        self.0.lock().push(event);
    }
}

impl Heard {
    /// Events since the last look, without the part that all have in common.
    fn take(&self) -> Vec<String> {
        let text = |event: &Event| {
            assert_eq!(event.field("provider"), Some(&FieldValue::Text("faulty".into())), "{event:?}");
            let class = event.class.strip_prefix("sysevent.fs.zfs.zia_").expect("a class of ours");
            match event.field("operation") {
                Some(FieldValue::Text(operation)) => format!("{class} {operation}"),
                _ => class.to_string(),
            }
        };
        self.0.lock().drain(..).map(|event| text(&event)).collect()
    }
}

fn provider(exec: &Exec) -> Arc<Faulty> {
    Faulty::new(exec, "faulty", Software::new(exec, SoftwareOptions { features: features(), ..SoftwareOptions::default() }))
}

/// An administrator would not know that blocks are not offloaded any more, or that they are again; one who is told the same all the time
/// stops listening.
#[test]
fn whatever_happens_to_a_provider_is_told_once() {
    let exec: Exec = Arc::new(Inline::new(3));
    let heard = Arc::new(Heard::default());
    let registry = Registry::with_events(&exec, heard.clone());
    let breaker = BreakerPolicy { failures_max: 2, probes_to_close: 1, ..BreakerPolicy::default() };
    let options = RegisterOptions { breaker, ..options() };
    let faulty = provider(&exec);
    let device = registry.register(faulty.clone(), &options).expect("it behaves");
    assert_eq!(heard.take(), Vec::<String>::new(), "the tests at registration are no news");

    let disks: Vec<Arc<Disk>> = (0..crate::common::PARITY + crate::common::DATA).map(|_| Arc::default()).collect();
    let write = |count: usize| {
        for (number, block) in blocks(count, 8192).iter().enumerate() {
            write_record(&device, block, &Place { disks: &disks, offset: number * 8192 });
        }
    };
    let kind = OpKind::Compress;
    faulty.inject(Some(Fault { harm: Harm::Fail(OpError::Failed), when: When::Kind { kind, skip: 0 } }));
    write(9);
    assert_eq!(heard.take(), ["breaker_open compress"]);
    // Its probe fails: it stays open.
    wait(&exec, 2_000_000_000);
    write(9);
    assert_eq!(heard.take(), Vec::<String>::new());
    faulty.inject(None);
    wait(&exec, 60_000_000_000);
    write(9);
    assert_eq!(heard.take(), ["breaker_close compress"]);
    for _ in 0..2 {
        device.note_verified(kind, false);
    }
    assert_eq!(heard.take(), ["provider_distrusted compress"]);

    registry.replace(provider(&exec), &options).expect("it behaves");
    assert_eq!(heard.take(), ["provider_replaced"]);
    for _ in 0..2 {
        registry.invalidate("faulty").expect("it is there");
    }
    assert_eq!(heard.take(), ["provider_down"]);
    registry.unregister("faulty", true).expect("it is there");
    assert_eq!(heard.take(), Vec::<String>::new(), "who takes it out knows");
}

fn wait(exec: &Exec, ns: u64) {
    let (completer, completion) = exec::completion();
    exec.spawn_after(ns, TaskClass::Background, Box::new(move || completer.complete(())));
    completion.wait(exec);
}
