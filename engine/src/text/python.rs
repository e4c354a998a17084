//! Additions of transformers to Jinja in chat templates: `tojson` and `strftime_now` behave as in
//! Python (transformers `utils/chat_template_utils.py`).

use std::{
    io::{self, Write},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use minijinja::{Error, ErrorKind, Value, value::Kwargs};
use serde::Serialize;
use serde_json::ser::{Formatter, PrettyFormatter, Serializer};

/// `json.dumps`: nothing is escaped for HTML, and separators are followed by a space.
pub fn to_json(value: &Value, options: Kwargs) -> Result<String, Error> {
    let indent: Option<usize> = options.get("indent")?;
    let ensure_ascii: Option<bool> = options.get("ensure_ascii")?;
    let sort_keys: Option<bool> = options.get("sort_keys")?;
    let separators: Option<Vec<String>> = options.get("separators")?;
    options.assert_all_used()?;
    let failed = |error: serde_json::Error| Error::new(ErrorKind::BadSerialization, error.to_string());
    let mut value = serde_json::to_value(value).map_err(failed)?;
    if sort_keys == Some(true) {
        value.sort_all_objects();
    }
    let json = match (indent, separators.as_deref()) {
        (Some(indent), _) => {
            let indent = " ".repeat(indent.min(16));
            write_json(&value, PrettyFormatter::with_indent(indent.as_bytes()))
        }
        (None, Some([item, key])) => write_json(&value, Separators { item, key }),
        (None, None) => write_json(&value, Separators { item: ", ", key: ": " }),
        (None, Some(_)) => {
            return Err(Error::new(ErrorKind::InvalidOperation, "tojson: separators must be two strings"));
        }
    };
    let json = json.map_err(failed)?;
    Ok(if ensure_ascii == Some(true) { ascii(&json) } else { json })
}

/// `datetime.now().strftime(format)`, but in UTC: a server's answer should not depend on its time
/// zone.
pub fn strftime_now(format: &str) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    strftime(format, now.as_secs())
}

struct Separators<'a> {
    item: &'a str,
    key: &'a str,
}

impl Formatter for Separators<'_> {
    fn begin_array_value<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { writer.write_all(self.item.as_bytes()) }
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { writer.write_all(self.item.as_bytes()) }
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(self.key.as_bytes())
    }
}

fn write_json(value: &serde_json::Value, formatter: impl Formatter) -> Result<String, serde_json::Error> {
    let mut bytes = Vec::new();
    value.serialize(&mut Serializer::with_formatter(&mut bytes, formatter))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// In JSON, characters outside ASCII occur only in strings.
fn ascii(json: &str) -> String {
    let mut escaped = String::new();
    for character in json.chars() {
        if character.is_ascii() {
            escaped.push(character);
        } else {
            for unit in character.encode_utf16(&mut [0; 2]) {
                escaped.push_str(&format!("\\u{unit:04x}"));
            }
        }
    }
    escaped
}

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const WEEKDAYS: [&str; 7] = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];

/// Supports the directives that dates in prompts use; others stay as written.
fn strftime(format: &str, seconds: u64) -> String {
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let Date { year, month, day } = date(days);
    let (hour, minute) = (second / 3600, second / 60 % 60);
    let month_name = MONTHS[(month - 1) as usize % 12];
    // 1970-01-01 was a Thursday.
    let weekday = WEEKDAYS[(days + 3) as usize % 7];
    let mut text = String::new();
    let mut rest = format;
    while let Some((before, directive)) = rest.split_once('%') {
        text.push_str(before);
        let (width, directive) = directive.strip_prefix('-').map_or((2, directive), |directive| (0, directive));
        let mut characters = directive.chars();
        match characters.next() {
            Some('Y') => text.push_str(&year.to_string()),
            Some('y') => text.push_str(&format!("{:0width$}", year % 100)),
            Some('m') => text.push_str(&format!("{month:0width$}")),
            Some('d') => text.push_str(&format!("{day:0width$}")),
            Some('e') => text.push_str(&format!("{day:width$}")),
            Some('H') => text.push_str(&format!("{hour:0width$}")),
            Some('I') => text.push_str(&format!("{:0width$}", (hour + 11) % 12 + 1)),
            Some('M') => text.push_str(&format!("{minute:0width$}")),
            Some('S') => text.push_str(&format!("{:0width$}", second % 60)),
            Some('p') => text.push_str(if hour < 12 { "AM" } else { "PM" }),
            Some('B') => text.push_str(month_name),
            Some('b' | 'h') => text.push_str(&month_name[..3]),
            Some('A') => text.push_str(weekday),
            Some('a') => text.push_str(&weekday[..3]),
            Some('F') => text.push_str(&format!("{year}-{month:02}-{day:02}")),
            Some('T') => text.push_str(&format!("{hour:02}:{minute:02}:{:02}", second % 60)),
            Some('Z') => text.push_str("UTC"),
            Some('%') => text.push('%'),
            Some(other) => text.extend(['%', other]),
            None => text.push('%'),
        }
        rest = characters.as_str();
    }
    text.push_str(rest);
    text
}

struct Date {
    year: u64,
    month: u64,
    day: u64,
}

/// The Gregorian date of a day since 1970-01-01. Years are counted from March, so that the leap day
/// comes last.
fn date(days: u64) -> Date {
    // Days since 0000-03-01, in eras of 400 years.
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    Date {
        year: era * 400 + year_of_era + u64::from(month <= 2),
        month,
        day: day_of_year - (153 * from_march + 2) / 5 + 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_written_as_python_writes_them() {
        fn check(seconds: u64, format: &str, expected: &str) {
            assert_eq!(strftime(format, seconds), expected, "{format} of {seconds}");
        }
        check(0, "%A %d %B %Y %H:%M:%S", "Thursday 01 January 1970 00:00:00");
        check(951_827_696, "%a %-d %b %y, %I:%M %p", "Tue 29 Feb 00, 12:34 PM");
        check(1_704_067_199, "%F %T", "2023-12-31 23:59:59");
        check(4_107_542_400, "%d %b %Y", "01 Mar 2100");
        check(4_107_542_400, "100 %% %Q %", "100 % %Q %");
    }
}
