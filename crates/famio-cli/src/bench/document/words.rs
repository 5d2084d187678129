//! Sizes and times as text, for tables and titles.

/// A size: `64 B`, `4 KiB`, `2 MiB`; with a decimal only where needed.
pub fn bytes(count: u64) -> String {
    let whole = crate::text::bytes(count);
    whole.replace(".0 ", " ")
}

/// A time, with three or four digits: `410 ns`, `16.1 us`, `2.05 ms`.
pub fn time(nanoseconds: f64) -> String {
    match nanoseconds.abs() {
        size if size < 10_000.0 => format!("{nanoseconds:.0} ns"),
        size if size < 1e6 => format!("{:.1} us", nanoseconds / 1e3),
        size if size < 1e9 => format!("{:.2} ms", nanoseconds / 1e6),
        _ => format!("{:.2} s", nanoseconds / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units() {
        assert_eq!([64, 4096, 2 << 20, 1536].map(bytes), ["64 B", "4 KiB", "2 MiB", "1.5 KiB"]);
        assert_eq!(
            [0.0, 410.0, 16_100.0, 2_050_000.0, 3e9].map(time),
            ["0 ns", "410 ns", "16.1 us", "2.05 ms", "3.00 s"]
        );
    }
}
