//! The thin driver of a connection: one task owns the socket, takes many requests with one read, and sends many replies with one write.

use crate::connection::{Action, Connection};
use crate::export::{Export, Exports, Refusal};
use crate::guests::{Guest, Guests, Seat};
use crate::server::{Options, Stream, stopped};
use crate::transmit::{Finished, Request, Work};
use crate::work;
use crowd::Place;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::Interest;
use tokio::sync::{mpsc, oneshot, watch};

/// Reads before what came of them is sent.
const READS_MAX: usize = 16;
/// Reads that are begun where they came in, before others have their turn at this thread.
const READ_HERE_MAX: usize = 64;
/// Time for the last words of a connection that is closed.
const LAST_WORDS: Duration = Duration::from_secs(5);
const TICK: Duration = Duration::from_secs(1);

/// Answer about exports.
enum Answer {
    Names(Vec<String>),
    Opened(Result<Arc<dyn Export>, Refusal>),
}

struct Driver<'a> {
    connection: Connection,
    stream: &'a Stream,
    exports: &'a dyn Exports,
    guests: &'a Arc<Guests>,
    options: &'a Options,
    results: mpsc::UnboundedSender<Finished>,
    finished: mpsc::UnboundedReceiver<Finished>,
    /// Number of reads that were begun where they came in, since the connection waited.
    read_here: usize,
    asked: Option<oneshot::Receiver<Answer>>,
    /// Place among all connections.
    place: Place,
    /// True when something came since the last tick.
    has_come: bool,
    seat: Option<Seat>,
    closing: Option<&'static str>,
    haggling_s: u64,
    /// Ticks since the end was announced.
    leaving_s: Option<u64>,
}

/// Serves one connection until it ends, and what it asked for has.
pub(crate) async fn drive(
    stream: Stream,
    (exports, guests): (&dyn Exports, &Arc<Guests>),
    options: &Options,
    place: Place,
    stop: watch::Receiver<bool>,
) -> io::Result<()> {
    stream.prepare(options)?;
    let (results, finished) = mpsc::unbounded_channel();
    let mut driver = Driver {
        connection: Connection::new(),
        stream: &stream,
        exports,
        guests,
        options,
        results,
        finished,
        read_here: 0,
        asked: None,
        place,
        has_come: false,
        seat: None,
        closing: None,
        haggling_s: 0,
        leaving_s: None,
    };
    let result = driver.run(stop).await;
    if let Some(seat) = &driver.seat {
        tracing::info!("NBD client {} of '{}' ended: {}", seat.guest.client, seat.guest.export, driver.closing.unwrap_or("it has gone"));
    }
    // The client learns of the end at once, not when the last request has ended. It may have gone first.
    let _ = stream.shut();
    // The export is in use as long as something is done with it.
    while driver.connection.under_way() > 0 {
        let Some(end) = driver.finished.recv().await else { break };
        driver.connection.finished(end);
    }
    result
}

impl Driver<'_> {
    async fn run(&mut self, mut stop: watch::Receiver<bool>) -> io::Result<()> {
        let (mut ticks, crowded) = (tokio::time::interval(TICK), self.place.leave());
        loop {
            self.connection.advance();
            self.act();
            self.flush()?;
            if self.closing.is_some() {
                return self.last_words().await;
            }
            self.read_here = 0;
            let interest = self.interest();
            let may_leave = self.leaving_s.is_none();
            tokio::select! {
                ready = self.stream.ready(interest) => {
                    if ready?.is_readable() && self.connection.wants_bytes() && !self.fill()? {
                        return Ok(());
                    }
                }
                Some(end) = self.finished.recv() => {
                    self.connection.finished(end);
                    self.take_ends();
                }
                answer = answered(&mut self.asked) => {
                    self.asked = None;
                    match answer {
                        Some(Answer::Names(names)) => self.connection.listed(&names),
                        Some(Answer::Opened(opened)) => self.connection.opened(opened),
                        None => self.connection.leave("nobody says what there is"),
                    }
                }
                _ = ticks.tick() => self.tick(),
                () = crowded.notified(), if may_leave => self.leave("its place is another one's"),
                () = told(self.seat.as_ref()), if may_leave => self.leave("its export is not served any more"),
                () = stopped(&mut stop), if may_leave => self.leave("the server stops"),
            }
        }
    }

    fn leave(&mut self, why: &'static str) {
        self.leaving_s = Some(0);
        self.connection.leave(why);
    }

    fn interest(&self) -> Option<Interest> {
        match (self.connection.wants_bytes(), !self.connection.out.is_empty()) {
            (true, true) => Some(Interest::READABLE | Interest::WRITABLE),
            (true, false) => Some(Interest::READABLE),
            (false, true) => Some(Interest::WRITABLE),
            (false, false) => None,
        }
    }

    /// Does what the connection wants.
    fn act(&mut self) {
        while let Some(action) = self.connection.next_action() {
            match action {
                Action::List => {
                    let (sender, receiver) = oneshot::channel();
                    self.asked = Some(receiver);
                    // The connection may have ended.
                    self.exports.list(Box::new(move |names| drop(sender.send(Answer::Names(names)))));
                }
                Action::Open(name) => {
                    let (sender, receiver) = oneshot::channel();
                    self.asked = Some(receiver);
                    self.exports.open(&name, Box::new(move |opened| drop(sender.send(Answer::Opened(opened)))));
                }
                Action::Begin(export) => {
                    self.place.comes_in();
                    tracing::info!("NBD client {} has '{export}'", self.stream.client());
                    self.seat = Some(self.guests.enter(Guest { export, client: self.stream.client().to_string() }));
                }
                Action::Start(export, request, work) => self.start(export, request, work),
                Action::Close(why) => {
                    self.closing.get_or_insert(why);
                }
            }
        }
    }

    /// Has the work of a request done; what ends at once is answered with what else goes out now. Once many reads were begun here the others get tasks of their
    /// own: those of what is in memory must not keep what came behind them waiting, nor other connections.
    fn start(&mut self, export: Arc<dyn Export>, request: Request, work: Work) {
        let (is_read, results) = (matches!(work, Work::Read { .. }), self.results.clone());
        if is_read && self.read_here >= READ_HERE_MAX {
            tokio::spawn(async move { work::start(&*export, request, work, results) });
            return;
        }
        self.read_here += usize::from(is_read);
        work::start(&*export, request, work, results);
        self.take_ends();
    }

    /// Takes the ends of requests that there are.
    fn take_ends(&mut self) {
        while let Ok(end) = self.finished.try_recv() {
            self.connection.finished(end);
        }
    }

    /// Reads what has come. False at the end of the stream.
    fn fill(&mut self) -> io::Result<bool> {
        for _ in 0..READS_MAX {
            match self.stream.try_read(&mut self.connection.incoming.spaces()) {
                Ok(0) => return Ok(false),
                Ok(count) => {
                    self.has_come = true;
                    if self.seat.is_none() {
                        self.place.heard();
                    }
                    self.connection.incoming.filled(count);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(true),
                Err(error) => return Err(error),
            }
            self.connection.advance();
            self.act();
            if self.closing.is_some() || !self.connection.wants_bytes() {
                return Ok(true);
            }
            self.flush()?;
        }
        Ok(true)
    }

    /// Sends as much as the socket takes.
    fn flush(&mut self) -> io::Result<()> {
        while !self.connection.out.is_empty() {
            let sent = self.stream.try_write(&self.connection.out.slices());
            match sent {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => self.connection.out.took(count),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    async fn last_words(&mut self) -> io::Result<()> {
        let send = async {
            while !self.connection.out.is_empty() {
                self.stream.ready(Some(Interest::WRITABLE)).await?;
                self.flush()?;
            }
            Ok(())
        };
        tokio::time::timeout(LAST_WORDS, send).await.unwrap_or_else(|_| Err(ErrorKind::TimedOut.into()))
    }

    fn tick(&mut self) {
        if std::mem::take(&mut self.has_come) {
            self.place.heard();
        }
        if let Some(waited) = &mut self.leaving_s {
            *waited += 1;
            if *waited > self.options.drain.as_secs() {
                self.closing.get_or_insert("what it asked for does not end");
            }
        }
        if !self.connection.is_serving() {
            self.haggling_s += 1;
            if self.haggling_s > self.options.haggling_time.as_secs() {
                self.closing.get_or_insert("it haggles for too long");
            }
        }
    }
}

/// The answer that is awaited, None where it was dropped; never, while none is.
async fn answered(asked: &mut Option<oneshot::Receiver<Answer>>) -> Option<Answer> {
    match asked {
        Some(asked) => asked.await.ok(),
        None => std::future::pending().await,
    }
}

/// Waits until the client of this entry is told to go; for ever where there is none.
async fn told(seat: Option<&Seat>) {
    match seat {
        Some(seat) => seat.end.notified().await,
        None => std::future::pending().await,
    }
}
