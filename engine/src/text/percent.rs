//! Python's `%`: the remainder of numbers, and texts with values filled in (`printf`-style
//! formatting).

use minijinja::{Error, ErrorKind, Value, value::ValueKind};

use super::python_values::{repr, to_text};

/// Largest width and number of digits of a field.
const WIDEST: usize = 1 << 12;

/// `left % right`; `is_tuple` says that the right side is written as one, since templates do not
/// tell tuples from lists.
pub fn remainder(left: &Value, right: &Value, is_tuple: Option<bool>) -> Result<Value, Error> {
    if let Some(format) = left.as_str() {
        let values = if is_tuple == Some(true) { right.try_iter()?.collect() } else { vec![right.clone()] };
        return formatted(format, right, values).map(Value::from);
    }
    let integers = i128::try_from(left.clone()).ok().zip(i128::try_from(right.clone()).ok());
    if let Some((left, right)) = integers.filter(|_| left.is_integer() && right.is_integer()) {
        let remainder = left.checked_rem(right).ok_or_else(|| wrong("the divisor is zero"))?;
        // The sign is the divisor's.
        return Ok(if remainder != 0 && (remainder < 0) != (right < 0) { remainder + right } else { remainder }.into());
    }
    let numbers = f64::try_from(left.clone()).ok().zip(f64::try_from(right.clone()).ok());
    let (left, right) =
        numbers.ok_or_else(|| wrong(format!("no remainder of {} and {}", left.kind(), right.kind())))?;
    if right == 0.0 {
        return Err(wrong("the divisor is zero"));
    }
    Ok((left - right * (left / right).floor()).into())
}

fn wrong(reason: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, reason.into())
}

/// A field of a format: `%(name)-08.3f`.
#[derive(Default)]
struct PercentField<'f> {
    name: Option<&'f str>,
    flags: &'f str,
    width: usize,
    digits: Option<usize>,
    kind: char,
}

/// A format with its values; those with names are attributes of `whole`.
fn formatted(format: &str, whole: &Value, values: Vec<Value>) -> Result<String, Error> {
    let mut is_used = whole.kind() == ValueKind::Map;
    let mut values = values.into_iter();
    let (mut text, mut rest) = (String::new(), format);
    while let Some((before, after)) = rest.split_once('%') {
        text.push_str(before);
        let (field, behind) = field(after)?;
        rest = behind;
        if field.kind == '%' {
            text.push('%');
            continue;
        }
        let value = match field.name {
            Some(name) => whole.get_attr(name)?,
            None => values.next().ok_or_else(|| wrong("not enough arguments for format string"))?,
        };
        text.push_str(&padded(&field, shown(&field, &value)?));
    }
    is_used |= values.next().is_none();
    if is_used { Ok(text + rest) } else { Err(wrong("not all arguments converted during string formatting")) }
}

/// The field that begins after a `%`, and what follows it.
fn field(text: &str) -> Result<(PercentField<'_>, &str), Error> {
    let unfinished = || wrong("incomplete format");
    let number = |text: &str| -> Result<usize, Error> {
        let number = if text.is_empty() { 0 } else { text.parse().map_err(|_| wrong("width too big"))? };
        if number > WIDEST { Err(wrong("width too big")) } else { Ok(number) }
    };
    let (mut found, mut rest) = (PercentField::default(), text);
    if let Some(inside) = rest.strip_prefix('(') {
        let (name, behind) = inside.split_once(')').ok_or_else(unfinished)?;
        (found.name, rest) = (Some(name), behind);
    }
    (found.flags, rest) = split(rest, |letter| "-+ #0".contains(letter));
    let (width, behind) = split(rest, |letter| letter.is_ascii_digit());
    (found.width, rest) = (number(width)?, behind);
    if let Some(behind) = rest.strip_prefix('.') {
        let (digits, behind) = split(behind, |letter| letter.is_ascii_digit());
        (found.digits, rest) = (Some(number(digits)?), behind);
    }
    let rest = rest.trim_start_matches(['h', 'l', 'L']);
    found.kind = rest.chars().next().ok_or_else(unfinished)?;
    let rest = rest.get(found.kind.len_utf8()..).unwrap_or_default();
    Ok((found, rest))
}

/// The letters at the start of a text for which `is` holds, and the rest.
fn split(text: &str, is: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|letter: char| !is(letter)).unwrap_or(text.len()))
}

fn shown(field: &PercentField<'_>, value: &Value) -> Result<String, Error> {
    let number = || {
        f64::try_from(value.clone()).map_err(|_| wrong(format!("%{} format: a real number is required", field.kind)))
    };
    let integer = || match i128::try_from(value.clone()) {
        Ok(integer) => Ok(integer),
        Err(_) => number().map(|number| number.trunc() as i128),
    };
    let cut = |text: String| match field.digits {
        Some(most) => text.chars().take(most).collect(),
        None => text,
    };
    let signed = |text: String| match () {
        () if text.starts_with('-') => text,
        () if field.flags.contains('+') => format!("+{text}"),
        () if field.flags.contains(' ') => format!(" {text}"),
        () => text,
    };
    let digits = field.digits.unwrap_or(6);
    Ok(match field.kind {
        's' => cut(to_text(value)?.as_str().unwrap_or_default().to_owned()),
        'r' | 'a' => cut(repr(value)?),
        'c' => to_text(value)?.as_str().unwrap_or_default().chars().take(1).collect(),
        'd' | 'i' | 'u' => signed(integer()?.to_string()),
        'x' => signed(format!("{:x}", integer()?)),
        'X' => signed(format!("{:X}", integer()?)),
        'o' => signed(format!("{:o}", integer()?)),
        'f' | 'F' => signed(format!("{:.digits$}", number()?)),
        'e' => {
            let scientific = format!("{:.digits$e}", number()?);
            let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
            let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |exponent| ('-', exponent));
            signed(format!("{mantissa}e{sign}{exponent:0>2}"))
        }
        other => return Err(wrong(format!("unsupported format character '{other}'"))),
    })
}

fn padded(field: &PercentField<'_>, text: String) -> String {
    let missing = field.width.saturating_sub(text.chars().count());
    let is_number = !matches!(field.kind, 's' | 'r' | 'a' | 'c');
    match () {
        () if field.flags.contains('-') => text + &" ".repeat(missing),
        () if is_number && field.flags.contains('0') => {
            let (sign, digits) = text.split_at(usize::from(text.starts_with(['-', '+', ' '])));
            format!("{sign}{}{digits}", "0".repeat(missing))
        }
        () => " ".repeat(missing) + &text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(left: impl Into<Value>, right: impl Into<Value>, is_tuple: bool, expected: &str) {
        let (left, right) = (left.into(), right.into());
        let found = remainder(&left, &right, Some(is_tuple));
        assert_eq!(found.map(|value| value.to_string()).ok().as_deref(), Some(expected), "{left} % {right}");
    }

    #[test]
    fn texts_are_filled_in_as_by_python() {
        check("%s!", "x", false, "x!");
        check("%s", vec![Value::from("a"), ().into()], false, "['a', None]");
        check("%s", vec!["a"], true, "a");
        check("%s-%s %%", vec!["a", "b"], true, "a-b %");
        check("[%5d|%-5d|%05d|%+d]", vec![42, 42, -42, 42], true, "[   42|42   |-0042|+42]");
        check("%.2f %6.1f %e", vec![2.71928, 2.0, 12345.678], true, "2.72    2.0 1.234568e+04");
        check("%x %X %o", vec![255, 255, 8], true, "ff FF 10");
        check("%.2s %r", vec!["abc", "it"], true, "ab 'it'");
        check("%(n)03d", Value::from_serialize(serde_json::json!({"n": 7})), false, "007");
        check("100%%", Vec::<Value>::new(), true, "100%");
    }

    #[test]
    fn numbers_have_the_remainder_of_python() {
        check(7, 3, false, "1");
        check(-7, 3, false, "2");
        check(7, -3, false, "-2");
        check(7.5, 2, false, "1.5");
    }

    #[test]
    fn what_python_refuses_is_refused() {
        let refused = |left: Value, right: Value| assert!(remainder(&left, &right, None).is_err(), "{left} % {right}");
        refused(1.into(), 0.into());
        refused(().into(), 1.into());
        for (format, value) in [("%d", "x"), ("%s %s", "x"), ("x", "x"), ("%q", "x"), ("%", "x"), ("%99999s", "x")] {
            refused(format.into(), value.into());
        }
    }
}
