//! The table of negotiated keys (RFC 7143, section 13): what is offered, what is answered, what holds then.

use crate::keys::{Keys, number};

/// Longest data segment in bytes that this end accepts in full feature phase.
pub(crate) const RECEIVE_BYTES_MAX: u32 = 256 * 1024;
/// Longest data segment in bytes before anything is negotiated (RFC 7143, section 13.12).
pub(crate) const RECEIVE_BYTES_DEFAULT: u32 = 8192;
const BURST_BYTES_MAX: u32 = 1024 * 1024;
const FIRST_BURST_BYTES_MAX: u32 = 256 * 1024;
const LENGTHS: std::ops::RangeInclusive<u64> = 512..=(1 << 24) - 1;

/// Values that hold for a session and its connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// True when headers carry a CRC32C.
    pub header_digest: bool,
    /// True when data segments carry a CRC32C.
    pub data_digest: bool,
    /// True when unsolicited Data-Out PDUs are not allowed.
    pub initial_r2t: bool,
    /// True when commands may carry data.
    pub immediate_data: bool,
    /// Longest data segment in bytes that the peer accepts.
    pub send_bytes_max: u32,
    /// Longest sequence of Data-In, or of solicited Data-Out, in bytes.
    pub max_burst: u32,
    /// Unsolicited data of one command, in bytes, at most.
    pub first_burst: u32,
}

impl Default for Parameters {
    fn default() -> Parameters {
        Parameters {
            header_digest: false,
            data_digest: false,
            initial_r2t: true,
            immediate_data: true,
            send_bytes_max: RECEIVE_BYTES_DEFAULT,
            max_burst: 262_144,
            first_burst: 65_536,
        }
    }
}

/// Keys of login that are dealt with elsewhere and need no answer here.
const ELSEWHERE: &[&str] =
    &["InitiatorName", "InitiatorAlias", "TargetName", "SessionType", "AuthMethod", "CHAP_A", "CHAP_I", "CHAP_C", "CHAP_N", "CHAP_R"];

/// Answer to a value that a key cannot have.
const REJECT: &str = "Reject";

impl Parameters {
    /// Takes the offers of a login text and appends the answers.
    pub(crate) fn negotiate(&mut self, offers: &Keys, answers: &mut Keys) {
        for (name, value) in offers.iter().filter(|(name, _)| !ELSEWHERE.contains(name)) {
            if let Some(answer) = self.answer(name, value) {
                answers.push(name, answer);
            }
        }
        // Bursts are agreed upon one by one, and the first is never longer than the others.
        self.first_burst = self.first_burst.min(self.max_burst);
    }

    /// Declarations of the target that nobody asked for.
    pub(crate) fn declare(answers: &mut Keys) {
        answers.push("MaxRecvDataSegmentLength", RECEIVE_BYTES_MAX.to_string());
    }

    /// Takes the keys of a Text request in full feature phase, where only the length of data segments may change (section 13.12).
    pub(crate) fn renegotiate(&mut self, name: &str, value: &str) -> Option<String> {
        match name {
            "MaxRecvDataSegmentLength" => self.answer(name, value),
            "InitiatorAlias" => None,
            _ => Some("NotUnderstood".into()),
        }
    }

    fn answer(&mut self, name: &str, value: &str) -> Option<String> {
        match name {
            "HeaderDigest" => Some(digest(value, &mut self.header_digest)),
            "DataDigest" => Some(digest(value, &mut self.data_digest)),
            "InitialR2T" => Some(either(value, |offer| offer, &mut self.initial_r2t)),
            "ImmediateData" => Some(either(value, |offer| offer, &mut self.immediate_data)),
            "MaxRecvDataSegmentLength" => match length(value) {
                Some(bytes) => {
                    self.send_bytes_max = bytes;
                    None
                }
                None => Some(REJECT.into()),
            },
            "MaxBurstLength" => Some(smaller(value, BURST_BYTES_MAX, &mut self.max_burst)),
            "FirstBurstLength" => Some(smaller(value, FIRST_BURST_BYTES_MAX, &mut self.first_burst)),
            "MaxConnections" | "MaxOutstandingR2T" => Some(bounded(value, 1..=65_535, |_| 1)),
            "DefaultTime2Wait" => Some(bounded(value, 0..=3600, |offer| offer.max(2))),
            "DefaultTime2Retain" => Some(bounded(value, 0..=3600, |_| 0)),
            "ErrorRecoveryLevel" => Some(bounded(value, 0..=2, |_| 0)),
            "iSCSIProtocolLevel" => Some(bounded(value, 0..=31, |offer| offer.min(1))),
            "DataPDUInOrder" | "DataSequenceInOrder" => Some(either(value, |_| true, &mut false)),
            "IFMarker" | "OFMarker" => Some(either(value, |_| false, &mut false)),
            "TaskReporting" => Some(first_common(value, &["RFC3720"])),
            _ => Some("NotUnderstood".into()),
        }
    }
}

/// Answer to a key with `Yes` and `No`: `result` of the offer.
fn either(value: &str, result: impl Fn(bool) -> bool, into: &mut bool) -> String {
    let offer = match value {
        "Yes" => true,
        "No" => false,
        _ => return REJECT.into(),
    };
    *into = result(offer);
    if *into { "Yes".into() } else { "No".into() }
}

fn length(value: &str) -> Option<u32> {
    number(value).filter(|bytes| LENGTHS.contains(bytes)).and_then(|bytes| u32::try_from(bytes).ok())
}

fn smaller(value: &str, own: u32, into: &mut u32) -> String {
    let Some(offer) = length(value) else { return REJECT.into() };
    *into = offer.min(own);
    into.to_string()
}

fn bounded(value: &str, range: std::ops::RangeInclusive<u64>, result: impl Fn(u64) -> u64) -> String {
    match number(value).filter(|offer| range.contains(offer)) {
        Some(offer) => result(offer).to_string(),
        None => REJECT.into(),
    }
}

fn first_common(offers: &str, known: &[&str]) -> String {
    offers.split(',').find(|offer| known.contains(offer)).unwrap_or(REJECT).into()
}

fn digest(offers: &str, into: &mut bool) -> String {
    let chosen = first_common(offers, &["CRC32C", "None"]);
    *into = chosen == "CRC32C";
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answers(text: &str) -> (Parameters, Keys) {
        let mut parameters = Parameters::default();
        let mut answers = Keys::default();
        let offers = Keys::parse(text.replace(' ', "\0").as_bytes()).expect("the offers are well formed");
        parameters.negotiate(&offers, &mut answers);
        (parameters, answers)
    }

    /// If this fails, an initiator and the target disagree about a length or a digest, and the session dies or data are cut.
    #[test]
    fn each_key_is_answered_as_the_table_says() {
        for (offer, answer) in [
            ("HeaderDigest=CRC32C,None", Some("CRC32C")),
            ("HeaderDigest=None,CRC32C", Some("None")),
            ("DataDigest=MD5", Some("Reject")),
            ("InitialR2T=Yes", Some("Yes")),
            ("InitialR2T=No", Some("No")),
            ("ImmediateData=No", Some("No")),
            ("ImmediateData=yes", Some("Reject")),
            ("MaxRecvDataSegmentLength=262144", None),
            ("MaxRecvDataSegmentLength=1", Some("Reject")),
            ("MaxBurstLength=16776192", Some("1048576")),
            ("MaxBurstLength=512", Some("512")),
            ("MaxBurstLength=16777216", Some("Reject")),
            ("FirstBurstLength=262144", Some("262144")),
            ("MaxConnections=8", Some("1")),
            ("MaxConnections=0", Some("Reject")),
            ("MaxOutstandingR2T=16", Some("1")),
            ("DefaultTime2Wait=0", Some("2")),
            ("DefaultTime2Retain=20", Some("0")),
            ("ErrorRecoveryLevel=2", Some("0")),
            ("ErrorRecoveryLevel=3", Some("Reject")),
            ("DataPDUInOrder=No", Some("Yes")),
            ("IFMarker=Yes", Some("No")),
            ("TaskReporting=FastAbort,RFC3720", Some("RFC3720")),
            ("iSCSIProtocolLevel=2", Some("1")),
            ("X-com.example=1", Some("NotUnderstood")),
        ] {
            let name = offer.split_once('=').expect("an offer has a name").0;
            assert_eq!(answers(offer).1.get(name), answer, "{offer}");
        }
    }

    #[test]
    fn the_first_burst_is_never_longer_than_the_others() {
        let (parameters, _) = answers("FirstBurstLength=65536 MaxBurstLength=8192");
        assert_eq!((parameters.first_burst, parameters.max_burst), (8192, 8192));
    }
}
