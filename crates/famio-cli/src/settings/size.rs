//! A number of bytes in the user's notation.

use serde::{Deserialize, Deserializer, de};
use std::str::FromStr;

/// Bytes: `4096`, `64KiB`, `512M`, `4GiB`. All units are powers of 1024.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(pub u64);

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at(digits);
        let shift = match unit.trim().to_ascii_lowercase().as_str() {
            "" | "b" => 0,
            "k" | "kb" | "kib" => 10,
            "m" | "mb" | "mib" => 20,
            "g" | "gb" | "gib" => 30,
            "t" | "tb" | "tib" => 40,
            _ => return Err(format!("'{text}' is not a size; write bytes, or for example 64MiB or 4GiB")),
        };
        let number: u64 = number.parse().map_err(|_| format!("'{text}' is not a size"))?;
        match number.checked_mul(1 << shift) {
            Some(0) => Err("a size must be more than 0".into()),
            Some(bytes) => Ok(Self(bytes)),
            None => Err(format!("'{text}' is too large")),
        }
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Size;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a size: bytes, or for example \"64MiB\" or \"4GiB\"")
            }

            fn visit_i64<E: de::Error>(self, bytes: i64) -> Result<Size, E> {
                self.visit_str(&bytes.to_string())
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Size, E> {
                text.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_powers_of_1024() {
        for (text, bytes) in [("4096", 4096), ("64KiB", 65536), ("1 m", 1 << 20), ("4GiB", 4 << 30), ("2T", 2 << 40)] {
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["", "x", "-1", "1.5G", "4 GiBi", "0", "99999999999999999999", "18446744073709551615K"] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
    }
}
