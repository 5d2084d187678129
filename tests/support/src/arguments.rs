//! The syntax of arguments shared by several test programs.

use std::time::Duration;

/// A number of seconds, or of another unit (`s`, `m`, `h`).
pub fn duration(text: &str) -> Result<Duration, String> {
    let (digits, unit) = text.split_at(text.trim_end_matches(|c: char| c.is_alphabetic()).len());
    let seconds = match unit {
        "s" | "" => 1,
        "m" => 60,
        "h" => 3600,
        _ => return Err("s, m or h".into()),
    };
    digits.parse::<u64>().map(|count| Duration::from_secs(count * seconds)).map_err(|error| error.to_string())
}
