//! `zpool events`: the newest events of the daemon's pools.

use control_api::{EventReport, PoolEvents, Response};
use exec::{Exec, TaskClass, WaitQueue};
use kstat::{Event, EventLog, EventSink, FieldValue, LoggedEvent};
use ondisk::Guid;
use std::sync::Arc;

/// Number of events kept (OpenZFS: `zfs_zevent_len_max`).
const EVENTS_MAX: usize = 512;

/// Milliseconds that a request waits for an event at most: a daemon that is stopped waits for its requests.
const WAIT_MS_MAX: u64 = 2_000;

/// Events of the daemon, and what wakes those who wait for more.
pub(crate) struct Events {
    exec: Exec,
    /// Log of the newest events.
    pub log: Arc<EventLog>,
    /// Queue of those who wait for events, told of every one.
    news: Arc<WaitQueue>,
}

/// Adds an event to the log of debug messages: what happened to what. Records of the history are there already.
fn describe(event: &Event) {
    if event.class.ends_with(".history_event") {
        return;
    }
    let fields = ["pool", "vdev_guid", "vdev_path", "vdev_state", "zio_err", "zio_offset", "zio_size", "zio_objset", "zio_object"];
    let known = fields.iter().filter_map(|name| Some(format!(" {name}={}", shown(event.field(name)?))));
    tracing::debug!("event {}{}", event.class, known.collect::<String>());
}

impl Events {
    /// Starts the log, with no events yet.
    pub(crate) fn new(exec: &Exec) -> Events {
        let (own, exec, clock) = (exec.clone(), exec.clone(), exec.clone());
        logging::keep(Box::new(move || clock.wall_clock()));
        let log = EventLog::new(EVENTS_MAX, Box::new(move || exec.wall_clock()));
        let news = Arc::new(WaitQueue::new());
        let told = news.clone();
        log.listen(Arc::new(move |_| told.notify_all()));
        log.listen(Arc::new(|logged| describe(&logged.event)));
        Events { exec: own, log: Arc::new(log), news }
    }

    /// Tells that a pool came or went (OpenZFS: `spa_event_notify`).
    pub(crate) fn tell(&self, class: &'static str, pool: &str, guid: Guid) {
        self.log.event(Event::new(class).with("pool", pool).with("pool_guid", guid.0));
    }

    pub(crate) fn query(&self, request: &PoolEvents) -> Response {
        if request.clear {
            return Response::EventsCleared { count: self.log.clear() as u64 };
        }
        let is_wanted = |event: &LoggedEvent| match (&request.pool, event.event.field("pool")) {
            (Some(wanted), Some(FieldValue::Text(pool))) => wanted == pool,
            _ => true,
        };
        let found = || self.log.since(request.after).into_iter().filter(is_wanted).map(report).collect::<Vec<_>>();
        let events = found();
        if request.wait_ms == 0 || !events.is_empty() {
            return Response::Events(events);
        }
        let wait_ns = request.wait_ms.min(WAIT_MS_MAX) * 1_000_000;
        let (until_ns, news) = (self.exec.now_ns() + wait_ns, self.news.clone());
        self.exec.spawn_after(wait_ns, TaskClass::Interrupt, Box::new(move || news.notify_all()));
        self.news.wait_until(&self.exec, &|| self.exec.now_ns() >= until_ns || !found().is_empty());
        Response::Events(found())
    }
}

fn report(logged: LoggedEvent) -> EventReport {
    let fields = logged.event.fields.iter().map(|(name, value)| (name.to_string(), shown(value)));
    EventReport { eid: logged.eid, time: logged.time, class: logged.event.class.to_string(), fields: fields.collect() }
}

/// Text of a value as OpenZFS prints it (`zpool_do_events_nvprint`).
fn shown(value: &FieldValue) -> String {
    match value {
        FieldValue::Bool(value) => u8::from(*value).to_string(),
        FieldValue::U64(value) => format!("{value:#x}"),
        FieldValue::I64(value) => format!("{value:#x}"),
        FieldValue::Text(value) => format!("\"{value}\""),
        FieldValue::U64s(values) => values.iter().map(|value| format!("{value:#x} ")).collect(),
        FieldValue::Texts(values) => values.iter().map(|value| format!("\"{value}\" ")).collect(),
    }
}
