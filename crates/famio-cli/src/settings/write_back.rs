//! How much of a tiered journal is a write cache, in the user's notation.

use famio::WriteBackRange;
use serde::Deserialize;
use std::fmt;
use std::str::FromStr;

/// Percentages: `30:10`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct WriteBack(pub WriteBackRange);

impl FromStr for WriteBack {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.trim().parse().map(Self).map_err(|what| format!("'{text}': {what}"))
    }
}

impl TryFrom<String> for WriteBack {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl fmt::Display for WriteBack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.0.from, self.0.to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_numbers_the_second_the_smaller_one() {
        assert_eq!("30:10".parse::<WriteBack>().unwrap().to_string(), "30:10");
        for wrong in ["", "30", "10:30", "10:10", "91:10", "-1:-2", "30%:10%"] {
            assert!(wrong.parse::<WriteBack>().unwrap_err().contains("30:10"), "{wrong}");
        }
    }
}
