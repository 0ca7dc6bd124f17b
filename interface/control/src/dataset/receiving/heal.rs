//! `zfs receive -c`: damaged contents of a snapshot that is there are healed from a stream of it (OpenZFS: `zfs_receive_one` with `heal`).

use super::refusal::Refused;
use super::{RECEIVE, Receiving, names};
use crate::dataset::names::filesystem_of;
use crate::failure::because;
use crate::pool::streams::Way;
use control_api::{ErrorKind, Failure};
use receive::{Healed, Healer, ReceiveError};
use stream::Begin;

/// Words for what cannot be done.
const HEAL: &str = "cannot receive corrective stream";

/// Heals the snapshot that a substream with this head is of.
pub(super) fn heal(run: &mut Receiving<'_>, begin: &Begin) -> Result<(), Failure> {
    let bad_name = || because(ErrorKind::Invalid, RECEIVE, "invalid stream (bad snapshot name)");
    let sent = begin.toname.to_str().ok_or_else(bad_name)?;
    let full = names::destination(run.request, sent, filesystem_of(sent))?;
    let dataset = filesystem_of(&full);
    let pool = run.datasets.pools.pool_of(dataset, "open")?;
    // A name means the same dataset until its snapshot is held.
    let alone = run.asker.map(|_| pool.delegated());
    run.asker.map_or(Ok(()), |asker| asker.about(HEAL).check(dataset, &["receive"]))?;
    let cut = run.cut.clone();
    let begins = || pool.streams.begin(Way::Received, full.clone(), cut);
    run.under_way.get_or_insert_with(begins).now(full.clone());
    let verb = if run.request.dry_run { "would receive" } else { "receiving" };
    run.say(format!("{verb} corrective stream of {} into {full}", begin.toname));
    if run.request.dry_run {
        drop(alone);
        return run.skip();
    }
    let refused =
        |error: ReceiveError| Refused { what: HEAL, dataset, snapshot: &full, is_new: false, has_other: false, kept: None }.by(&error);
    let healer = Healer::begin(pool.dsl(), begin, &full).map_err(&refused)?;
    drop(alone);
    let healed = healer.run(&mut run.reader).map_err(&refused)?;
    run.say(format!("healed {} blocks, {} bytes", healed.blocks, healed.bytes));
    whole(&healed)
}

/// Refuses to heal from a package.
pub(super) fn refuse_package() -> Failure {
    because(ErrorKind::Invalid, HEAL, "a package of several snapshots heals none").advise("send the snapshot by itself")
}

/// Fails unless all damage that was met is healed.
fn whole(healed: &Healed) -> Result<(), Failure> {
    let Healed { blocks, lost, unwritten, unreachable, .. } = *healed;
    if unwritten > 0 {
        let why = "some of what was healed could not be written where it is.";
        let lost = if lost + unreachable > 0 { format!("; {} more cannot be healed", lost + unreachable) } else { String::new() };
        let advice = format!(
            "{blocks} damaged blocks were healed, {unwritten} could not be written{lost}; replace the device, or write the files anew"
        );
        return Err(because(ErrorKind::Damaged, HEAL, why).advise(advice));
    }
    if lost > 0 {
        let why = "corrective receive was not able to reconstruct the data needed for healing.";
        let advice = format!(
            "{blocks} damaged blocks were healed, {lost} were not: the stream has them in other bytes; 'zfs send -c -L' sends blocks as they are stored"
        );
        return Err(because(ErrorKind::Damaged, HEAL, why).advise(advice));
    }
    if unreachable > 0 {
        let why = "metadata that leads to blocks of the stream is damaged, which is not healed.";
        return Err(because(ErrorKind::Damaged, HEAL, why)
            .advise(format!("{blocks} damaged blocks were healed, {unreachable} cannot be looked at")));
    }
    Ok(())
}
