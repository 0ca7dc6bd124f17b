//! The work of a request, done by its export: whatever becomes of it, the connection hears of its end, once.

use crate::export::{Done, Export, ExportError};
use crate::transmit::{Finished, Got, Request, Work};
use tokio::sync::mpsc::UnboundedSender;

/// Answer that is owed to a request; an export that drops it is gone.
struct Owed {
    request: Option<Request>,
    results: UnboundedSender<Finished>,
}

impl Owed {
    fn give(mut self, result: Result<Got, ExportError>) {
        self.end(result);
    }

    fn end(&mut self, result: Result<Got, ExportError>) {
        if let Some(request) = self.request.take() {
            // The connection may have ended.
            let _ = self.results.send(Finished { request, result });
        }
    }

    /// Completion of a call whose result is this.
    fn done<T: 'static>(self, got: impl FnOnce(T) -> Got + Send + 'static) -> Done<T> {
        Box::new(move |result| self.give(result.map(got)))
    }

    fn done_with_nothing(self) -> Done<()> {
        self.done(|()| Got::Nothing)
    }
}

impl Drop for Owed {
    fn drop(&mut self) {
        self.end(Err(ExportError::Gone));
    }
}

/// Has the work of a request done; its end comes through `results`.
pub(crate) fn start(export: &dyn Export, request: Request, work: Work, results: UnboundedSender<Finished>) {
    let (range, is_durable) = (request.range(), request.is_durable());
    let owed = Owed { request: Some(request), results };
    match work {
        Work::Read { is_whole } => export.read(range, is_whole, owed.done(Got::Pieces)),
        Work::Write(data) => export.write(range.start, data, is_durable, owed.done_with_nothing()),
        Work::Trim => export.trim(range, is_durable, owed.done_with_nothing()),
        Work::WriteZeroes { keeps_space } => export.write_zeroes(range, keeps_space, is_durable, owed.done_with_nothing()),
        Work::Cache => export.cache(range, owed.done_with_nothing()),
        Work::Flush => export.flush(owed.done_with_nothing()),
        Work::Status { runs_max } => export.status(range, runs_max, owed.done(Got::Runs)),
    }
}
