//! The flags of a launch file as words.

use serde_json::Value;

use crate::{
    flags::{FLAGS, Key},
    launch::file::LaunchFile,
};

/// A flag and its words, unquoted; a switch has none.
pub struct Flag {
    pub key: Key,
    pub words: Vec<String>,
}

/// The flags that a launch file gives, in alphabetical order. A switch that is off is omitted, as it is off by default.
pub fn of(launch: &LaunchFile) -> Vec<Flag> {
    // A struct of optional texts and numbers: writing it as JSON cannot fail, and no flag is forgotten here.
    let Ok(Value::Object(fields)) = serde_json::to_value(launch) else { return Vec::new() };
    let flag = |row: &crate::flags::Flag| {
        let words = match fields.get(&row.name.replace('-', "_"))? {
            Value::Bool(true) => Vec::new(),
            Value::String(text) => vec![text.clone()],
            Value::Number(number) => vec![number.to_string()],
            Value::Array(items) => items.iter().map(word).collect(),
            Value::Null | Value::Bool(false) | Value::Object(_) => return None,
        };
        Some(Flag { key: row.key, words })
    };
    FLAGS.iter().filter_map(flag).collect()
}

fn word(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
