//! Values in chat templates print as in Python: a list as `['a', True, None]`, where Jinja in Rust
//! would print JSON.

use std::{fmt, sync::Arc};

use minijinja::{
    Error, Output, State, Value,
    value::{DynObject, Enumerator, Object, ObjectRepr, ValueKind},
};

/// Maximum depth of lists and maps that are printed: templates come from outside.
const DEEPEST: usize = 256;

/// A list or map from outside a template, which prints as in Python wherever the template turns it
/// into text: `~` and `join` do not call the formatter of the environment.
#[derive(Debug)]
struct Printed(DynObject);

impl Object for Printed {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        self.0.repr()
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.0.get_value(key)
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        self.0.enumerate()
    }

    fn render(self: &Arc<Self>, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_object(out, &Value::from_dyn_object(self.0.clone()), 0)
    }
}

/// The same value, whose lists and maps print as in Python.
pub fn printed(value: &Value) -> Value {
    let inner: Value = match value.kind() {
        ValueKind::Seq => value.try_iter().into_iter().flatten().map(|item| printed(&item)).collect(),
        ValueKind::Map => {
            let keys = value.try_iter().into_iter().flatten();
            keys.map(|key| (key.clone(), printed(&value.get_item(&key).unwrap_or_default()))).collect()
        }
        _ => return value.clone(),
    };
    inner.as_object().map_or(Value::UNDEFINED, |object| Value::from_object(Printed(object.clone())))
}

/// Python's `str` of a value, as the formatter of an environment.
pub fn format(out: &mut Output<'_>, _state: &State<'_, '_>, value: &Value) -> Result<(), Error> {
    write_text(out, value).map_err(Error::from)
}

/// Jinja2's filter `string`.
pub fn to_text(value: &Value) -> Result<Value, Error> {
    if value.kind() == ValueKind::String {
        return Ok(value.clone());
    }
    let mut text = String::new();
    write_text(&mut text, value)?;
    Ok(text.into())
}

/// Python's `repr` of a value.
pub fn repr(value: &Value) -> Result<String, Error> {
    let mut text = String::new();
    write_value(&mut text, value, 0)?;
    Ok(text)
}

fn write_text(out: &mut impl fmt::Write, value: &Value) -> fmt::Result {
    match value.kind() {
        ValueKind::String | ValueKind::Undefined => write!(out, "{value}"),
        _ => write_value(out, value, 0),
    }
}

/// Python's `repr` of a value.
fn write_value(out: &mut impl fmt::Write, value: &Value, depth: usize) -> fmt::Result {
    match value.kind() {
        ValueKind::Undefined => out.write_str("Undefined"),
        ValueKind::String => write_string(out, value.as_str().unwrap_or_default()),
        ValueKind::Number if !value.is_integer() => match f64::try_from(value.clone()) {
            Ok(number) => write_float(out, number),
            Err(_) => write!(out, "{value}"),
        },
        // The length of other iterables is not known, and they may be endless.
        ValueKind::Seq | ValueKind::Map => write_object(out, value, depth),
        ValueKind::Iterable if value.len().is_some() => write_object(out, value, depth),
        _ => write!(out, "{value}"),
    }
}

fn write_object(out: &mut impl fmt::Write, value: &Value, depth: usize) -> fmt::Result {
    if depth > DEEPEST {
        return Err(fmt::Error);
    }
    let is_map = value.kind() == ValueKind::Map;
    out.write_char(if is_map { '{' } else { '[' })?;
    for (at, item) in value.try_iter().into_iter().flatten().enumerate() {
        if at > 0 {
            out.write_str(", ")?;
        }
        write_value(out, &item, depth + 1)?;
        if is_map {
            out.write_str(": ")?;
            write_value(out, &value.get_item(&item).unwrap_or_default(), depth + 1)?;
        }
    }
    out.write_char(if is_map { '}' } else { ']' })
}

fn write_float(out: &mut impl fmt::Write, number: f64) -> fmt::Result {
    if !number.is_finite() {
        let text = if number.is_nan() { "nan" } else { "inf" };
        return write!(out, "{}{text}", if number < 0.0 { "-" } else { "" });
    }
    let scientific = format!("{number:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    match exponent.parse::<i32>().unwrap_or_default() {
        exponent if !(-4..16).contains(&exponent) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            write!(out, "{digits}e{sign}{:02}", exponent.abs())
        }
        _ => write!(out, "{number:?}"),
    }
}

/// A string in the quotes that need no escape, if there are such.
fn write_string(out: &mut impl fmt::Write, text: &str) -> fmt::Result {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.write_char(quote)?;
    for character in text.chars() {
        match character {
            '\n' => out.write_str("\\n")?,
            '\r' => out.write_str("\\r")?,
            '\t' => out.write_str("\\t")?,
            '\\' => out.write_str("\\\\")?,
            _ if character == quote => write!(out, "\\{character}")?,
            _ if is_printable(character) => out.write_char(character)?,
            _ => match u32::from(character) {
                code @ ..0x100 => write!(out, "\\x{code:02x}")?,
                code @ ..0x1_0000 => write!(out, "\\u{code:04x}")?,
                code => write!(out, "\\U{code:08x}")?,
            },
        }
    }
    out.write_char(quote)
}

/// Whether Python prints a character as it is: not a control character, a space other than ' ', or
/// unassigned. Rust escapes the same ones, and marks that have no character before them.
fn is_printable(character: char) -> bool {
    match character {
        ' '..='~' => true,
        _ if character.is_ascii() => false,
        // After another character, marks are not escaped.
        _ => !['a', character].iter().collect::<String>().escape_debug().to_string().contains("\\u{"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(value: impl Into<Value>) -> String {
        let mut text = String::new();
        write_text(&mut text, &value.into()).expect("it is written");
        text
    }

    #[test]
    fn values_print_as_in_python() {
        let json = r#"{"a": ["x", "it's", "\"", "'\""], "b": {"c": null, "d": [true, false]}, "e": [1, -2, 1.0]}"#;
        let json: serde_json::Value = serde_json::from_str(json).expect("JSON");
        let expected = r#"{'a': ['x', "it's", '"', '\'"'], 'b': {'c': None, 'd': [True, False]}, 'e': [1, -2, 1.0]}"#;
        let value = Value::from_serialize(json);
        assert_eq!(text(value.clone()), expected);
        assert_eq!(printed(&value).to_string(), expected);
        assert_eq!(text("it's \n"), "it's \n");
        assert_eq!(text(vec!["a\\\n\t\u{7}\u{a0}é\u{301}日\u{200b}🦀\u{e0001}"]), {
            r"['a\\\n\t\x07\xa0é".to_owned() + "\u{301}日" + r"\u200b🦀\U000e0001']"
        });
        let numbers = [1e15, 1e16, 1.5e22, 0.0001, 0.00001, -2.5e-7, f64::INFINITY];
        assert_eq!(text(numbers.to_vec()), "[1000000000000000.0, 1e+16, 1.5e+22, 0.0001, 1e-05, -2.5e-07, inf]");
        assert_eq!(text(Value::UNDEFINED), "");
    }

    #[test]
    fn what_is_nested_without_end_is_not_printed() {
        let deep = (0..DEEPEST + 2).fold(Value::from(1), |value, _| Value::from(vec![value]));
        assert!(to_text(&deep).is_err());
    }
}
