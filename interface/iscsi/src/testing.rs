//! A connection without a socket: bytes go in, PDUs come out. What has to wait is tried again whenever somebody says so.

use crate::connection::Connection;
use crate::frame::Framer;
use crate::full::{Action, Job};
use crate::negotiate::{RECEIVE_BYTES_DEFAULT, RECEIVE_BYTES_MAX};
use crate::pdu::Outgoing;
use crate::scsi::table::TABLE;
use crate::targets::{Mail, Session, Targets};
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

type Admission = Pin<Box<dyn Future<Output = Option<Arc<Session>>> + Send>>;

/// Connection on a bench, with what its driver would hold.
pub struct Bench {
    targets: Arc<Targets>,
    /// None once it has ended.
    connection: Option<Connection>,
    framer: Framer,
    mail: UnboundedSender<Mail>,
    letters: UnboundedReceiver<Mail>,
    admission: Option<Admission>,
    jobs: Vec<Job>,
    digests: (bool, bool),
    sent: Vec<Outgoing>,
    is_closed: bool,
}

impl std::fmt::Debug for Bench {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bench").field("connection", &self.connection).field("is_closed", &self.is_closed).finish_non_exhaustive()
    }
}

fn now<T>(work: &mut (impl Future<Output = T> + Unpin)) -> Poll<T> {
    Pin::new(work).poll(&mut Context::from_waker(Waker::noop()))
}

impl Bench {
    /// A new connection to some targets.
    pub fn new(targets: &Arc<Targets>) -> Bench {
        let address: SocketAddr = ([127, 0, 0, 1], 3260).into();
        let (mail, letters) = unbounded_channel();
        Bench {
            targets: targets.clone(),
            connection: Some(Connection::new(targets.clone(), address, address)),
            framer: Framer::new(RECEIVE_BYTES_DEFAULT as usize),
            mail,
            letters,
            admission: None,
            jobs: Vec::new(),
            digests: (false, false),
            sent: Vec::new(),
            is_closed: false,
        }
    }

    /// True once the target has closed the connection.
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// True in full feature phase.
    pub fn is_full_feature(&self) -> bool {
        self.connection.as_ref().is_some_and(Connection::is_full_feature)
    }

    /// Digests of headers and of data that were agreed upon.
    pub fn digests(&self) -> (bool, bool) {
        self.digests
    }

    /// Tags of the tasks that there are, and bytes of data and text that are kept for them.
    pub fn census(&self) -> (Vec<u32>, usize) {
        self.connection.as_ref().map_or((Vec::new(), 0), Connection::census)
    }

    /// PDUs that were sent since this was asked last; they count as received by the initiator.
    pub fn sent(&mut self) -> Vec<Outgoing> {
        std::mem::take(&mut self.sent)
    }

    /// Takes bytes of the initiator.
    pub fn take(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() && !self.is_closed {
            rest = &rest[self.framer.incoming.push(rest)..];
            while !self.is_closed {
                match (self.framer.next_pdu(), &mut self.connection) {
                    (Ok(Some(pdu)), Some(connection)) => connection.receive(pdu),
                    (Ok(_), _) => break,
                    (Err(_), _) => self.is_closed = true,
                }
                self.act();
            }
        }
        self.run();
    }

    /// Goes on with what waits, as far as it goes.
    pub fn run(&mut self) {
        let mut moves = true;
        while moves {
            moves = self.admit();
            while let Ok(letter) = self.letters.try_recv() {
                // One to who has ended is thrown away, and nobody waits for its end.
                if let Some(connection) = &mut self.connection {
                    connection.mail(letter);
                }
                moves = true;
            }
            for job in std::mem::take(&mut self.jobs) {
                moves |= self.drive(job);
            }
            self.act();
            if self.is_closed && self.connection.as_mut().is_some_and(Connection::abandon) {
                self.end();
                moves = true;
            }
        }
    }

    /// Cuts the connection off, as far as nothing of it runs any more; true when it has ended.
    pub fn cut(&mut self) -> bool {
        self.is_closed = true;
        self.run();
        self.connection.is_none()
    }

    fn end(&mut self) {
        (self.connection, self.admission) = (None, None);
        self.jobs.clear();
    }

    /// True when somebody was let in, or not.
    fn admit(&mut self) -> bool {
        let Some(Poll::Ready(session)) = self.admission.as_mut().map(now) else { return false };
        self.admission = None;
        if let Some(connection) = &mut self.connection {
            connection.admitted(session);
        }
        self.act();
        true
    }

    /// True when the job ended.
    fn drive(&mut self, mut job: Job) -> bool {
        match (now(&mut job), &mut self.connection) {
            (Poll::Ready(finished), Some(connection)) => {
                connection.finished(finished);
                true
            }
            (Poll::Ready(_), None) => true,
            (Poll::Pending, _) => {
                self.jobs.push(job);
                false
            }
        }
    }

    fn act(&mut self) {
        while let Some(action) = self.connection.as_mut().and_then(Connection::next_action) {
            match action {
                Action::Send(pdu) => {
                    if let Some(connection) = &mut self.connection {
                        connection.sent(pdu.body.len() as u64);
                    }
                    self.sent.push(pdu);
                }
                Action::Run(job) => {
                    self.drive(job);
                }
                Action::Admit(request) => {
                    let (targets, mail) = (self.targets.clone(), self.mail.clone());
                    self.admission = Some(Box::pin(async move { targets.admit(&request, mail).await }));
                    self.admit();
                }
                Action::Negotiated(parameters) => {
                    self.digests = (parameters.header_digest, parameters.data_digest);
                    self.framer.negotiated(parameters.header_digest, parameters.data_digest, RECEIVE_BYTES_MAX as usize);
                }
                Action::Close(_) => self.is_closed = true,
            }
        }
    }
}

/// Bits that the descriptor block of each command may have, byte by byte; operation codes and service actions as they are.
pub fn usages() -> impl Iterator<Item = &'static [u8]> {
    TABLE.iter().map(|entry| entry.usage)
}

/// True for the operation codes whose second byte begins with a service action.
pub fn has_action(opcode: u8) -> bool {
    TABLE.iter().any(|entry| entry.opcode() == opcode && entry.has_action)
}
