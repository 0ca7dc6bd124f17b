//! Words for what goes wrong with the connection to the daemon: why, in words that are not a library's, and what to do.

use control_api::{StateDir, os_error};
use rustix::fs::{Access, access};
use std::error::Error;
use std::io;

/// Reason of an end without an answer.
const CLOSED: &str = "it closed the connection before it answered: it is ending, or too many connections are open";

/// Words for an error of the connection.
pub(crate) fn worded(error: &hyper::Error) -> String {
    if error.is_canceled() || error.is_closed() || error.is_incomplete_message() {
        return CLOSED.to_string();
    }
    match error.source().and_then(|source| source.downcast_ref::<io::Error>()) {
        Some(cause) => worded_end(cause),
        None => error.to_string(),
    }
}

/// Words for an error of the system on the connection.
fn worded_end(error: &io::Error) -> String {
    use std::io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, NotConnected, UnexpectedEof};
    let is_closed = matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | NotConnected | UnexpectedEof);
    if is_closed { CLOSED.to_string() } else { os_error(error) }
}

/// Advice for whoever talks to the daemon of a state directory: its log is named to those who can read it.
pub(crate) fn advice(state: &StateDir) -> String {
    let log = state.log();
    match access(&log, Access::READ_OK) {
        Ok(()) => format!("see {}", log.display()),
        Err(_) => "try again in a moment; if that does not help, whoever runs the daemon finds more in its log".to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::Full;
    use hyper::body::Bytes;
    use hyper_util::rt::TokioIo;

    /// Error of a request over a connection that the other end has closed.
    fn error_of_an_end() -> hyper::Error {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (own, other) = tokio::net::UnixStream::pair().unwrap();
            let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(own)).await.unwrap();
            drop(other);
            let driver = tokio::spawn(connection);
            let sent = sender.send_request(hyper::Request::new(Full::new(Bytes::new()))).await;
            // Whichever of both tells it.
            match (sent, driver.await.unwrap()) {
                (Err(error), _) | (Ok(_), Err(error)) => error,
                (Ok(_), Ok(())) => panic!("an answer"),
            }
        })
    }

    /// Who is turned away would read words of a library (`operation was canceled`), and not what to do.
    #[test]
    fn a_closed_connection_is_told_in_words() {
        let said = worded(&error_of_an_end());
        assert!(said.starts_with("it closed the connection before it answered"), "{said}");
        for kind in [io::ErrorKind::BrokenPipe, io::ErrorKind::ConnectionReset] {
            assert_eq!(worded_end(&kind.into()), CLOSED);
        }
        assert_eq!(worded_end(&io::Error::from_raw_os_error(28)), "No space left on device");
    }

    /// Ordinary users would be sent to a log that they cannot read.
    #[test]
    fn a_log_is_named_to_those_who_can_read_it() {
        let folder = std::env::temp_dir().join(format!("zirconia-closed-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let state = StateDir::at(&folder);
        assert!(advice(&state).starts_with("try again in a moment"));
        std::fs::write(state.log(), "").unwrap();
        let named = advice(&state);
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(named, format!("see {}", state.log().display()));
    }
}
