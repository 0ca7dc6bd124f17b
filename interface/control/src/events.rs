//! `zpool events`: the newest events of the daemon's pools.

use crate::Control;
use control_api::{EventReport, PoolEvents, Response};
use exec::Exec;
use kstat::{Event, EventLog, EventSink, FieldValue, LoggedEvent};
use ondisk::Guid;

/// Events kept (OpenZFS: `zfs_zevent_len_max`).
const EVENTS_MAX: usize = 512;

/// The log of a daemon.
pub(crate) fn log(exec: &Exec) -> EventLog {
    let exec = exec.clone();
    EventLog::new(EVENTS_MAX, Box::new(move || exec.wall_clock()))
}

impl Control {
    /// Tells that a pool came or went (OpenZFS: `spa_event_notify`).
    pub(crate) fn tell(&self, class: &'static str, pool: &str, guid: Guid) {
        self.events.event(Event::new(class).with("pool", pool).with("pool_guid", guid.0));
    }

    pub(crate) fn pool_events(&self, request: &PoolEvents) -> Response {
        if request.clear {
            return Response::EventsCleared { count: self.events.clear() as u64 };
        }
        let is_wanted = |event: &LoggedEvent| match (&request.pool, event.event.field("pool")) {
            (Some(wanted), Some(FieldValue::Text(pool))) => wanted == pool,
            _ => true,
        };
        Response::Events(self.events.since(request.after).into_iter().filter(is_wanted).map(report).collect())
    }
}

fn report(logged: LoggedEvent) -> EventReport {
    let fields = logged.event.fields.iter().map(|(name, value)| (name.to_string(), shown(value)));
    EventReport { eid: logged.eid, time: logged.time, class: logged.event.class.to_string(), fields: fields.collect() }
}

/// A value as OpenZFS prints it (`zpool_do_events_nvprint`).
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
