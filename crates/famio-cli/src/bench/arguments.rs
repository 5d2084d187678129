//! Parsers of what several benches take as an option's value.

/// Parses a positive number: seconds up to a day, or how often in one.
pub fn positive(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(number) if number > 0.0 && number <= 86_400.0 => Ok(number),
        _ => Err("not a number above 0 and up to 86400".into()),
    }
}
