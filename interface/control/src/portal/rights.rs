//! Rights of initiators to targets, and their secrets: `iscsi.json` in the state directory. Who is not in it may nothing, and sees nothing.

use super::names;
use crate::failure::{because, believable};
use control_api::{ChapSecret, ErrorKind, Failure, IscsiRight};
use exec::{Mutex, RwLock};
use iscsi::{Access, Account, Chap, Grant};
use serde::{Deserialize, Serialize};
use service::trust;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;

/// Bytes of a secret: at least those of RFC 7143, section 12.1.3, and at most those that fit into what initiators are configured with.
const SECRET_BYTES: std::ops::RangeInclusive<usize> = 12..=255;

/// Right of one initiator to one target.
#[derive(Clone, Default, Deserialize, Serialize)]
struct Right {
    #[serde(default)]
    read_only: bool,
    /// Secret of the initiator, if it has to prove one.
    #[serde(default)]
    secret: Option<ChapSecret>,
    /// Secret of the target.
    #[serde(default)]
    mutual: Option<ChapSecret>,
}

impl Right {
    /// Grant to `initiator` of `target`; each has its name in CHAP too.
    fn grant(&self, initiator: &str, target: &str) -> Grant {
        let account = |name: &str, secret: &ChapSecret| Account { name: name.to_string(), secret: secret.0.clone().into_bytes() };
        let chap = self.secret.as_ref().map(|secret| Chap {
            initiator: account(initiator, secret),
            target: self.mutual.as_ref().map(|secret| account(target, secret)),
        });
        Grant { chap, is_read_only: self.read_only }
    }
}

/// Rights by targets and initiators.
type Table = BTreeMap<String, BTreeMap<String, Right>>;

/// Rights of all initiators.
pub(super) struct Rights {
    path: PathBuf,
    table: RwLock<Table>,
    /// Reason why what is in the file does not count, and is not replaced either.
    problem: Option<String>,
    /// Lock for one writer of the file at a time.
    writing: Mutex<()>,
}

/// Refuses a name that no initiator can have.
fn check_initiator(initiator: &str, what: &str) -> Result<(), Failure> {
    if names::is_name(initiator) {
        return Ok(());
    }
    let why = format!("'{initiator}' is no name of an initiator: those begin with iqn., eui. or naa., in small letters");
    Err(because(ErrorKind::Invalid, what, why))
}

fn check_secret(secret: &ChapSecret, what: &str) -> Result<(), Failure> {
    let (least, most) = (SECRET_BYTES.start(), SECRET_BYTES.end());
    if SECRET_BYTES.contains(&secret.0.len()) && !secret.0.contains(['\0', '\n']) {
        return Ok(());
    }
    Err(because(ErrorKind::Invalid, what, format!("a secret is one line of {least} to {most} bytes")))
}

impl Rights {
    /// Reads the rights that were given before. A file that makes no sense, or that others could have written, is said, and gives none.
    pub(super) fn new(path: PathBuf) -> Rights {
        let read = trust::read(&path).map_err(|why| believable(&why)).and_then(|text| match text {
            Some(text) => serde_json::from_slice(&text).map_err(|error| format!("{}: {error}", path.display())),
            None => Ok(Table::new()),
        });
        let (table, problem) = match read {
            Ok(table) => (table, None),
            Err(why) => {
                tracing::warn!("{why}; no initiator has a right");
                (Table::new(), Some(why))
            }
        };
        Rights { path, table: RwLock::new(table), problem, writing: Mutex::default() }
    }

    /// Lets an initiator use a target; secrets that it had stay.
    pub(super) fn allow(&self, target: &str, initiator: &str, read_only: bool) -> Result<(), Failure> {
        let what = format!("cannot allow '{initiator}'");
        if !names::is_name(target) {
            return Err(because(ErrorKind::Invalid, what, format!("'{target}' is too long for the name of a target")));
        }
        check_initiator(initiator, &what)?;
        self.change(&what, |table| {
            table.entry(target.to_string()).or_default().entry(initiator.to_string()).or_default().read_only = read_only;
            Ok(())
        })
    }

    /// Takes the right to a target, and the secrets, from an initiator.
    pub(super) fn deny(&self, target: &str, initiator: &str) -> Result<(), Failure> {
        let what = format!("cannot deny '{initiator}'");
        self.change(&what, |table| {
            let rights = table.get_mut(target);
            let Some((rights, _)) = rights.and_then(|rights| rights.remove(initiator).map(|right| (rights, right))) else {
                return Err(because(ErrorKind::NotFound, what.clone(), format!("it has no right to {target}")));
            };
            if rights.is_empty() {
                table.remove(target);
            }
            Ok(())
        })
    }

    /// Has an initiator prove a secret from now on, and the target another one if there is one.
    pub(super) fn set_chap(&self, target: &str, initiator: &str, secret: &ChapSecret, mutual: Option<&ChapSecret>) -> Result<(), Failure> {
        let what = format!("cannot set the secret of '{initiator}'");
        [Some(secret), mutual].into_iter().flatten().try_for_each(|secret| check_secret(secret, &what))?;
        if mutual == Some(secret) {
            return Err(because(ErrorKind::Invalid, what, "initiator and target have the same secret: who knows one could play both"));
        }
        self.change(&what, |table| {
            let Some(right) = table.get_mut(target).and_then(|rights| rights.get_mut(initiator)) else {
                return Err(because(ErrorKind::NotFound, what.clone(), format!("it has no right to {target}"))
                    .advise(format!("'zirconia target allow {target} {initiator}' gives it one")));
            };
            (right.secret, right.mutual) = (Some(secret.clone()), mutual.cloned());
            Ok(())
        })
    }

    /// Targets that somebody has a right to, with the rights.
    pub(super) fn list(&self) -> BTreeMap<String, Vec<IscsiRight>> {
        let report = |(initiator, right): (&String, &Right)| IscsiRight {
            initiator: initiator.clone(),
            read_only: right.read_only,
            chap: right.secret.is_some(),
            mutual: right.mutual.is_some(),
        };
        self.table.read().iter().map(|(target, rights)| (target.clone(), rights.iter().map(report).collect())).collect()
    }

    /// Changes the rights: on disk first, so that nobody has one that is gone after a crash.
    fn change(&self, what: &str, change: impl FnOnce(&mut Table) -> Result<(), Failure>) -> Result<(), Failure> {
        if let Some(problem) = &self.problem {
            let advice = format!("remove or mend {}, and start the daemon again", self.path.display());
            return Err(because(ErrorKind::Invalid, what, problem).advise(advice));
        }
        let _turn = self.writing.lock();
        let mut next = self.table.read().clone();
        change(&mut next)?;
        let text = serde_json::to_vec_pretty(&next).unwrap_or_default();
        let failed = |error: std::io::Error| because(ErrorKind::Io, what, format!("{}: {error}", self.path.display()));
        trust::replace(&self.path, &text).map_err(failed)?;
        *self.table.write() = next;
        Ok(())
    }
}

impl Access for Rights {
    fn target(&self, initiator: &str, _peer: IpAddr, target: &str) -> Option<Grant> {
        let table = self.table.read();
        table.get(target)?.get(initiator).map(|right| right.grant(initiator, target))
    }

    /// Asks for a secret when every right of the initiator needs one: that of its first target.
    fn discovery(&self, initiator: &str, _peer: IpAddr) -> Option<Grant> {
        let table = self.table.read();
        let own: Vec<(&String, &Right)> =
            table.iter().filter_map(|(target, rights)| rights.get(initiator).map(|right| (target, right))).collect();
        let (target, first) = own.first()?;
        let is_open = own.iter().any(|(_, right)| right.secret.is_none());
        Some(if is_open { Grant::default() } else { first.grant(initiator, target) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;
    use std::os::unix::fs::PermissionsExt;

    const TARGET: &str = "iqn.2026-01.zirconia:tank:vol";
    const OTHER: &str = "iqn.2026-01.zirconia:tank:other";
    const A: &str = "iqn.2026-11.example:a";
    const PEER: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn secret(text: &str) -> ChapSecret {
        ChapSecret(text.to_string())
    }

    fn place(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("zirconia-rights-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).expect("a temporary directory");
        folder.join("iscsi.json")
    }

    /// If this fails, somebody on the network reads or writes a disk that nobody gave them.
    #[test]
    fn nobody_may_anything_that_was_not_allowed() {
        let path = place("allow");
        let rights = Rights::new(path.clone());
        assert_eq!((rights.target(A, PEER, TARGET), rights.discovery(A, PEER)), (None, None));
        rights.allow(TARGET, A, true).expect("allowed");
        assert_eq!(rights.target(A, PEER, TARGET), Some(Grant { chap: None, is_read_only: true }));
        assert_eq!((rights.target(A, PEER, OTHER), rights.target("iqn.2026-11.example:b", PEER, TARGET)), (None, None));
        assert_eq!(rights.discovery(A, PEER), Some(Grant::default()));
        assert_eq!(rights.deny(OTHER, A).map_err(|failure| failure.kind), Err(ErrorKind::NotFound));
        assert_eq!(rights.allow(TARGET, "somebody", false).map_err(|failure| failure.kind), Err(ErrorKind::Invalid));
        rights.deny(TARGET, A).expect("denied");
        assert_eq!((rights.target(A, PEER, TARGET), rights.discovery(A, PEER)), (None, None));
        assert!(rights.list().is_empty());
    }

    /// If this fails, secrets are lost with the daemon, can be read by others, or one that is wrong is taken.
    #[test]
    fn secrets_are_kept_and_shown_to_nobody() {
        let path = place("chap");
        let (own, theirs) = (secret("initiator-secret"), secret("target-secret-1"));
        let rights = Rights::new(path.clone());
        let kind = |outcome: Result<(), Failure>| outcome.map_err(|failure| failure.kind);
        assert_eq!(kind(rights.set_chap(TARGET, A, &own, None)), Err(ErrorKind::NotFound));
        rights.allow(TARGET, A, false).expect("allowed");
        for wrong in ["short", "two lines of\nsecrets", ""] {
            assert_eq!(kind(rights.set_chap(TARGET, A, &secret(wrong), None)), Err(ErrorKind::Invalid), "{wrong:?}");
        }
        assert_eq!(kind(rights.set_chap(TARGET, A, &own, Some(&own))), Err(ErrorKind::Invalid));
        rights.set_chap(TARGET, A, &own, Some(&theirs)).expect("set");
        assert_eq!(std::fs::metadata(&path).expect("a file").permissions().mode() & 0o777, 0o600);
        let again = Rights::new(path.clone());
        let account = |name: &str, secret: &ChapSecret| Account { name: name.into(), secret: secret.0.clone().into_bytes() };
        let chap = Chap { initiator: account(A, &own), target: Some(account(TARGET, &theirs)) };
        assert_eq!(again.target(A, PEER, TARGET).and_then(|grant| grant.chap), Some(chap.clone()));
        assert_eq!(again.discovery(A, PEER).and_then(|grant| grant.chap), Some(chap), "the list is for who proves the secret");
        again.allow(TARGET, A, true).expect("allowed");
        assert!(again.target(A, PEER, TARGET).is_some_and(|grant| grant.chap.is_some() && grant.is_read_only), "the secret stays");
        assert!(!format!("{own:?}").contains("initiator-secret"));
    }

    /// If this fails, somebody who can write the file gives themselves rights, or a typing error in it deletes all others.
    #[test]
    fn a_file_that_is_not_believed_gives_no_right_and_stays() {
        let path = place("distrust");
        let text = format!("{{\"{TARGET}\": {{\"{A}\": {{}}}}}}");
        std::fs::write(&path, &text).expect("a file");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("its owner's");
        assert!(Rights::new(path.clone()).target(A, PEER, TARGET).is_some());
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).expect("everybody's");
        let rights = Rights::new(path.clone());
        assert_eq!(rights.target(A, PEER, TARGET), None);
        assert!(rights.allow(OTHER, A, false).is_err());
        assert_eq!(std::fs::read_to_string(&path).expect("a file"), text);
    }
}
