//! Waiting until others are through: a gate opens when every token of it is gone.

use tokio::sync::mpsc;

/// Permission to work on; dropped when that is over.
#[derive(Clone, Debug)]
pub(crate) struct Token {
    _held: mpsc::Sender<()>,
}

/// Waiting end.
#[derive(Debug)]
pub(crate) struct Gate(mpsc::Receiver<()>);

/// Makes a gate and its first token.
pub(crate) fn gate() -> (Token, Gate) {
    let (sender, receiver) = mpsc::channel(1);
    (Token { _held: sender }, Gate(receiver))
}

impl Gate {
    /// Waits until no token is left.
    pub(crate) async fn opened(mut self) {
        while self.0.recv().await.is_some() {}
    }
}
