//! The flags of a launch file with their values.

use serde_json::Value;

use crate::{
    flags::{FLAGS, Key},
    launch_file::LaunchFile,
};

/// A flag and its values, unquoted; a switch has none.
pub struct ExportFlag {
    pub key: Key,
    pub words: Vec<String>,
}

/// The flags of a launch file, in alphabetical order. Switches that are off are omitted, since that
/// is the default.
pub fn export_flags(launch: &LaunchFile) -> Vec<ExportFlag> {
    // Serializing a struct of optional texts and numbers cannot fail, and it includes every flag.
    let Ok(Value::Object(fields)) = serde_json::to_value(launch) else { return Vec::new() };
    let flag = |row: &crate::flags::Flag| {
        let words = match fields.get(&row.name.replace('-', "_"))? {
            Value::Bool(true) => Vec::new(),
            Value::String(text) => vec![text.clone()],
            Value::Number(number) => vec![number.to_string()],
            Value::Array(items) => items.iter().map(word).collect(),
            Value::Null | Value::Bool(false) | Value::Object(_) => return None,
        };
        Some(ExportFlag { key: row.key, words })
    };
    FLAGS.iter().filter_map(flag).collect()
}

fn word(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
