//! The pages of the book that list every field of spectune's TOML files, generated from their JSON
//! Schemas.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::json_schema::PublishedSchema;

/// A page of the reference.
#[derive(Clone, Copy, Debug)]
pub struct FieldPage {
    /// The name of the schema, of which the page's name is made: `sweep-file.md` of `sweep`.
    pub schema: &'static str,
    title: &'static str,
    /// The first paragraph.
    introduction: &'static str,
}

/// Every page, one for each file that users write or read.
pub const PAGES: &[FieldPage] = &[
    FieldPage {
        schema: "sweep",
        title: "Sweep file",
        introduction: "What `spectune sweep` measures. [Sweep](../sweep.md) explains it with examples; `sweeps/` has files \
                       to start from. Paths are relative to the file's own folder; `~` is the home folder.",
    },
    FieldPage {
        schema: "train",
        title: "Training file",
        introduction: "What `spectune train` does. [Training](../training.md) explains it with examples. Paths are \
                       relative to the file's own folder; `~` is the home folder.",
    },
    FieldPage {
        schema: "tuned",
        title: "Tuned file",
        introduction: "What a sweep chose, written by `spectune sweep` and read by `serve`, `generate`, `export` and \
                       `lint`. Paths are relative to the file's own folder.",
    },
];

impl FieldPage {
    /// The name of the page in `docs/reference`.
    pub fn file_name(self) -> String {
        format!("{}-file.md", self.schema)
    }

    /// The page as Markdown.
    pub fn text(self) -> String {
        let schema = PublishedSchema::find(self.schema).map(PublishedSchema::text).unwrap_or_default();
        let schema: Value = serde_json::from_str(&schema).unwrap_or_default();
        let mut page = format!(
            "# {}\n\n{}\n\nThis page is generated from the file's [JSON Schema](files.md) (`spectune schema {}`).\n",
            self.title, self.introduction, self.schema
        );
        let empty = Map::new();
        let definitions = schema["definitions"].as_object().unwrap_or(&empty);
        section(&mut page, "", &schema, definitions, 0);
        page
    }
}

/// A table of the file and the tables inside it.
fn section(page: &mut String, path: &str, table: &Value, definitions: &Map<String, Value>, depth: usize) {
    /// No file of ours is nested deeper.
    const DEEPEST: usize = 4;
    let Some(properties) = table["properties"].as_object().filter(|_| depth < DEEPEST) else { return };
    let required: BTreeSet<&str> =
        table["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let mut rows = String::new();
    let mut inner = Vec::new();
    for (name, field) in properties {
        let known = |name: &str| definitions.get(name);
        let of = definition(field).and_then(known);
        let element = definition(&field["items"]).and_then(known);
        let below = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        if let Some(table) = of.or(element).filter(|of| of["properties"].is_object()) {
            // Tables follow the rows of plain fields, since a heading would end the table of rows.
            inner.push((below, table, element.is_some(), field, required.contains(name.as_str())));
            continue;
        }
        let default = match &field["default"] {
            _ if required.contains(name.as_str()) => "required".into(),
            Value::Null => String::new(),
            value => format!("`{}`", toml_of(value)),
        };
        let mut meaning = words(&field["description"]);
        if let Some(values) = of.or(element).and_then(|of| of["oneOf"].as_array()) {
            let value = |value: &Value| {
                format!("`\"{}\"`: {}", value["const"].as_str().unwrap_or_default(), words(&value["description"]))
            };
            meaning = format!("{meaning} {}", values.iter().map(value).collect::<Vec<_>>().join(" "));
        }
        rows += &format!("| `{name}` | {} | {default} | {} |\n", kind(field, of), cell(&meaning));
    }
    if !rows.is_empty() {
        *page += &format!("\n| field | type | default | meaning |\n|---|---|---|---|\n{rows}");
    }
    for (path, table, is_list, field, required) in inner {
        let header = if is_list { format!("[[{path}]]") } else { format!("[{path}]") };
        let mut about: Vec<String> = vec![words(&field["description"])];
        let own = words(&table["description"]);
        if !about.contains(&own) {
            about.push(own);
        }
        let needed = if required { " Required." } else { "" };
        // Two levels of headings at most: the path in a heading shows the depth.
        *page += &format!("\n{} `{header}`\n\n{}{needed}\n", "#".repeat(2 + depth.min(1)), about.join(" "));
        section(page, &path, table, definitions, depth + 1);
    }
}

/// The name of the definition that a field refers to, also where it may be omitted.
fn definition(field: &Value) -> Option<&str> {
    // An optional field names its type as one of several, and one with a default wraps it.
    let alternatives = [&field["allOf"], &field["anyOf"], &field["oneOf"]];
    let nested = alternatives.into_iter().filter_map(Value::as_array).flatten();
    std::iter::once(field).chain(nested).find_map(|one| one["$ref"].as_str()?.strip_prefix("#/definitions/"))
}

/// The type of a field in the words of TOML.
fn kind(field: &Value, of: Option<&Value>) -> String {
    if of.is_some_and(|of| of["oneOf"].is_array() || of["enum"].is_array()) {
        return "text".into();
    }
    let kinds = match &field["type"] {
        Value::String(kind) => vec![kind.as_str()],
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).filter(|kind| *kind != "null").collect(),
        _ => Vec::new(),
    };
    match kinds.first() {
        Some(&"string") => "text".into(),
        Some(&"integer") => "whole number".into(),
        Some(&"number") => "number".into(),
        Some(&"boolean") => "true or false".into(),
        Some(&"array") => match kind(&field["items"], None).as_str() {
            "" => "list".into(),
            "true or false" => "list of true or false".into(),
            one if one.starts_with("list of ") => format!("list of {}", one.replacen("list", "lists", 1)),
            one => format!("list of {one}s"),
        },
        Some(&"object") => "table".into(),
        _ => String::new(),
    }
}

/// A value as TOML.
fn toml_of(value: &Value) -> String {
    match value {
        Value::Object(fields) if fields.is_empty() => "{}".into(),
        other => other.to_string(),
    }
}

/// A description as one paragraph.
fn words(description: &Value) -> String {
    description.as_str().unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A text in a cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_pages_of_the_book_are_what_the_types_say() {
        for page in PAGES {
            let path = format!("{}/../docs/reference/{}", env!("CARGO_MANIFEST_DIR"), page.file_name());
            let text = page.text();
            if std::env::var_os("SPECTUNE_UPDATE").is_some_and(|value| value == "1") {
                fs::write(&path, &text).expect("the page can be written");
            }
            let found = fs::read_to_string(&path).unwrap_or_default();
            assert!(found == text, "{path} is stale: run the tests of `schemas` with SPECTUNE_UPDATE=1 and commit it");
        }
    }

    /// The number of fields that are no tables, over all definitions that are used.
    fn fields(table: &Value, definitions: &Map<String, Value>) -> usize {
        let fields_of = |field: &Value| {
            let of = definition(field).or_else(|| definition(&field["items"])).and_then(|name| definitions.get(name));
            of.filter(|of| of["properties"].is_object()).map_or(1, |table| fields(table, definitions))
        };
        table["properties"].as_object().map_or(0, |properties| properties.values().map(fields_of).sum())
    }

    #[test]
    fn every_field_has_a_row_with_type_and_meaning() {
        for page in PAGES {
            let schema = PublishedSchema::find(page.schema).expect("a schema").text();
            let schema: Value = serde_json::from_str(&schema).expect("JSON");
            let definitions = schema["definitions"].as_object().expect("definitions");
            let text = page.text();
            let rows: Vec<&str> = text.lines().filter(|line| line.starts_with("| `")).collect();
            assert_eq!(rows.len(), fields(&schema, definitions), "{}", page.schema);
            for row in rows {
                let cells: Vec<&str> = row.split(" | ").collect();
                assert!(cells.len() >= 4 && !cells[1].trim().is_empty() && cells[3].len() > 4, "{row}");
            }
        }
        let sweep = PAGES[0].text();
        for part in [
            "## `[workload]`",
            "### `[workload.random]`",
            "| `algorithm` | text | required |",
            "| `repeats` | whole number | `3` |",
            "`\"guided\"`: Predict the space",
        ] {
            assert!(sweep.contains(part), "{part}: {sweep}");
        }
    }
}
