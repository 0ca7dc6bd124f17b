//! CHAP (RFC 1994, RFC 7143 section 12.1.3): challenges that are fresh, answers that are compared in constant time, no reflection.

use crate::access::{Account, Chap};
use crate::keys::{Keys, binary, hex, number};
use exec::Mutex;
use md5::Md5;
use sha2::{Digest, Sha256};
use std::collections::HashSet;
use std::sync::Arc;

/// Length in bytes of our challenges.
const CHALLENGE_BYTES: usize = 32;
/// Longest challenge in bytes that is accepted.
const CHALLENGE_BYTES_MAX: usize = 1024;

/// Challenges that wait for their answers, of all connections: none of them is answered for anybody who sends it back.
pub type Challenges = Arc<Mutex<HashSet<Vec<u8>>>>;

/// Hash of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Algorithm {
    Md5,
    Sha256,
}

impl Algorithm {
    /// Finds the first of the numbers in `offers` that is known (IANA: PPP authentication algorithms).
    fn choose(offers: &str) -> Option<Algorithm> {
        offers.split(',').find_map(|offer| match offer {
            "5" => Some(Algorithm::Md5),
            "7" => Some(Algorithm::Sha256),
            _ => None,
        })
    }

    fn number(self) -> &'static str {
        match self {
            Algorithm::Md5 => "5",
            Algorithm::Sha256 => "7",
        }
    }

    fn response(self, id: u8, secret: &[u8], challenge: &[u8]) -> Vec<u8> {
        match self {
            Algorithm::Md5 => Md5::new().chain_update([id]).chain_update(secret).chain_update(challenge).finalize().to_vec(),
            Algorithm::Sha256 => Sha256::new().chain_update([id]).chain_update(secret).chain_update(challenge).finalize().to_vec(),
        }
    }
}

/// True when both are the same; takes as long when they differ early as when they differ late.
fn is_same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && std::hint::black_box(a.iter().zip(b).fold(0, |different, (a, b)| different | (a ^ b))) == 0
}

/// A challenge that was sent and not answered yet.
struct Asked {
    algorithm: Algorithm,
    id: u8,
    challenge: Vec<u8>,
    outstanding: Challenges,
}

impl Drop for Asked {
    fn drop(&mut self) {
        self.outstanding.lock().remove(&self.challenge);
    }
}

/// One exchange: the initiator names algorithms, gets a challenge, and answers it.
pub(crate) struct Exchange {
    chap: Chap,
    asked: Option<Asked>,
}

impl std::fmt::Debug for Exchange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Exchange").field("initiator", &self.chap.initiator).finish_non_exhaustive()
    }
}

/// Outcome of a step that was right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A challenge is under way.
    Challenged,
    /// The initiator has proved to know the secret.
    Proved,
    /// The text had nothing of CHAP.
    Nothing,
}

/// An exchange that failed; the peer is told no more than that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failed(pub(crate) &'static str);

impl Exchange {
    pub(crate) fn new(chap: Chap) -> Exchange {
        Exchange { chap, asked: None }
    }

    /// Takes what the initiator said, and appends what it gets.
    pub(crate) fn step(
        &mut self,
        said: &Keys,
        answers: &mut Keys,
        random: fn(&mut [u8]),
        outstanding: &Challenges,
    ) -> Result<Step, Failed> {
        if let Some(offers) = said.get("CHAP_A") {
            if self.asked.is_some() {
                return Err(Failed("algorithms were named twice"));
            }
            let algorithm = Algorithm::choose(offers).ok_or(Failed("no common algorithm"))?;
            self.ask(algorithm, answers, random, outstanding);
            return Ok(Step::Challenged);
        }
        if said.get("CHAP_N").is_none() && said.get("CHAP_R").is_none() {
            return Ok(Step::Nothing);
        }
        let asked = self.asked.take().ok_or(Failed("an answer without a challenge"))?;
        self.verify(said, &asked)?;
        if said.get("CHAP_C").is_some() || said.get("CHAP_I").is_some() {
            self.prove(said, &asked, answers)?;
        }
        Ok(Step::Proved)
    }

    fn ask(&mut self, algorithm: Algorithm, answers: &mut Keys, random: fn(&mut [u8]), outstanding: &Challenges) {
        let mut bytes = vec![0; CHALLENGE_BYTES + 1];
        random(&mut bytes);
        let id = bytes.pop().unwrap_or_default();
        answers.push("CHAP_A", algorithm.number());
        answers.push("CHAP_I", id.to_string());
        answers.push("CHAP_C", hex(&bytes));
        outstanding.lock().insert(bytes.clone());
        self.asked = Some(Asked { algorithm, id, challenge: bytes, outstanding: outstanding.clone() });
    }

    fn verify(&self, said: &Keys, asked: &Asked) -> Result<(), Failed> {
        let (Some(name), Some(response)) = (said.get("CHAP_N"), said.get("CHAP_R")) else { return Err(Failed("half an answer")) };
        let account: &Account = &self.chap.initiator;
        let expected = asked.algorithm.response(asked.id, &account.secret, &asked.challenge);
        let response = binary(response, expected.len()).ok_or(Failed("an answer that is no binary value of the right length"))?;
        // Both are compared whatever the other says: a wrong name takes as long as a wrong secret.
        let is_known = is_same(name.as_bytes(), account.name.as_bytes());
        if is_same(&response, &expected) & is_known { Ok(()) } else { Err(Failed("a wrong name or secret")) }
    }

    fn prove(&self, said: &Keys, asked: &Asked, answers: &mut Keys) -> Result<(), Failed> {
        let (Some(id), Some(challenge)) = (said.get("CHAP_I"), said.get("CHAP_C")) else { return Err(Failed("half a challenge")) };
        let account = self.chap.target.as_ref().ok_or(Failed("the target has no secret to prove"))?;
        if is_same(&account.secret, &self.chap.initiator.secret) {
            return Err(Failed("both ends have the same secret"));
        }
        let id = number(id).and_then(|id| u8::try_from(id).ok()).ok_or(Failed("an identifier that is no byte"))?;
        let challenge = binary(challenge, CHALLENGE_BYTES_MAX).ok_or(Failed("a challenge that is no binary value"))?;
        if asked.outstanding.lock().contains(&challenge) {
            return Err(Failed("a challenge of ours was sent back"));
        }
        answers.push("CHAP_N", account.name.clone());
        answers.push("CHAP_R", hex(&asked.algorithm.response(id, &account.secret, &challenge)));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of RFC 7143's algorithm: H(id, secret, challenge). If this fails nobody with a secret can log in.
    #[test]
    fn responses_are_the_hash_of_id_secret_and_challenge() {
        let md5 = Algorithm::Md5.response(1, b"secret", b"challenge");
        assert_eq!(md5, Md5::digest(b"\x01secretchallenge").to_vec());
        assert_eq!(Algorithm::Sha256.response(1, b"secret", b"challenge"), Sha256::digest(b"\x01secretchallenge").to_vec());
    }

    #[test]
    fn algorithms_are_whole_numbers() {
        assert_eq!(Algorithm::choose("55,7,5"), Some(Algorithm::Sha256));
        assert_eq!(Algorithm::choose("55"), None);
        assert_eq!(Algorithm::choose(""), None);
    }

    #[test]
    fn comparison_needs_equal_lengths() {
        assert!(is_same(b"ab", b"ab") && !is_same(b"ab", b"abc") && !is_same(b"", b"a"));
    }
}
