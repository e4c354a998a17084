//! Limits of schemas, checked before they are compiled: llguidance recurses along references and
//! properties, copies what a reference in a conjunction refers to, and intersects the patterns of a
//! conjunction, so a short schema can need any amount of stack, memory or time.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

/// Maximum number of entries of `properties`, `required`, `oneOf`, lists of items, and constants,
/// in all schemas of a grammar together.
const MOST_NAMES: usize = 4000;
/// The same where the number of properties is limited: each choice of properties is compiled.
const MOST_COUNTED_NAMES: usize = 400;
/// Maximum number of levels of JSON, with those of all references. A grammar is compiled on a stack
/// that is large enough for them.
const MOST_LEVELS: usize = 2000;
/// Maximum number of patterns that one text has to match.
const MOST_PATTERNS: u64 = 8;
/// Maximum number of schemas after references are followed and conjunctions are multiplied out.
const MOST_EXPANDED: u64 = 200_000;
/// Keywords that restrict nothing.
const ANNOTATIONS: [&str; 12] = [
    "$comment",
    "$defs",
    "$id",
    "$schema",
    "default",
    "definitions",
    "deprecated",
    "description",
    "discriminator",
    "example",
    "examples",
    "title",
];

/// What compiling a schema needs, at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Weight {
    /// Number of schemas.
    size: u64,
    /// Number of alternatives on the path with the largest number of them.
    ways: u64,
    /// Number of patterns that one text has to match.
    patterns: u64,
}

/// Counts the parts of a schema as they are written.
#[derive(Default)]
struct Written<'a> {
    names: usize,
    references: BTreeSet<&'a str>,
    /// Whether it limits the number of properties.
    counts: bool,
    /// Whether a part has a name or a version of JSON Schema, to which its references are relative.
    is_nested: bool,
}

/// Weighs a schema and what it refers to.
struct SchemaScale<'a> {
    root: &'a Value,
    /// Weights of references; `None` while one is being weighed.
    weighed: BTreeMap<&'a str, Option<Weight>>,
}

/// Checks the schemas of one grammar.
///
/// # Errors
/// When they are too large, with the reason.
pub fn check(schemas: &[&Value]) -> Result<(), String> {
    let (mut names, mut expanded) = (0, 0_u64);
    for schema in schemas {
        let mut written = Written::default();
        let own = written.read(schema, true);
        if written.is_nested {
            return Err("a part of its schema has $id or $schema, which only the whole schema may have".into());
        }
        names += written.names;
        if names > MOST_NAMES {
            return Err(format!("its schemas list more than {MOST_NAMES} properties, required ones and items"));
        }
        if written.counts && written.names > MOST_COUNTED_NAMES {
            return Err(format!(
                "its schema has minProperties or maxProperties, and lists more than {MOST_COUNTED_NAMES} properties, \
                 required ones and items"
            ));
        }
        let mut levels = own;
        for reference in written.references {
            let target = target(schema, reference);
            let target =
                target.ok_or_else(|| format!("its reference '{}' is not a path in it", shortened(reference)))?;
            levels += Written::default().read(target, true);
        }
        if levels > MOST_LEVELS {
            return Err(format!(
                "its schema has {levels} levels with those of its references (maximum: {MOST_LEVELS})"
            ));
        }
        let mut scale = SchemaScale { root: schema, weighed: BTreeMap::new() };
        let root = scale.weigh(schema, false);
        let all: Vec<Weight> = scale.weighed.into_values().flatten().chain([root]).collect();
        if all.iter().any(|weight| weight.patterns > MOST_PATTERNS) {
            return Err(format!("a text of its schema has to match more than {MOST_PATTERNS} patterns"));
        }
        expanded = all.iter().fold(expanded, |sum, weight| sum.saturating_add(weight.size));
        if expanded > MOST_EXPANDED {
            return Err(format!("its schema has more than {MOST_EXPANDED} parts when its references are followed"));
        }
    }
    Ok(())
}

impl<'a> Written<'a> {
    /// Counts the parts of a value, and returns its number of levels. A property may have the name
    /// of a keyword, so at worst too much is counted.
    fn read(&mut self, value: &'a Value, is_root: bool) -> usize {
        let inner = match value {
            Value::Object(fields) => fields
                .iter()
                .map(|(key, value)| {
                    match (key.as_str(), value) {
                        ("$ref", Value::String(reference)) => _ = self.references.insert(reference),
                        ("$id" | "$schema", Value::String(_)) => self.is_nested |= !is_root,
                        ("properties", Value::Object(fields)) => self.names += fields.len(),
                        ("required" | "prefixItems" | "items" | "oneOf", Value::Array(list)) => {
                            self.names += list.len()
                        }
                        ("const", value) => self.names += entries(value),
                        ("enum", Value::Array(list)) => self.names += list.iter().map(entries).sum::<usize>(),
                        ("minProperties" | "maxProperties", Value::Number(_)) => self.counts = true,
                        _ => {}
                    }
                    self.read(value, false)
                })
                .max(),
            Value::Array(list) => list.iter().map(|value| self.read(value, false)).max(),
            _ => None,
        };
        inner.map_or(0, |inner| inner + 1)
    }
}

impl Weight {
    const ONE: Self = Self { size: 1, ways: 1, patterns: 0 };

    /// Both schemas hold.
    fn and(self, other: Self) -> Self {
        let size = self.size.saturating_mul(other.ways).saturating_add(other.size.saturating_mul(self.ways));
        Self {
            size,
            ways: self.ways.saturating_mul(other.ways),
            patterns: self.patterns.saturating_add(other.patterns),
        }
    }

    /// One of both schemas holds.
    fn or(self, other: Self) -> Self {
        Self { ways: self.ways.saturating_add(other.ways), ..self.with(other) }
    }

    /// Another schema applies to a part of the value.
    fn with(self, part: Self) -> Self {
        Self {
            size: self.size.saturating_add(part.size),
            ways: self.ways.max(part.ways),
            patterns: self.patterns.max(part.patterns),
        }
    }
}

impl<'a> SchemaScale<'a> {
    /// The weight of a schema. If it is part of a conjunction, references in it are replaced by
    /// what they refer to.
    fn weigh(&mut self, schema: &'a Value, joined: bool) -> Weight {
        let Value::Object(fields) = schema else { return Weight::ONE };
        let joined = joined || restrictions(fields) > 1;
        let mut own = Weight::ONE;
        let mut parts = Vec::new();
        for (key, value) in fields {
            match (key.as_str(), value) {
                ("allOf", Value::Array(list)) => parts.extend(list.iter().map(|one| self.weigh(one, joined))),
                ("anyOf" | "oneOf", Value::Array(list)) => {
                    parts.extend(list.iter().map(|one| self.weigh(one, joined)).reduce(Weight::or));
                }
                ("$ref", Value::String(reference)) => {
                    let weight = self.reference(reference);
                    parts.push(if joined { weight } else { Weight::ONE });
                }
                ("enum" | "const", constants) => own.size = own.size.saturating_add(entries(constants) as u64),
                ("pattern", _) => own.patterns += 1,
                ("properties" | "patternProperties" | "dependentSchemas", Value::Object(named)) => {
                    own = named.values().fold(own, |own, one| own.with(self.weigh(one, false)));
                    if key == "patternProperties" {
                        own.patterns += named.len() as u64;
                    }
                }
                (key, _) if ANNOTATIONS.contains(&key) => {}
                (_, Value::Array(list)) => own = list.iter().fold(own, |own, one| own.with(self.weigh(one, false))),
                (_, one) => own = own.with(self.weigh(one, false)),
            }
        }
        parts.into_iter().fold(own, Weight::and)
    }

    /// The weight of what a reference refers to; of one that is being weighed, that of the
    /// reference.
    fn reference(&mut self, reference: &'a str) -> Weight {
        if let Some(known) = self.weighed.get(reference) {
            return known.unwrap_or(Weight::ONE);
        }
        self.weighed.insert(reference, None);
        let target = target(self.root, reference);
        let weight = target.map_or(Weight::ONE, |target| self.weigh(target, false));
        self.weighed.insert(reference, Some(weight));
        weight
    }
}

/// Number of entries of the lists and objects in a constant.
fn entries(value: &Value) -> usize {
    match value {
        Value::Array(list) => list.len() + list.iter().map(entries).sum::<usize>(),
        Value::Object(fields) => fields.len() + fields.values().map(entries).sum::<usize>(),
        _ => 0,
    }
}

/// Number of keywords that restrict a value, those of a list of conjoined schemas one by one.
fn restrictions(fields: &Map<String, Value>) -> usize {
    let count = |(key, value): (&String, &Value)| match (key.as_str(), value) {
        ("allOf", Value::Array(list)) => list.len(),
        (key, _) if ANNOTATIONS.contains(&key) => 0,
        _ => 1,
    };
    fields.iter().map(count).sum()
}

/// The schema at the place that a reference names, if it is a path from the root.
fn target<'a>(root: &'a Value, reference: &str) -> Option<&'a Value> {
    let is_own = |base: &str| ["$id", "id"].iter().any(|name| root[name] == base);
    let (base, path) = reference.split_once('#')?;
    if !base.is_empty() && !is_own(base) {
        return None;
    }
    root.pointer(&decoded(path)?)
}

/// A path without the `%XX` of URIs.
fn decoded(path: &str) -> Option<String> {
    let mut parts = path.split('%');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        let (code, rest) = part.split_at_checked(2)?;
        bytes.push(u8::from_str_radix(code, 16).ok()?);
        bytes.extend_from_slice(rest.as_bytes());
    }
    String::from_utf8(bytes).ok()
}

/// The beginning of a text, for a message.
fn shortened(text: &str) -> String {
    text.chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Definitions `a0`, `a1`, …, each made from the name of the next one; the last is a text.
    fn chain(count: usize, one: impl Fn(Value) -> Value) -> Value {
        let name = |at: usize| format!("a{at}");
        let mut definitions: Map<String, Value> =
            (0..count).map(|at| (name(at), one(json!({"$ref": format!("#/$defs/a{}", at + 1)})))).collect();
        definitions.insert(name(count), json!({"type": "string"}));
        json!({"$ref": "#/$defs/a0", "$defs": definitions})
    }

    #[track_caller]
    fn refused(schema: &Value, why: &str) {
        let found = check(&[schema]).expect_err("it is too large");
        assert!(found.contains(why), "{found}");
    }

    #[test]
    fn schemas_as_people_write_them_pass() {
        let node = json!({
            "type": "object",
            "properties": {
                "name": {"type": "string", "pattern": "^[a-z]+$", "minLength": 1},
                "next": {"anyOf": [{"$ref": "#/$defs/A%20node"}, {"type": "null"}], "default": null},
                "$id": {"type": "string"},
            },
            "required": ["name"],
        });
        let schema = json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "https://example.com/tree",
            "type": "object", "allOf": [{"$ref": "#/$defs/A node"}, {"$ref": "https://example.com/tree#/$defs/A%20node"}],
            "$defs": {"A node": node},
        });
        assert_eq!(check(&[&schema, &json!(true)]), Ok(()));
        assert_eq!(check(&[&chain(60, |next| json!({"type": "object", "properties": {"x": next}}))]), Ok(()));
    }

    #[test]
    fn schemas_that_need_too_much_are_refused() {
        refused(&chain(700, |next| json!({"type": "object", "properties": {"x": next}})), "levels with those");
        refused(&chain(2500, |next| next), "levels with those");
        let fields: Map<String, Value> = (0..4001).map(|at| (format!("p{at}"), json!({}))).collect();
        refused(&json!({"properties": fields}), "more than 4000 properties");
        refused(&json!({"const": fields}), "more than 4000 properties");
        refused(&json!({"enum": [1, [fields]]}), "more than 4000 properties");
        assert_eq!(check(&[&json!({"enum": (0..9000).collect::<Vec<u32>>()})]), Ok(()));
        let some: Map<String, Value> = fields.clone().into_iter().take(401).collect();
        refused(&json!({"allOf": [{"minProperties": 1}, {"properties": some}]}), "minProperties or maxProperties");
        let half: Map<String, Value> = fields.into_iter().take(3000).collect();
        let half = json!({"properties": half});
        assert!(check(&[&half]).is_ok() && check(&[&half, &half]).is_err());
        // Each definition contains the next one twice.
        let twice = |next: Value| {
            let joined = json!({"type": "object", "allOf": [next]});
            json!({"type": "object", "allOf": [{"properties": {"l": joined, "r": joined}}]})
        };
        refused(&chain(30, twice), "parts when its references are followed");
        let options: Vec<Value> = (0..30).map(|at| json!({"required": [format!("p{at}")]})).collect();
        refused(&json!({"allOf": vec![json!({"anyOf": options}); 5]}), "parts when its references are followed");
        let patterns =
            |count: usize| (0..count).map(|at| json!({"pattern": format!("^.*a{at}.*$")})).collect::<Vec<_>>();
        refused(&json!({"type": "string", "allOf": patterns(100)}), "more than 8 patterns");
        assert_eq!(check(&[&json!({"type": "string", "anyOf": patterns(100)})]), Ok(()));
        let fields: Map<String, Value> = (0..9).map(|at| (format!("^{at}"), json!({}))).collect();
        refused(&json!({"patternProperties": fields}), "more than 8 patterns");
        refused(&json!({"$ref": "#name"}), "'#name' is not a path");
        refused(&json!({"properties": {"x": {"$id": "x", "$ref": "#/y"}}}), "only the whole schema");
    }
}
