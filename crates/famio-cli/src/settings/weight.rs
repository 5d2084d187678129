//! The weight of an application's share of a pool, in the user's notation.

use famio::journal::WEIGHTS;
use serde::Deserialize;
use std::fmt;
use std::str::FromStr;

/// A number from 1 to 10000, as of control groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "i64")]
pub struct Weight(pub u32);

impl TryFrom<i64> for Weight {
    type Error = String;

    fn try_from(number: i64) -> Result<Self, String> {
        let weight = u32::try_from(number).ok().filter(|weight| WEIGHTS.contains(weight));
        weight.map(Self).ok_or_else(|| format!("'{number}' is not a weight: a number from 1 to 10000"))
    }
}

impl FromStr for Weight {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number: Result<i64, _> = text.trim().parse();
        number.map_err(|_| format!("'{text}' is not a weight: a number from 1 to 10000"))?.try_into()
    }
}

impl fmt::Display for Weight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn from_1_to_10000() {
        assert_eq!((" 1".parse(), "10000".parse()), (Ok(Weight(1)), Ok(Weight(10_000))));
        for wrong in ["", "0", "-1", "10001", "1.5", "heavy", "99999999999999999999"] {
            assert!(wrong.parse::<Weight>().unwrap_err().contains("10000"), "{wrong}");
        }
    }
}
