//! Numbers, settings and lists in the lines of a log.

use std::borrow::Cow;

/// The text without terminal escapes, which container tools keep in logs.
pub(super) fn without_escapes(text: &str) -> Cow<'_, str> {
    if !text.contains('\u{1b}') {
        return Cow::Borrowed(text);
    }
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('\u{1b}') {
        plain.push_str(before);
        // `[`, parameters, and a letter that ends the sequence.
        let end = after.find(|letter: char| letter.is_ascii_alphabetic()).map_or(after.len(), |at| at + 1);
        rest = &after[end..];
    }
    plain.push_str(rest);
    Cow::Owned(plain)
}

/// The number that follows a text.
pub(super) fn number_after(line: &str, before: &str) -> Option<f64> {
    let rest = line.split_once(before)?.1.trim_start();
    let end = rest.find(|letter: char| !(letter.is_ascii_digit() || letter == '.')).unwrap_or(rest.len());
    // A sentence may end after the number.
    rest[..end].trim_end_matches('.').parse().ok()
}

/// The value of `'name': value` in a printed dictionary, without quotes.
pub(super) fn entry<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let value = line.split_once(&format!("'{name}':"))?.1.trim_start();
    let value = value.split([',', '}']).next()?.trim().trim_matches(['\'', '"']);
    (value != "None").then_some(value)
}

/// The whole numbers of the list in brackets that follows a text.
pub(super) fn list_after(line: &str, before: &str) -> Option<Vec<usize>> {
    let rest = line.split_once(before)?.1.trim_start().strip_prefix('[')?;
    let items = rest.split(']').next()?;
    items.split(',').map(|item| item.trim().parse().ok()).collect()
}

/// Seconds since midnight of the first time in a line, `21:36:13`.
pub(super) fn time_of_day(line: &str) -> Option<u32> {
    let bytes = line.as_bytes();
    let at = bytes.windows(8).position(|window| {
        window.iter().enumerate().all(|(at, byte)| if at % 3 == 2 { *byte == b':' } else { byte.is_ascii_digit() })
    })?;
    let number = |at: usize| u32::from(bytes[at] - b'0') * 10 + u32::from(bytes[at + 1] - b'0');
    Some(number(at) * 3600 + number(at + 3) * 60 + number(at + 6))
}
