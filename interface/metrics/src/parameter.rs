//! A module parameter: its range, when a change takes effect, and its values as texts.

/// Moment at which a new value counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Counts at once.
    Now,
    /// Never counts: the parameter tells a constant.
    Fixed,
}

/// Parameter of the daemon.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// Name, as OpenZFS has it.
    pub name: &'static str,
    /// Value at start.
    pub default: u64,
    /// Least value.
    pub min: u64,
    /// Largest value.
    pub max: u64,
    /// Moment at which a new value counts.
    pub when: When,
    /// Text in a line about what the parameter does.
    pub about: &'static str,
    /// Words that stand for the values from 0 on; none for a number.
    pub words: &'static [&'static str],
    /// Question which of the words this machine has; the file shows those, the chosen one in brackets.
    pub offers: Option<fn(&str) -> bool>,
    /// True when values may be negative: all of them are then two's complements.
    pub is_signed: bool,
}

impl Parameter {
    /// True for a value within the bounds.
    pub fn allows(&self, value: u64) -> bool {
        if self.is_signed {
            return (self.min as i64..=self.max as i64).contains(&(value as i64));
        }
        (self.min..=self.max).contains(&value)
    }

    /// A number as text.
    pub fn number(&self, value: u64) -> String {
        if self.is_signed { (value as i64).to_string() } else { value.to_string() }
    }

    /// Text of a value as its file shows it.
    pub fn text(&self, value: u64) -> String {
        if let Some(has) = self.offers {
            let offered = self.words.iter().enumerate().filter(|(_, word)| has(word));
            let shown = offered.map(|(at, word)| if at as u64 == value { format!("[{word}] ") } else { format!("{word} ") });
            return shown.collect();
        }
        self.words.get(value as usize).map_or_else(|| self.number(value), |word| (*word).to_string())
    }

    /// Value of a text: one of the words, or a number, decimal or hexadecimal with `0x`.
    pub(crate) fn value(&self, text: &str) -> Option<u64> {
        let value = match (self.words, text.strip_prefix("0x")) {
            ([], Some(digits)) => u64::from_str_radix(digits, 16).ok(),
            ([], None) if self.is_signed => text.parse().ok().map(|value: i64| value as u64),
            ([], None) => text.parse().ok(),
            (words, _) => {
                let is_it = |word: &&str| *word == text && self.offers.is_none_or(|has| has(word));
                words.iter().position(is_it).map(|index| index as u64)
            }
        };
        value.filter(|value| self.allows(*value))
    }
}

/// Makes a parameter that is a number.
pub(crate) const fn new(name: &'static str, default: u64, (min, max): (u64, u64), when: When, about: &'static str) -> Parameter {
    Parameter { name, default, min, max, when, about, words: &[], offers: None, is_signed: false }
}

/// Makes a parameter that may be negative.
pub(crate) const fn signed(name: &'static str, default: i64, (min, max): (i64, i64), when: When, about: &'static str) -> Parameter {
    Parameter { is_signed: true, ..new(name, default as u64, (min as u64, max as u64), when, about) }
}

/// Makes a parameter of words.
pub(crate) const fn choice(name: &'static str, words: &'static [&'static str], about: &'static str) -> Parameter {
    Parameter { words, ..new(name, 0, (0, words.len() as u64 - 1), When::Now, about) }
}

/// Makes a parameter of implementations by name, of which machines have some.
pub(crate) const fn implementation(
    name: &'static str,
    words: &'static [&'static str],
    offers: fn(&str) -> bool,
    about: &'static str,
) -> Parameter {
    Parameter { offers: Some(offers), ..choice(name, words, about) }
}
