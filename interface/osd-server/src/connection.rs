//! One connection: frames come in on this thread, and are done here; what there is to say goes out on another.

use crate::context::{Context, Seat};
use crate::outbox::Outbox;
use crate::session::Session;
use exec::OperationHandle;
use osd_client::{Header, Inlet, Malformed, REFUSED, Request, frame};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

/// Reason why no more frames are taken.
enum End {
    /// The client is gone.
    Gone,
    /// The client does what no client does.
    Refused(Malformed),
}

impl From<io::Error> for End {
    fn from(_: io::Error) -> End {
        End::Gone
    }
}

impl From<Malformed> for End {
    fn from(why: Malformed) -> End {
        End::Refused(why)
    }
}

/// Next request, with its header and the file that came with it.
fn next(inlet: &mut Inlet) -> Result<(Header, Request, Option<OwnedFd>), End> {
    let header = Header::decode(&inlet.header()?)?;
    let (body, mut files) = inlet.body(&header)?;
    let request = Request::decode(header.kind, &body)?;
    let most = usize::from(matches!(request, Request::Share { .. }));
    if files.len() > most {
        return Err(End::Refused(Malformed::Value));
    }
    Ok((header, request, files.pop()))
}

/// Serves a connection to its end.
pub(crate) fn serve(context: &Arc<Context>, seat: &Arc<Seat>, stream: UnixStream) -> io::Result<()> {
    let (outbox, outlet) = (Arc::<Outbox>::default(), stream.try_clone()?);
    let own = outbox.clone();
    let sender = context.exec.spawn_operation("z-osd-replies", Box::new(move || own.send_all(&outlet)));
    let (mut inlet, mut session) = (Inlet::new(stream), Session::new(context, seat.clone(), &outbox));
    let end = loop {
        if !outbox.wait_for_room() {
            break End::Gone;
        }
        match next(&mut inlet) {
            Ok((header, request, file)) => {
                let reply = session.perform(header.tag, &request, file);
                outbox.reply(header.kind, header.tag, &reply);
            }
            Err(end) => break end,
        }
    };
    if let End::Refused(why) = end {
        tracing::info!("a client of an object storage device is refused: {why}");
        if let Ok(frame) = frame(REFUSED, 0, &0u32.to_le_bytes()) {
            outbox.send(frame);
        }
    }
    drop(session);
    outbox.close();
    OperationHandle::join(sender);
    Ok(())
}
