//! Formats numbers: significant digits only, units in the headings, a dash for missing figures.

use tuner::results::selection::{Interval, RangeKind};

/// Placeholder for a missing figure.
pub const MISSING: &str = "—";

/// A quantity with three significant digits and at most three decimals: `12,345`, `612`, `61.2`,
/// `6.12`, `0.061`.
pub fn quantity(value: f64) -> String {
    if !value.is_finite() {
        return MISSING.into();
    }
    let size = value.abs();
    // From here on three digits would round to a thousand, which is written with its separator.
    if size >= 999.5 {
        return with_decimals(value, 0);
    }
    let decimals = match size {
        _ if size >= 100.0 || size == 0.0 => 0,
        _ if size >= 10.0 => 1,
        _ if size >= 1.0 => 2,
        _ if size < 0.0005 => return "<0.001".into(),
        _ => 3,
    };
    format!("{value:.decimals$}")
}

/// A time: `6.12 s`, `61.2 s`, `12 min`, `1.7 h`.
pub fn duration(seconds: f64) -> String {
    match seconds {
        _ if !seconds.is_finite() => MISSING.into(),
        _ if seconds < 90.0 => format!("{} s", quantity(seconds)),
        _ if seconds < 5400.0 => format!("{:.0} min", seconds / 60.0),
        _ => format!("{:.1} h", seconds / 3600.0),
    }
}

/// A ratio: `1.42×`.
pub fn ratio(value: f64) -> String {
    match value {
        _ if !value.is_finite() => MISSING.into(),
        // Bounds of an uninformative interval.
        _ if value >= 99.995 => ">99×".into(),
        _ if value < 0.005 => "<0.01×".into(),
        _ => format!("{value:.2}×"),
    }
}

/// A ratio as a signed percentage: `+42%`, `−3.1%`.
pub fn gain(ratio: f64) -> String {
    let percent = (ratio - 1.0) * 100.0;
    if !percent.is_finite() {
        return MISSING.into();
    }
    // Such a gain says that the baseline hardly ran; its digits would only make a table wider.
    if percent >= 9999.5 {
        return "over +9,999%".into();
    }
    let digits = if percent.abs() < 9.95 { format!("{:.1}", percent.abs()) } else { format!("{:.0}", percent.abs()) };
    // The sign is left out by what is written, not by the number: "+0.0%" would look like a gain.
    if digits.chars().all(|digit| digit == '0' || digit == '.') {
        return "±0%".into();
    }
    format!("{}{digits}%", if percent < 0.0 { '−' } else { '+' })
}

/// A share of a whole: `37%`, `0.4%`.
pub fn share(value: f64) -> String {
    let percent = value * 100.0;
    match percent {
        _ if !percent.is_finite() => MISSING.into(),
        _ if percent == 0.0 || percent >= 9.95 => format!("{percent:.0}%"),
        _ if percent < 0.05 => "<0.1%".into(),
        _ => format!("{percent:.1}%"),
    }
}

/// Both bounds of an interval in the format of the median: `1.38–1.46`.
pub fn range(interval: Interval, write: fn(f64) -> String) -> String {
    format!("{}–{}", write(interval.low).trim_end_matches('×'), write(interval.high).trim_end_matches('×'))
}

/// The meaning of the two bounds of a median.
pub fn interval_name(interval: Interval, repeats: usize) -> String {
    match interval.kind {
        RangeKind::Single => "one repeat, no range".into(),
        RangeKind::Range => format!("range of {repeats} repeats"),
        RangeKind::Confidence => format!("{} interval", level(interval.coverage)),
    }
}

/// Coverage of an interval: `95%`, `98.4%`.
pub fn level(coverage: f64) -> String {
    // Rounded down, since a level is a promise: 94.96% must not be shown as 95%.
    let percent = (coverage * 1000.0).floor() / 10.0;
    if percent.fract() == 0.0 { format!("{percent:.0}%") } else { format!("{percent:.1}%") }
}

/// Describes the bounds below the medians of a table.
pub fn ends_words(intervals: impl Iterator<Item = Interval>) -> String {
    let (mut lowest, mut range) = (f64::INFINITY, false);
    let mut least = f64::INFINITY;
    for interval in intervals {
        match interval.kind {
            RangeKind::Single => {}
            RangeKind::Range => (range, least) = (true, least.min(interval.coverage)),
            RangeKind::Confidence => lowest = lowest.min(interval.coverage),
        }
    }
    let ranges = || format!("the range over its repeats, which contains the true median {} of the time", level(least));
    match (lowest.is_finite(), range) {
        (false, false) => "There is one repeat of each configuration, so the noise is unknown.".into(),
        (false, true) => format!("Below each median is {}.", ranges()),
        (true, false) => format!("Below each median is its confidence interval, of at least {}.", level(lowest)),
        (true, true) => format!(
            "Below each median is its confidence interval, of at least {}, or, where there are too few repeats for \
             one, {}.",
            level(lowest),
            ranges()
        ),
    }
}

/// The same for drawings, which may contain both kinds.
pub const INTERVAL: &str = "confidence interval of at least 95%, or the range where there are too few repeats for one";

/// Both bounds of an interval of ratios as gains: `+38% to +46%`.
pub fn gain_range(interval: Interval) -> String {
    format!("{} to {}", gain(interval.low), gain(interval.high))
}

/// A count with thousands separators.
pub fn count(value: u64) -> String {
    separated(&value.to_string())
}

/// A number with this many decimals and thousands separators.
pub fn with_decimals(value: f64, decimals: usize) -> String {
    let text = format!("{:.decimals$}", value.abs());
    // Only digits before the point are grouped.
    let (whole, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
    let sign = if value < 0.0 { "−" } else { "" };
    format!("{sign}{}{rest}", separated(whole))
}

fn separated(digits: &str) -> String {
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 repeat`, `3 repeats`.
pub fn counted(number: usize, singular: &str, plural: &str) -> String {
    format!("{} {}", count(number as u64), if number == 1 { singular } else { plural })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_follow_size() {
        let check = |value: f64, expected: &str| assert_eq!(quantity(value), expected);
        check(1_234_567.2, "1,234,567");
        check(999.6, "1,000");
        check(123.4, "123");
        check(12.34, "12.3");
        check(1.234, "1.23");
        check(0.1234, "0.123");
        check(0.0312, "0.031");
        check(0.0001, "<0.001");
        check(0.0, "0");
        check(f64::NAN, MISSING);
        check(-12345.0, "−12,345");
    }

    #[test]
    fn gains_are_signed() {
        let check = |ratio: f64, expected: &str| assert_eq!(gain(ratio), expected);
        check(1.42, "+42%");
        check(0.969, "−3.1%");
        check(1.0, "±0%");
        check(1.0001, "±0%");
        check(6_727_450.0, "over +9,999%");
        check(f64::INFINITY, MISSING);
    }

    #[test]
    fn ends_are_called_what_they_are() {
        let ends = |kind, coverage| Interval { median: 2.0, low: 1.0, high: 3.0, kind, coverage };
        let (range, interval) = (ends(RangeKind::Range, 0.75), ends(RangeKind::Confidence, 0.984_375));
        assert_eq!(interval_name(range, 3), "range of 3 repeats");
        assert_eq!(interval_name(interval, 7), "98.4% interval");
        assert_eq!(interval_name(ends(RangeKind::Single, 0.0), 1), "one repeat, no range");
        assert!(
            ends_words([range].into_iter()).contains("range over its repeats, which contains the true median 75% of")
        );
        assert!(ends_words([interval, range].into_iter()).contains("at least 98.4%, or,"));
        assert!(ends_words(std::iter::empty()).starts_with("There is one repeat"));
    }

    #[test]
    fn small_shares_do_not_vanish() {
        assert_eq!(share(0.0), "0%");
        assert_eq!(share(0.0001), "<0.1%");
        assert_eq!(share(0.374), "37%");
        assert_eq!(share(0.0374), "3.7%");
    }
}
