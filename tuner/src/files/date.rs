//! Human-readable times of the journal.

use chrono::DateTime;

/// Seconds since the Unix epoch as date and time of day in UTC, such as `2026-11-25 12:40`; the
/// number itself if it is not a valid date.
pub fn utc(seconds: u64) -> String {
    let date = i64::try_from(seconds).ok().and_then(|seconds| DateTime::from_timestamp(seconds, 0));
    date.map_or_else(|| seconds.to_string(), |date| date.format("%Y-%m-%d %H:%M").to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_dates() {
        assert_eq!(utc(1_790_000_000), "2026-09-21 14:13");
        assert_eq!(utc(0), "1970-01-01 00:00");
        assert_eq!(utc(u64::MAX), "18446744073709551615");
    }
}
