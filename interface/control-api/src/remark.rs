//! Remarks on what was done, which say themselves where commands print them.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Remark on what was done: its text, and where a command prints it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "to", content = "text", rename_all = "kebab-case")]
pub enum Remark {
    /// Part of the command's output, as in OpenZFS: for standard output.
    Output(String),
    /// Warning, or something that was not possible: for standard error.
    Warning(String),
}

impl fmt::Display for Remark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Remark::Output(text) | Remark::Warning(text) => f.write_str(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, programs that read a command's output find warnings in it, or lose what they look for.
    #[test]
    fn a_remark_says_where_it_goes_whatever_its_words_are() {
        let output = Remark::Output("warning: device 'a' onlined, but remains in faulted state".to_string());
        let said = serde_json::to_string(&output).expect("plain data");
        assert_eq!(said, r#"{"to":"output","text":"warning: device 'a' onlined, but remains in faulted state"}"#);
        assert_eq!(serde_json::from_str::<Remark>(&said).expect("a remark"), output);
        let warning: Remark = serde_json::from_str(r#"{"to":"warning","text":"takes effect later"}"#).expect("a remark");
        assert_eq!((&warning, warning.to_string()), (&Remark::Warning("takes effect later".to_string()), "takes effect later".to_string()));
    }
}
