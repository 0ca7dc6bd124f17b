//! The handshake's cryptography: `Noise_NNpsk0_25519_AESGCM_SHA256` of the Noise Protocol Framework, revision 34 (docs/adr/0028).
//!
//! ```text
//! host   ── psk, e ──►  target        (in Hello)      opens only with the secret
//!        ◄── e, ee ──                 (in Challenge)  opens only with the secret, and is an answer to just this Hello
//! then two keys, one for each direction: the host's first frame shows that its Hello was not somebody's who had heard it once
//! ```
//! The keys come from the secret and from numbers that both sides throw away, so whoever learns the secret later reads nothing that he recorded before.

use crate::cipher::{Cipher, NoiseError, TAG_BYTES};
use crate::handshake::{Challenge, Hello, KEY_BYTES, NOISE_BYTES, VERSION};
use crate::seal::{Opener, Sealer};
use crate::secret::{Secret, hmac_sha256};
use aws_lc_rs::agreement::{PrivateKey, UnparsedPublicKey, X25519, agree};
use sha2::{Digest, Sha256};
use std::fmt;
use zeroize::Zeroizing;

/// Name of the protocol, which is just as long as a hash.
const NAME: Hash = *b"Noise_NNpsk0_25519_AESGCM_SHA256";
/// Both sides mean the same, or do not understand each other.
const PROLOGUE: &[u8] = b"zirconia-target 2";
type Hash = [u8; 32];

/// Both directions of a connection after its handshake.
#[derive(Debug)]
pub struct Channel {
    /// Way out.
    pub sealer: Sealer,
    /// Way in.
    pub opener: Opener,
}

/// State of both sides (Noise, section 5.2: `SymmetricState`).
struct Symmetric {
    chaining: Zeroizing<Hash>,
    hash: Hash,
    cipher: Option<Cipher>,
}

impl Symmetric {
    fn new(psk: &Hash, prologue: &[u8]) -> Result<Symmetric, NoiseError> {
        let mut own = Symmetric { chaining: Zeroizing::new(NAME), hash: NAME, cipher: None };
        own.mix_hash(prologue);
        // The token `psk`: MixKeyAndHash.
        let [chaining, hash, key] = own.derive(psk);
        own.chaining = chaining;
        own.mix_hash(&hash[..]);
        own.cipher = Some(Cipher::new(&key)?);
        Ok(own)
    }

    fn mix_hash(&mut self, data: &[u8]) {
        let mut hash = Sha256::new();
        hash.update(self.hash);
        hash.update(data);
        self.hash = hash.finalize().into();
    }

    /// HKDF (RFC 5869) without an info: three outputs, of which the last may be of no use.
    fn derive(&self, input: &[u8]) -> [Zeroizing<Hash>; 3] {
        let key = Zeroizing::new(hmac_sha256(&self.chaining[..], &[input]));
        let one = Zeroizing::new(hmac_sha256(&key[..], &[&[1][..]]));
        let two = Zeroizing::new(hmac_sha256(&key[..], &[&one[..], &[2][..]]));
        let three = Zeroizing::new(hmac_sha256(&key[..], &[&two[..], &[3][..]]));
        [one, two, three]
    }

    fn mix_key(&mut self, input: &[u8]) -> Result<(), NoiseError> {
        let [chaining, key, _] = self.derive(input);
        self.chaining = chaining;
        self.cipher = Some(Cipher::new(&key)?);
        Ok(())
    }

    /// The token `e`, with a secret in use.
    fn mix_public(&mut self, key: &[u8]) -> Result<(), NoiseError> {
        self.mix_hash(key);
        self.mix_key(key)
    }

    /// The token `ee`. A key of theirs that leads to nothing but zeros is none.
    fn mix_agreement(&mut self, own: &PrivateKey, theirs: &[u8]) -> Result<(), NoiseError> {
        agree(own, UnparsedPublicKey::new(&X25519, theirs), NoiseError::Secret, |shared| self.mix_key(shared))
    }

    /// `EncryptAndHash`: what is sealed, with its tag.
    fn encrypt(&mut self, plain: &[u8]) -> Result<Vec<u8>, NoiseError> {
        let mut sealed = plain.to_vec();
        let tag = self.cipher.as_mut().ok_or(NoiseError::System)?.seal(&self.hash, &mut sealed)?;
        sealed.extend_from_slice(&tag);
        self.mix_hash(&sealed);
        Ok(sealed)
    }

    /// `DecryptAndHash`.
    fn decrypt(&mut self, sealed: &[u8]) -> Result<Vec<u8>, NoiseError> {
        let (data, tag) = sealed.split_last_chunk::<TAG_BYTES>().ok_or(NoiseError::Secret)?;
        let mut plain = vec![0; data.len()];
        self.cipher.as_mut().ok_or(NoiseError::System)?.open(&self.hash, tag, data, &mut plain)?;
        self.mix_hash(sealed);
        Ok(plain)
    }

    /// `Split`: the host's key, then the target's.
    fn split(self) -> Result<(Cipher, Cipher), NoiseError> {
        let [host, target, _] = self.derive(&[]);
        Ok((Cipher::new(&host)?, Cipher::new(&target)?))
    }

    /// A message with a key of one's own, which is mixed in, with `theirs` if there is one; then the payload.
    fn write(&mut self, own: &PrivateKey, theirs: Option<&[u8]>, payload: &[u8]) -> Result<Vec<u8>, NoiseError> {
        let public = own.compute_public_key().map_err(|_| NoiseError::System)?;
        let mut message = public.as_ref().to_vec();
        self.mix_public(public.as_ref())?;
        if let Some(theirs) = theirs {
            self.mix_agreement(own, theirs)?;
        }
        message.extend(self.encrypt(payload)?);
        Ok(message)
    }

    /// Reads such a message: their key, and the payload.
    fn read<'a>(&mut self, own: Option<&PrivateKey>, message: &'a [u8]) -> Result<(&'a [u8], Vec<u8>), NoiseError> {
        let (theirs, sealed) = message.split_at_checked(KEY_BYTES).ok_or(NoiseError::Secret)?;
        self.mix_public(theirs)?;
        if let Some(own) = own {
            self.mix_agreement(own, theirs)?;
        }
        Ok((theirs, self.decrypt(sealed)?))
    }
}

fn fresh() -> Result<PrivateKey, NoiseError> {
    PrivateKey::generate(&X25519).map_err(|_| NoiseError::System)
}

fn fixed(message: Vec<u8>) -> Result<[u8; NOISE_BYTES], NoiseError> {
    message.try_into().map_err(|_| NoiseError::System)
}

/// A host that has said *Hello*.
pub struct Initiator {
    state: Symmetric,
    own: PrivateKey,
}

impl fmt::Debug for Initiator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Initiator")
    }
}

impl Initiator {
    /// Begins a handshake: the host's first words.
    ///
    /// # Errors
    /// `System`.
    pub fn new(secret: &Secret) -> Result<(Initiator, Hello), NoiseError> {
        let own = fresh()?;
        let mut state = Symmetric::new(&secret.psk(), PROLOGUE)?;
        let noise = fixed(state.write(&own, None, &[])?)?;
        Ok((Initiator { state, own }, Hello { version: VERSION, noise }))
    }

    /// Ends it with the target's answer.
    ///
    /// # Errors
    /// `Secret` when who answered does not have it, or answers somebody else's *Hello*; `System`.
    pub fn finish(mut self, challenge: &Challenge) -> Result<Channel, NoiseError> {
        self.state.read(Some(&self.own), &challenge.noise)?;
        let (host, target) = self.state.split()?;
        Ok(Channel { sealer: Sealer::new(host), opener: Opener::new(target) })
    }
}

/// Answers a host's first words, as a target does. Who said them may be somebody who heard them once: that he is not, his first frame shows.
///
/// # Errors
/// `Secret` when the host does not have it; `System`.
pub fn respond(secret: &Secret, hello: &Hello) -> Result<(Challenge, Channel), NoiseError> {
    let mut state = Symmetric::new(&secret.psk(), PROLOGUE)?;
    let (theirs, _) = state.read(None, &hello.noise)?;
    let noise = fixed(state.write(&fresh()?, Some(theirs), &[])?)?;
    let (host, target) = state.split()?;
    Ok((Challenge { noise }, Channel { sealer: Sealer::new(target), opener: Opener::new(host) }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
    }

    fn key(hex: &str) -> PrivateKey {
        PrivateKey::from_private_key(&X25519, &bytes(hex)).unwrap()
    }

    /// Published vectors of this protocol (cacophony, as in the tests of snow): what every other implementation of it says.
    #[test]
    fn the_handshake_is_the_standard_one() {
        let psk: Hash = bytes("54686973206973206d7920417573747269616e20706572737065637469766521").try_into().unwrap();
        let host = key("893e28b9dc6ca8d611ab664754b8ceb7bac5117349a4439a6b0569da977c464a");
        let target = key("bbdb4cdbd309f1a1f2e1456967fe288cadd6f712d65dc7b7793d5e63da6b375b");
        let first = "ca35def5ae56cec33dc2036731ab14896bc4c75dbb07a61f879f8e3afa4c79447c37a89fc17813788d30df2d59501d6066f5f8aecc3406bbd9829f2d24a531b1";
        let second = "95ebc60d2b1fa672c1f46a8aa265ef51bfe38e7ccb39ec5be34069f1448088432f29d79368ef9de4e1ae7a362fb05bf0ad668e026bf5714554497b3a720461";
        let mut ours = Symmetric::new(&psk, b"John Galt").unwrap();
        let mut theirs = Symmetric::new(&psk, b"John Galt").unwrap();
        let hello = ours.write(&host, None, b"Ludwig von Mises").unwrap();
        assert_eq!(hello, bytes(first));
        let (public, payload) = theirs.read(None, &hello).unwrap();
        assert_eq!(payload, b"Ludwig von Mises");
        let answer = theirs.write(&target, Some(public), b"Murray Rothbard").unwrap();
        assert_eq!(answer, bytes(second));
        assert_eq!(ours.read(Some(&host), &answer).unwrap().1, b"Murray Rothbard");
        assert_eq!(ours.hash[..], bytes("9f3b1f9afd7767767b5b9d1069844a6154fdbdcc36dfb3e31c0fffc5c973d530"));
        let (mut out, mut back) = ours.split().unwrap();
        let (mut far_in, mut far_out) = theirs.split().unwrap();
        let said: [(&[u8], &str); 4] = [
            (b"F. A. Hayek", "7c01e898a6201f36aecee532e29cd0b7f8ffa29d3366ad0dce39a6"),
            (b"Carl Menger", "a9ff535aace3db6a1da1a7fb00fe2de2622bb373abad9fb42c00e0"),
            (b"Jean-Baptiste Say", "6cfc49a3e65472edc2d0152abe5ce950170a8a47c959f30bd48b5f0aacf29adbfd"),
            (b"Eugen B\xf6hm von Bawerk", "9bc86e6d974ed21ba04604a94aa68de21677eb409ead070c0cd569b069ee19ba142aa4c1a9"),
        ];
        for (number, (text, wanted)) in said.into_iter().enumerate() {
            let (from, to) = if number % 2 == 0 { (&mut out, &mut far_in) } else { (&mut far_out, &mut back) };
            let mut data = text.to_vec();
            let tag = from.seal(&[], &mut data).unwrap();
            assert_eq!([&data[..], &tag[..]].concat(), bytes(wanted), "message {number}");
            let mut plain = vec![0; data.len()];
            to.open(&[], &tag, &data, &mut plain).unwrap();
            assert_eq!(plain, text);
        }
    }
}
