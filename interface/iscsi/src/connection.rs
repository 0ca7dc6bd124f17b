//! One connection as a state machine: PDUs and results in, [`Action`]s out. It does no I/O and knows no clock but what it is told.

use crate::full::{Action, Finished, Full};
use crate::login::{Login, LoginStep, Request, status};
use crate::pdu::{Outgoing, Pdu};
use crate::targets::{Mail, Session, Targets};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

enum Phase {
    Login(Box<Login>),
    /// Everything is agreed upon; the session is asked for.
    Admitting(Outgoing, Box<Request>, u32),
    Full(Box<Full>),
    Closed,
}

/// A connection of an initiator.
pub struct Connection {
    targets: Arc<Targets>,
    peer: SocketAddr,
    local: SocketAddr,
    phase: Phase,
    actions: VecDeque<Action>,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("peer", &self.peer).finish_non_exhaustive()
    }
}

impl Connection {
    /// A connection from `peer` that came to the address `local`.
    pub fn new(targets: Arc<Targets>, peer: SocketAddr, local: SocketAddr) -> Connection {
        let login = Login::new(targets.around_login(peer.ip()), 1);
        Connection { targets, peer, local, phase: Phase::Login(Box::new(login)), actions: VecDeque::new() }
    }

    /// True in full feature phase.
    pub fn is_full_feature(&self) -> bool {
        matches!(self.phase, Phase::Full(_))
    }

    /// True while no command is under way.
    pub fn is_idle(&self) -> bool {
        match &self.phase {
            Phase::Full(full) => full.is_idle(),
            _ => true,
        }
    }

    /// The next thing to do.
    pub fn next_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Takes a PDU of the initiator.
    pub fn receive(&mut self, pdu: Pdu) {
        match &mut self.phase {
            Phase::Login(login) => {
                let step = login.receive(&pdu);
                let next_status = login.status_number();
                self.logged(step, next_status);
            }
            Phase::Full(full) => {
                if let Err(broken) = full.receive(pdu, &mut self.actions) {
                    self.actions.push_back(Action::Close(broken.0));
                }
            }
            Phase::Admitting(..) => self.actions.push_back(Action::Close("it does not wait for the end of its login")),
            Phase::Closed => {}
        }
    }

    fn logged(&mut self, step: LoginStep, next_status: u32) {
        match step {
            LoginStep::Answer(answer) => self.actions.push_back(Action::Send(answer)),
            LoginStep::Refuse(answer, why) => {
                self.actions.extend([Action::Send(answer), Action::Close(why)]);
                self.phase = Phase::Closed;
            }
            LoginStep::Admit(answer, request) => {
                self.actions.push_back(Action::Admit(request.clone()));
                self.phase = Phase::Admitting(answer, request, next_status);
            }
        }
    }

    /// Takes the answer to [`Action::Admit`]: a session, or none when its target, or its right to it, has gone.
    pub(crate) fn admitted(&mut self, session: Option<Arc<Session>>) {
        let Phase::Admitting(answer, request, next_status) = std::mem::replace(&mut self.phase, Phase::Closed) else {
            return session.iter().for_each(Targets::forget);
        };
        let Some(session) = session else {
            let refusal = Outgoing { body: crate::Body::default(), ..answer }.with(crate::Body::default());
            let refusal = refusal.byte(1, 0).byte(36, (status::NOT_FOUND >> 8) as u8).byte(37, status::NOT_FOUND as u8);
            return self.actions.extend([Action::Send(refusal), Action::Close("its target has gone, or its right")]);
        };
        let [high, low] = session.handle().to_be_bytes();
        let full = Full::new(self.targets.clone(), session, (self.peer.ip(), self.local), &request, next_status);
        // The numbers of commands are the login's, which knows no window.
        let answer = full.window(answer.byte(14, high).byte(15, low));
        self.actions.extend([Action::Send(answer), Action::Negotiated(request.parameters.clone())]);
        self.phase = Phase::Full(Box::new(full));
    }

    /// Takes the result of an [`Action::Run`].
    pub fn finished(&mut self, finished: Finished) {
        if let Phase::Full(full) = &mut self.phase {
            full.finished(finished, &mut self.actions);
        }
    }

    /// Notes that `bytes` of data segments were sent and their buffers are free.
    pub fn sent(&mut self, bytes: u64) {
        if let Phase::Full(full) = &mut self.phase {
            full.sent(bytes, &mut self.actions);
        }
    }

    /// Takes words of others.
    pub(crate) fn mail(&mut self, mail: Mail) {
        if let Phase::Full(full) = &mut self.phase {
            full.mail(mail, &mut self.actions);
        }
    }

    /// Sends a ping, in full feature phase.
    pub fn ping(&mut self) {
        if let Phase::Full(full) = &mut self.phase {
            full.ping(&mut self.actions);
        }
    }

    /// Asks the initiator to log out within `seconds`, in full feature phase.
    pub fn ask_logout(&mut self, seconds: u16) {
        if let Phase::Full(full) = &mut self.phase {
            full.ask_logout(seconds, &mut self.actions);
        }
    }

    /// Tags of the tasks, and bytes of data and text that are kept for them.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn census(&self) -> (Vec<u32>, usize) {
        match &self.phase {
            Phase::Full(full) => full.census(),
            _ => (Vec::new(), 0),
        }
    }

    /// Gives the session up. True when none of its tasks runs any more; before that, results have still to be given to
    /// [`Connection::finished`], and this to be asked again.
    pub fn abandon(&mut self) -> bool {
        match &mut self.phase {
            Phase::Full(full) => full.abandon(),
            _ => true,
        }
    }
}
