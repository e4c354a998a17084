//! The resolved configuration for a reader: a table of text, and JSON with reasons and sources.

use std::fmt;

use serde_json::{Map, Value as Json, json};

use super::{Decided, Origin, Resolved};
use crate::text::Source;

/// One line of the view.
struct Row {
    name: &'static str,
    /// `None`: not known.
    value: Option<(Json, Origin)>,
}

impl Resolved {
    /// A table: name, value, and how the value came about, with the place in the user's text.
    pub fn table(&self, source: &Source) -> String {
        let rows: Vec<[String; 3]> = self
            .rows()
            .into_iter()
            .map(|row| match row.value {
                Some((value, origin)) => [row.name.to_owned(), plain(&value), explained(&origin, source)],
                None => [row.name.to_owned(), "?".into(), "not known from what was given".into()],
            })
            .collect();
        let width = |column: usize| rows.iter().map(|row| row.get(column).map_or(0, |cell| cell.chars().count())).max();
        let (names, values) = (width(0).unwrap_or_default(), width(1).unwrap_or_default().min(40));
        let mut text =
            format!("resolved for sglang {}{}\n", self.version, if self.version_given { "" } else { " (assumed)" });
        for [name, value, origin] in rows {
            text.push_str(&format!("  {name:names$}  {value:values$}  {origin}\n"));
        }
        text
    }

    /// The same as JSON: for each name `value` (null where it is not known), `origin` (`written`, `default` or
    /// `rewritten`), and where it applies `line`, `column`, `reason` and `source`.
    pub fn to_json(&self, source: &Source) -> Json {
        let mut object = Map::new();
        object
            .insert("engine_version".into(), json!({ "value": self.version.to_string(), "given": self.version_given }));
        for row in self.rows() {
            object.insert(
                row.name.into(),
                match row.value {
                    Some((value, origin)) => with_origin(value, &origin, source),
                    None => json!({ "value": null }),
                },
            );
        }
        Json::Object(object)
    }

    fn rows(&self) -> Vec<Row> {
        let algorithm = self.algorithm.as_ref().map(|decided| (json!(decided.value.name()), decided.origin.clone()));
        let algorithm = algorithm.or_else(|| {
            let reason = "no --speculative-algorithm".to_owned();
            (!self.speculative).then(|| (json!("off"), Origin::Default { reason, source: "sglang server_args" }))
        });
        let mut rows = vec![Row { name: "speculative_algorithm", value: algorithm }];
        if self.speculative {
            rows.extend([
                row("speculative_num_steps", self.num_steps.as_ref()),
                row("speculative_eagle_topk", self.topk.as_ref()),
                row("speculative_num_draft_tokens", self.num_draft_tokens.as_ref()),
            ]);
        }
        rows.extend([
            row("max_running_requests", self.max_running_requests.as_ref()),
            row("cuda_graph_bs", self.capture_sizes.as_ref()),
            row("attention_backend", self.attention_backend.as_ref()),
            row("page_size", self.page_size.as_ref()),
            row("dtype", self.target_dtype.as_ref()),
        ]);
        if self.speculative {
            rows.push(row("draft_dtype", self.draft_dtype.as_ref()));
        }
        rows.extend([row("context_length", self.context_length.as_ref()), row("tp_size", Some(&self.tp_size))]);
        rows
    }
}

fn row<T: Clone + Into<Json>>(name: &'static str, decided: Option<&Decided<T>>) -> Row {
    Row { name, value: decided.map(|decided| (decided.value.clone().into(), decided.origin.clone())) }
}

fn with_origin(value: Json, origin: &Origin, source: &Source) -> Json {
    let mut object = Map::from_iter([("value".to_owned(), value)]);
    let mut place = |span: crate::text::Span, word: &str| {
        let position = source.position(span.start);
        object.insert("origin".into(), json!(word));
        object.insert("line".into(), json!(position.line));
        object.insert("column".into(), json!(position.column));
    };
    let why = match origin {
        Origin::Written(span) => {
            place(*span, "written");
            None
        }
        Origin::Rewritten { written, reason, source } => {
            place(*written, "rewritten");
            Some((reason, source))
        }
        Origin::Default { reason, source } => {
            object.insert("origin".into(), json!("default"));
            Some((reason, source))
        }
    };
    if let Some((reason, source)) = why {
        object.insert("reason".into(), json!(reason));
        object.insert("source".into(), json!(source));
    }
    Json::Object(object)
}

/// A value without quotes; long lists shortened in the middle, runs of neighbours written as ranges.
fn plain(value: &Json) -> String {
    match value {
        Json::String(text) => text.clone(),
        Json::Array(items) => Sizes(items.iter().filter_map(Json::as_u64).collect()).to_string(),
        other => other.to_string(),
    }
}

/// Sizes with neighbours drawn together: `1-8 10 12`.
struct Sizes(Vec<u64>);

impl fmt::Display for Sizes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return formatter.write_str("none");
        }
        let mut runs: Vec<(u64, u64)> = Vec::new();
        for size in &self.0 {
            match runs.last_mut() {
                Some((_, last)) if *last + 1 == *size => *last = *size,
                _ => runs.push((*size, *size)),
            }
        }
        let words: Vec<String> = runs
            .iter()
            .map(|(first, last)| if first == last { first.to_string() } else { format!("{first}-{last}") })
            .collect();
        formatter.write_str(&words.join(" "))
    }
}

fn explained(origin: &Origin, source: &Source) -> String {
    let at = |span: crate::text::Span| {
        let position = source.position(span.start);
        format!("{}:{}", position.line, position.column)
    };
    match origin {
        Origin::Written(span) => format!("written at {}", at(*span)),
        Origin::Default { reason, source: from } => format!("default: {reason} [{from}]"),
        Origin::Rewritten { written, reason, source: from } => {
            format!("replaces what is written at {}: {reason} [{from}]", at(*written))
        }
    }
}
