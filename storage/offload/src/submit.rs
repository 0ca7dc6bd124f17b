//! Giving graphs to a provider, and what their errors mean.

use dpusm::{Device, FallbackReason, Graph, OpError, Report};
use std::sync::Arc;

/// Submits a graph for somebody: `then` gets them back, with the report or with why the provider did not take it. Not inside this call, unless
/// it was refused.
pub(crate) fn submit<T, F>(device: &Device, graph: Graph, deadline_ns: u64, whose: T, then: F)
where
    T: Send + 'static,
    F: FnOnce(T, Result<Report, OpError>) + Send + 'static,
{
    let slot = Arc::new(exec::Mutex::new(Some((whose, then))));
    let taken = slot.clone();
    let done = move |report: Report| {
        let waiting = taken.lock().take();
        if let Some((whose, then)) = waiting {
            then(whose, Ok(report));
        }
    };
    if let Err(refused) = device.submit(graph, deadline_ns, done) {
        let waiting = slot.lock().take();
        if let Some((whose, then)) = waiting {
            then(whose, Err(refused.error));
        }
    }
}

/// Reason for the fallback of a stage whose graph ended with an error.
pub(crate) fn reason(error: OpError) -> FallbackReason {
    error.into()
}
