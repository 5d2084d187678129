//! Sizes as settings give them: the same notation and bounds for the command, `famio.toml` and the environment.

/// The least useful size of a journal.
const LEAST_JOURNAL: u64 = 1 << 20;

/// A number of bytes: `4096`, `64KiB`, `512M`, `4GiB`. All units are powers of 1024.
///
/// # Errors
/// What is wrong with it, in a sentence; 0 is not a size.
pub fn parse_size(text: &str) -> Result<u64, String> {
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
        Some(bytes) => Ok(bytes),
        None => Err(format!("'{text}' is too large")),
    }
}

/// A size to which a journal may grow.
///
/// # Errors
/// It is too small, in a sentence.
pub fn check_journal_limit(bytes: u64) -> Result<u64, String> {
    if bytes < LEAST_JOURNAL {
        let least = LEAST_JOURNAL >> 20;
        return Err(format!(
            "{bytes} B is too small: a journal needs {least} MiB at least; write a unit, for example 64MiB"
        ));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_powers_of_1024() {
        for (text, bytes) in [("4096", 4096), ("64KiB", 65536), ("1 m", 1 << 20), ("4GiB", 4 << 30), ("2T", 2 << 40)] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["", "x", "-1", "1.5G", "4 GiBi", "0", "99999999999999999999", "18446744073709551615K"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_journal_has_a_mebibyte_at_least() {
        assert_eq!(check_journal_limit(1 << 20), Ok(1 << 20));
        assert!(check_journal_limit((1 << 20) - 1).unwrap_err().contains("1 MiB"));
    }
}
