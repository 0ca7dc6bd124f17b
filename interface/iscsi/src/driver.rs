//! The thin driver of a [`Connection`]: one task owns the socket, reads many PDUs at a time, writes many with one call, and runs jobs.

use crate::connection::Connection;
use crate::frame::{Framer, Wire};
use crate::full::{Action, Finished, Job};
use crate::negotiate::{RECEIVE_BYTES_DEFAULT, RECEIVE_BYTES_MAX};
use crate::parked::Parked;
use crate::server::{Options, stopped};
use crate::targets::{Mail, Session, Targets};
use crowd::Place;
use std::collections::VecDeque;
use std::future::Future;
use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::sync::{Notify, mpsc, watch};

/// Bytes that wait to be sent before nothing more is read.
const OUT_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Pieces of one vectored write.
const PIECES_MAX: usize = 128;
/// Vectored reads before what came of them is sent.
const READS_MAX: usize = 16;
/// Reads that end where they were begun, before others have their turn at this thread.
const READ_HERE_MAX: usize = 64;
/// Time for the last PDUs of a connection that is closed.
const LAST_WORDS: Duration = Duration::from_secs(5);
const TICK: Duration = Duration::from_secs(1);
/// Reason to close a connection that says nothing; there may be very many of them.
const CROWDED: &str = "it was silent, and another one needs its place";

type Admission = Pin<Box<dyn Future<Output = Option<Arc<Session>>> + Send>>;

struct Driver<'a> {
    connection: Connection,
    stream: TcpStream,
    options: &'a Options,
    targets: Arc<Targets>,
    framer: Framer,
    has_header_digest: bool,
    has_data_digest: bool,
    out: VecDeque<Wire>,
    out_bytes: usize,
    /// Bytes of the first of `out` that were sent.
    skip: usize,
    results: mpsc::UnboundedSender<Finished>,
    parked: Parked,
    mail: mpsc::UnboundedSender<Mail>,
    admission: Option<Admission>,
    half_open: Option<Place>,
    closing: Option<&'static str>,
    /// Number of reads that ended where they were begun, since the connection waited.
    read_here: usize,
    /// Ticks since anything was received, since the login began, and since the end was announced.
    silent_s: u64,
    login_s: u64,
    stopping_s: Option<u64>,
}

/// Serves one connection until it ends, and its tasks have.
pub(crate) async fn drive(
    stream: TcpStream,
    targets: Arc<Targets>,
    options: &Options,
    half_open: Place,
    stop: watch::Receiver<bool>,
) -> io::Result<()> {
    let (peer, local) = (stream.peer_addr()?, stream.local_addr()?);
    stream.set_nodelay(true)?;
    // A peer that takes nothing for so long is dead.
    rustix::net::sockopt::set_tcp_user_timeout(&stream, options.ping_after.as_millis() as u32 * 2)?;
    let (results, mut finished) = mpsc::unbounded_channel();
    let (parked, mut bells) = Parked::new();
    let (mail, mut letters) = mpsc::unbounded_channel();
    let mut driver = Driver {
        connection: Connection::new(targets.clone(), peer, local),
        stream,
        options,
        targets,
        framer: Framer::new(RECEIVE_BYTES_DEFAULT as usize),
        has_header_digest: false,
        has_data_digest: false,
        out: VecDeque::new(),
        out_bytes: 0,
        skip: 0,
        results,
        parked,
        mail,
        admission: None,
        half_open: Some(half_open),
        closing: None,
        read_here: 0,
        silent_s: 0,
        login_s: 0,
        stopping_s: None,
    };
    let result = driver.run((&mut finished, &mut bells), &mut letters, stop).await;
    let why = driver.closing.unwrap_or("the connection was lost");
    if why == CROWDED {
        tracing::debug!("iSCSI connection of {peer} ended: {why}");
    } else {
        tracing::info!("iSCSI connection of {peer} ended: {why}");
    }
    // The peer learns of the end at once, not when the last task has ended. It may have gone first.
    let _ = rustix::net::shutdown(&driver.stream, rustix::net::Shutdown::Both);
    driver.act();
    while !driver.connection.abandon() {
        tokio::select! {
            Some(result) = finished.recv() => driver.connection.finished(result),
            Some(number) = bells.recv() => driver.go_on(number),
            else => break,
        }
    }
    // The session is forgotten before nobody reads its mail any more: who waits for its end looks again only then.
    drop(driver);
    drop(letters);
    result
}

impl Driver<'_> {
    async fn run(
        &mut self,
        (finished, bells): (&mut mpsc::UnboundedReceiver<Finished>, &mut mpsc::UnboundedReceiver<u64>),
        letters: &mut mpsc::UnboundedReceiver<Mail>,
        mut stop: watch::Receiver<bool>,
    ) -> io::Result<()> {
        let mut ticks = tokio::time::interval(TICK);
        let mut is_told = false;
        loop {
            self.act();
            self.flush()?;
            if self.closing.is_some() {
                return self.last_words(bells).await;
            }
            self.read_here = 0;
            let (interest, last_call) = (self.interest(), self.last_call());
            let leave = self.half_open.as_ref().map(Place::leave);
            tokio::select! {
                ready = self.stream.ready(interest) => {
                    if ready?.is_readable() && !self.fill()? {
                        return Ok(());
                    }
                }
                Some(result) = finished.recv() => {
                    self.connection.finished(result);
                    while let Ok(result) = finished.try_recv() {
                        self.connection.finished(result);
                    }
                }
                Some(number) = bells.recv() => {
                    self.go_on(number);
                    while let Ok(number) = bells.try_recv() {
                        self.go_on(number);
                    }
                }
                Some(letter) = letters.recv() => self.connection.mail(letter),
                session = admission(&mut self.admission) => {
                    self.admission = None;
                    self.half_open = None;
                    self.connection.admitted(session);
                }
                _ = ticks.tick() => self.tick(),
                () = rung(leave) => {
                    self.closing.get_or_insert(CROWDED);
                }
                () = silence(last_call) => {
                    self.closing.get_or_insert("the server stops");
                }
                () = stopped(&mut stop), if !is_told => {
                    is_told = true;
                    self.stopping_s = Some(0);
                    self.connection.ask_logout(self.options.drain.as_secs().min(3600) as u16);
                }
            }
        }
    }

    fn interest(&self) -> Interest {
        match (self.out.is_empty(), self.out_bytes > OUT_BYTES_MAX) {
            (true, _) => Interest::READABLE,
            (false, false) => Interest::READABLE | Interest::WRITABLE,
            (false, true) => Interest::WRITABLE,
        }
    }

    /// Silence after which the connection ends since the server stops; none while it does not, or something is under way.
    fn last_call(&self) -> Option<Duration> {
        (self.stopping_s.is_some() && self.connection.is_idle()).then_some(self.options.farewell)
    }

    /// Does what the connection wants.
    fn act(&mut self) {
        while let Some(action) = self.connection.next_action() {
            match action {
                Action::Send(pdu) => {
                    let wire = Wire::new(pdu, self.has_header_digest, self.has_data_digest);
                    self.out_bytes += wire.len();
                    self.out.push_back(wire);
                }
                Action::Run(job) => self.start(job),
                Action::Admit(request) => {
                    self.half_open.iter().for_each(Place::admitting);
                    let (targets, mail) = (self.targets.clone(), self.mail.clone());
                    self.admission = Some(Box::pin(async move { targets.admit(&request, mail).await }));
                }
                Action::Negotiated(parameters) => {
                    self.has_header_digest = parameters.header_digest;
                    self.has_data_digest = parameters.data_digest;
                    self.framer.negotiated(parameters.header_digest, parameters.data_digest, RECEIVE_BYTES_MAX as usize);
                }
                Action::Close(why) => {
                    self.closing.get_or_insert(why);
                }
            }
        }
    }

    /// Runs a job here as far as it goes without waiting; what has to wait and then has much to do gets a task of its own. So does a read once many have ended
    /// here: those of what is in memory must not keep what came behind them waiting, nor other connections.
    fn start(&mut self, mut job: Job) {
        if job.is_read && self.read_here >= READ_HERE_MAX {
            return self.start_apart(job);
        }
        // Whoever polls last is woken: the task, if there is one.
        match Pin::new(&mut job).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(finished) => {
                self.read_here += usize::from(job.is_read);
                self.connection.finished(finished);
            }
            Poll::Pending if job.is_light => {
                let finished = self.parked.add(job);
                finished.into_iter().for_each(|finished| self.connection.finished(finished));
            }
            Poll::Pending => self.start_apart(job),
        }
    }

    /// Goes on with a job that waited here.
    fn go_on(&mut self, number: u64) {
        let finished = self.parked.go_on(number);
        finished.into_iter().for_each(|finished| self.connection.finished(finished));
    }

    /// Gives a job a task of its own.
    fn start_apart(&self, job: Job) {
        let results = self.results.clone();
        tokio::spawn(async move {
            let finished = job.await;
            // The connection may have ended.
            let _ = results.send(finished);
        });
    }

    /// Reads what has come. False at the end of the stream.
    fn fill(&mut self) -> io::Result<bool> {
        for _ in 0..READS_MAX {
            let is_drained = match self.take_bytes() {
                Ok((0, _)) => return Ok(false),
                Ok((count, is_drained)) => {
                    self.framer.incoming.filled(count);
                    is_drained
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(true),
                Err(error) => return Err(error),
            };
            self.silent_s = 0;
            self.half_open.iter().for_each(Place::heard);
            loop {
                match self.framer.next_pdu() {
                    Ok(Some(pdu)) => self.connection.receive(pdu),
                    Ok(None) => break,
                    Err(error) => {
                        tracing::warn!("iSCSI initiator sent {error}");
                        self.closing.get_or_insert("what it sent cannot be followed");
                    }
                }
                // What a PDU leads to may change how the next one is read.
                self.act();
                if self.closing.is_some() {
                    return Ok(true);
                }
            }
            if self.out_bytes > OUT_BYTES_MAX {
                break;
            }
            self.flush()?;
            if is_drained {
                break;
            }
        }
        Ok(true)
    }

    /// Takes bytes from the socket: their number, and true when it has no more. That is seen when fewer came than there is room for, and saves the call
    /// that would say so; whatever comes afterwards makes the socket ready anew.
    fn take_bytes(&mut self) -> io::Result<(usize, bool)> {
        let (stream, mut spaces) = (&self.stream, self.framer.incoming.spaces());
        let room: usize = spaces.iter().map(|space| space.len()).sum();
        let mut last = None;
        let taken = stream.try_io(Interest::READABLE, || {
            let count = rustix::io::readv(stream, &mut spaces)?;
            if (1..room).contains(&count) {
                last = Some(count);
                // Said from in here, it is of what was there before the call.
                return Err(ErrorKind::WouldBlock.into());
            }
            Ok(count)
        });
        match last {
            Some(count) => Ok((count, true)),
            None => taken.map(|count| (count, false)),
        }
    }

    /// Sends as much as the socket takes.
    fn flush(&mut self) -> io::Result<()> {
        while !self.out.is_empty() {
            let mut list = Vec::with_capacity(PIECES_MAX + 8);
            let mut skip = self.skip;
            for wire in &self.out {
                wire.slices(std::mem::take(&mut skip), &mut list);
                if list.len() >= PIECES_MAX {
                    break;
                }
            }
            list.truncate(1024);
            match self.stream.try_write_vectored(&list) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => self.written(count),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
            // Memory that is free again lets commands begin that waited for it.
            self.act();
        }
        Ok(())
    }

    fn written(&mut self, count: usize) {
        self.out_bytes -= count;
        self.skip += count;
        while let Some(wire) = self.out.pop_front_if(|wire| wire.len() <= self.skip) {
            self.skip -= wire.len();
            self.connection.sent(wire.body_len() as u64);
        }
    }

    async fn last_words(&mut self, bells: &mut mpsc::UnboundedReceiver<u64>) -> io::Result<()> {
        let send = async {
            while !self.out.is_empty() {
                tokio::select! {
                    ready = self.stream.writable() => {
                        ready?;
                        self.flush()?;
                    }
                    // What has ended lets go of its blocks, also where the initiator does not take its last words; nothing else begins.
                    Some(number) = bells.recv() => {
                        let finished = self.parked.go_on(number);
                        finished.into_iter().for_each(|finished| drop(self.results.send(finished)));
                    }
                }
            }
            Ok(())
        };
        tokio::time::timeout(LAST_WORDS, send).await.unwrap_or_else(|_| Err(ErrorKind::TimedOut.into()))
    }

    fn tick(&mut self) {
        if let Some(waited) = &mut self.stopping_s {
            *waited += 1;
            if !self.connection.is_full_feature() || *waited > self.options.drain.as_secs() {
                self.closing.get_or_insert("the server stops");
            }
        }
        if !self.connection.is_full_feature() {
            self.login_s += 1;
            if self.login_s > self.options.login_time.as_secs() {
                self.closing.get_or_insert("its login takes too long");
            }
            return;
        }
        if self.out_bytes > OUT_BYTES_MAX {
            // Nothing is read: its silence means nothing.
            return;
        }
        self.silent_s += 1;
        let ping_s = self.options.ping_after.as_secs().max(1);
        if self.silent_s.is_multiple_of(ping_s) {
            self.connection.ping();
        }
        if self.silent_s > 3 * ping_s {
            self.closing.get_or_insert("it answers no pings");
        }
    }
}

/// A bell that rings; never, where there is none.
async fn rung(bell: Option<Arc<Notify>>) {
    match bell {
        Some(bell) => bell.notified().await,
        None => std::future::pending().await,
    }
}

/// The end of a time; never, where there is none.
async fn silence(time: Option<Duration>) {
    match time {
        Some(time) => tokio::time::sleep(time).await,
        None => std::future::pending().await,
    }
}

/// The end of an admission; never, while there is none.
async fn admission(admission: &mut Option<Admission>) -> Option<Arc<Session>> {
    match admission {
        Some(admission) => admission.await,
        None => std::future::pending().await,
    }
}
