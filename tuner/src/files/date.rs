//! Human-readable times of the journal, and dates in files of others.

use chrono::{DateTime, NaiveDateTime};

/// Seconds since the Unix epoch as date and time of day in UTC, such as `2026-11-25 12:40`; the
/// number itself if it is not a valid date.
pub fn utc(seconds: u64) -> String {
    let date = i64::try_from(seconds).ok().and_then(|seconds| DateTime::from_timestamp(seconds, 0));
    date.map_or_else(|| seconds.to_string(), |date| date.format("%Y-%m-%d %H:%M").to_string())
}

/// Seconds since the Unix epoch of a date with a time of day, such as `2023-11-16 18:15:46.68059`;
/// one without an offset counts as UTC. `None` if it is none.
pub fn seconds(text: &str) -> Option<f64> {
    let text = text.trim().replacen([' ', 't'], "T", 1);
    let with_offset = DateTime::parse_from_str(&text, "%Y-%m-%dT%H:%M:%S%.f%#z").ok();
    let date = with_offset
        .map(|date| date.to_utc())
        .or_else(|| NaiveDateTime::parse_from_str(&text, "%Y-%m-%dT%H:%M:%S%.f").ok().map(|date| date.and_utc()))?;
    Some(date.timestamp() as f64 + f64::from(date.timestamp_subsec_nanos()) / 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_with_and_without_an_offset_are_seconds() {
        let found = |text: &str| seconds(text).map(|seconds| (seconds * 1e3).round() / 1e3);
        assert_eq!(found("1970-01-01 00:01:00.5"), Some(60.5));
        assert_eq!(found("2023-11-16 18:15:46.6805900"), Some(1_700_158_546.681));
        for same in ["2024-05-12 00:00:01.25+00:00", "2024-05-12T02:00:01.25+0200", "2024-05-12T00:00:01.25Z"] {
            assert_eq!(found(same), Some(1_715_472_001.25), "{same}");
        }
        for none in ["", "1", "soon", "2024-05-12", "2024-13-12 00:00:00", "T", "ä"] {
            assert_eq!(found(none), None, "{none}");
        }
    }

    #[test]
    fn seconds_are_dates() {
        assert_eq!(utc(1_790_000_000), "2026-09-21 14:13");
        assert_eq!(utc(0), "1970-01-01 00:00");
        assert_eq!(utc(u64::MAX), "18446744073709551615");
    }
}
