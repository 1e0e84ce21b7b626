// SPDX-License-Identifier: MIT OR Apache-2.0
//! Numbers with units.

/// `1,234,567`.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 flow`, `2 flows`.
pub fn plural(number: u64, noun: &str) -> String {
    format!(
        "{} {noun}{}",
        count(number),
        if number == 1 { "" } else { "s" }
    )
}

/// `1.85 GB`: decimal, as links are sold.
pub fn bytes(number: u64) -> String {
    const UNITS: [&str; 5] = ["kB", "MB", "GB", "TB", "PB"];
    if number < 1000 {
        return format!("{number} B");
    }
    let mut value = number as f64 / 1000.0;
    let mut units = UNITS.iter();
    let mut unit = units.next();
    while value >= 999.5 {
        match units.next() {
            None => break,
            next => unit = next,
        }
        value /= 1000.0;
    }
    let digits = if value < 9.995 {
        2
    } else {
        usize::from(value < 99.95)
    };
    format!("{value:.digits$} {}", unit.unwrap_or(&""))
}

/// `0.2 s`, `12 s`, `1 h 2 min`.
pub fn duration(seconds: f64) -> String {
    let whole = seconds.max(0.0).round() as u64;
    match whole {
        0..10 if seconds.fract() != 0.0 => format!("{:.1} s", seconds.max(0.0)),
        0..10 => format!("{whole} s"),
        10..120 => format!("{whole} s"),
        120..7200 => format!("{} min", whole / 60),
        7200..172_800 => format!("{} h {} min", whole / 3600, whole % 3600 / 60),
        _ => format!("{} d {} h", whole / 86_400, whole % 86_400 / 3600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(plural(1, "flow"), "1 flow");
        assert_eq!(plural(1000, "flow"), "1,000 flows");
        assert_eq!(bytes(999), "999 B");
        assert_eq!(bytes(1_850_000_000), "1.85 GB");
        assert_eq!(bytes(18_500), "18.5 kB");
        assert_eq!(bytes(999_999), "1.00 MB");
        assert_eq!(bytes(u64::MAX), "18447 PB");
        assert_eq!(duration(0.23), "0.2 s");
        assert_eq!(duration(3.0), "3 s");
        assert_eq!(duration(-1.0), "0 s");
        assert_eq!(duration(61.0), "61 s");
        assert_eq!(duration(3723.0), "62 min");
        assert_eq!(duration(8000.0), "2 h 13 min");
    }
}
