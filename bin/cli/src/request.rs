//! Requests that need no output of their own, and the words that become them.

use crate::{Client, Stop};
use control_api::{ErrorKind, Failure, Request};
use std::collections::BTreeMap;

/// Performs a request and prints its remarks.
pub fn done(client: &Client, request: &Request) -> Result<u8, Failure> {
    for remark in client.perform(request)? {
        crate::outln!("{remark}");
    }
    Ok(0)
}

/// A failure about what the user asked for, found before the daemon was asked.
pub fn invalid(what: &str, why: &str) -> Failure {
    Failure::new(ErrorKind::Invalid, what, why)
}

/// `a=b` words as a map; a property given twice is an error.
pub fn assignments(words: &[String]) -> Result<BTreeMap<String, String>, Stop> {
    let mut map = BTreeMap::new();
    for word in words {
        let (name, value) = word.split_once('=').ok_or_else(|| Stop::usage(format!("missing '=' for property=value argument '{word}'")))?;
        if map.insert(name.to_string(), value.to_string()).is_some() {
            return Err(Stop::usage(format!("property '{name}' specified multiple times")));
        }
    }
    Ok(map)
}

/// A path made absolute: the daemon has another working directory.
pub fn absolute(path: &str) -> String {
    std::path::absolute(path).map_or_else(|_| path.to_string(), |path| path.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_property_is_given_once_and_with_a_value() {
        let words = |list: &[&str]| list.iter().map(|word| (*word).to_string()).collect::<Vec<_>>();
        assert_eq!(assignments(&words(&["a=1", "b=x=y"])).expect("two").get("b").map(String::as_str), Some("x=y"));
        assert!(matches!(assignments(&words(&["a=1", "a=2"])), Err(Stop::Usage(why)) if why == "property 'a' specified multiple times"));
        assert!(matches!(assignments(&words(&["a"])), Err(Stop::Usage(why)) if why == "missing '=' for property=value argument 'a'"));
    }
}
