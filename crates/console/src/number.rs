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

/// `975 Mbit/s`.
pub fn bit_rate(bits_per_s: f64) -> String {
    const UNITS: [&str; 5] = ["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"];
    let mut value = bits_per_s.max(0.0);
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    let digits = match value {
        _ if unit == 0 => 0,
        ..9.995 => 2,
        ..99.95 => 1,
        _ => 0,
    };
    format!("{value:.digits$} {}", UNITS[unit])
}

/// A number of things a second: `81,234`, `0.4`.
pub fn rate(per_s: f64) -> String {
    match per_s {
        0.0 => "0".into(),
        ..9.5 => format!("{per_s:.1}"),
        _ => count(per_s.round() as u64),
    }
}

/// `0.2 s`, `12 s`, `1 h 2 min`.
pub fn duration(seconds: f64) -> String {
    let whole = seconds.max(0.0).round() as u64;
    match whole {
        0..10 if seconds.fract() != 0.0 && seconds >= 0.05 => format!("{:.1} s", seconds.max(0.0)),
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
        assert_eq!(bit_rate(0.0), "0 bit/s");
        assert_eq!(bit_rate(999.7), "1.00 kbit/s");
        assert_eq!(bit_rate(974_808_000.0), "975 Mbit/s");
        assert_eq!(bit_rate(9_750_000_000.0), "9.75 Gbit/s");
        assert_eq!(rate(0.0), "0");
        assert_eq!(rate(0.42), "0.4");
        assert_eq!(rate(81_234.4), "81,234");
        assert_eq!(duration(0.23), "0.2 s");
        assert_eq!(duration(0.04), "0 s");
        assert_eq!(duration(3.0), "3 s");
        assert_eq!(duration(-1.0), "0 s");
        assert_eq!(duration(61.0), "61 s");
        assert_eq!(duration(3723.0), "62 min");
        assert_eq!(duration(8000.0), "2 h 13 min");
    }
}
