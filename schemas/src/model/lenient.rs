//! Lenient reading of JSON: values that are written in several ways, and objects field by field, so
//! that one unreadable field does not affect the others.

use std::fmt;

use serde::{Deserialize, Deserializer, de::DeserializeOwned};
use serde_json::{Map, Value as Json, json};

/// Characters of a value that are shown.
const SHOWN: usize = 40;

/// A field with a value of another type than the field has. It counts as absent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadField {
    /// Its name, after that of the object that it is in, such as `rope_scaling.factor`.
    pub name: String,
    /// Its value as JSON, which may be cut.
    pub found: String,
    /// What its value would have to be.
    pub expected: &'static str,
}

/// A text that is not a JSON object.
#[derive(Debug, thiserror::Error)]
pub enum JsonFileError {
    /// Without any characters but white space.
    #[error("the file is empty: download it again")]
    Empty,
    /// Begins with a byte order mark.
    #[error("it begins with a byte order mark, which no JSON file may have: save it as UTF-8 without one")]
    ByteOrderMark,
    /// Not JSON.
    #[error(transparent)]
    Syntax(#[from] serde_json::Error),
    /// JSON, but not an object.
    #[error("expected an object, found {0}")]
    NotAnObject(&'static str),
}

impl fmt::Display for UnreadField {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} is {}, expected {}", self.name, self.found, self.expected)
    }
}

impl UnreadField {
    pub(super) fn new(name: String, found: &Json, expected: &'static str) -> Self {
        let whole = found.to_string();
        let mut found: String = whole.chars().take(SHOWN).collect();
        if found.len() < whole.len() {
            found.push('…');
        }
        Self { name, found, expected }
    }
}

/// Reads the text of a JSON file that contains an object. Of a key that occurs twice the last value
/// counts, as in Python.
///
/// # Errors
/// When it does not contain one.
pub fn json_object(text: &str) -> Result<Map<String, Json>, JsonFileError> {
    if text.starts_with('\u{feff}') {
        return Err(JsonFileError::ByteOrderMark);
    }
    if text.trim().is_empty() {
        return Err(JsonFileError::Empty);
    }
    match serde_json::from_str(text)? {
        Json::Object(object) => Ok(object),
        Json::Null => Err(JsonFileError::NotAnObject("null")),
        Json::Bool(_) => Err(JsonFileError::NotAnObject("a boolean")),
        Json::Number(_) => Err(JsonFileError::NotAnObject("a number")),
        Json::String(_) => Err(JsonFileError::NotAnObject("a string")),
        Json::Array(_) => Err(JsonFileError::NotAnObject("a list")),
    }
}

/// The fields that `T` can read, either as they are or converted to a number (from a string or a
/// float without a fraction). The other fields are added to `unread`, their names prefixed with
/// `place`.
pub(super) fn readable<T: DeserializeOwned>(
    object: Map<String, Json>,
    place: &str,
    unread: &mut Vec<UnreadField>,
) -> Map<String, Json> {
    let reads = reads::<T>;
    object
        .into_iter()
        // Published configs write null for fields that are not set.
        .filter(|(_, value)| !value.is_null())
        .filter_map(|(name, value)| {
            if reads(&name, &value) {
                return Some((name, value));
            }
            let number = as_number(&value).filter(|number| reads(&name, number));
            if number.is_none() {
                unread.push(UnreadField::new(format!("{place}{name}"), &value, expected::<T>(&name)));
            }
            Some((name, number?))
        })
        .collect()
}

/// Applies [`readable`] to the object under `name`. Any other value there is removed, and added to
/// `unread` unless null.
pub(super) fn nested<T: DeserializeOwned>(object: &mut Map<String, Json>, name: &str, unread: &mut Vec<UnreadField>) {
    match object.remove(name) {
        None | Some(Json::Null) => {}
        Some(Json::Object(inner)) => {
            let inner = readable::<T>(inner, &format!("{name}."), unread);
            object.insert(name.to_owned(), Json::Object(inner));
        }
        Some(other) => unread.push(UnreadField::new(name.to_owned(), &other, "an object")),
    }
}

/// Whether `T` reads this value of a field.
fn reads<T: DeserializeOwned>(name: &str, value: &Json) -> bool {
    let single = Map::from_iter([(name.to_owned(), value.clone())]);
    serde_json::from_value::<T>(Json::Object(single)).is_ok()
}

/// What the value of a field has to be: the first kind of values that `T` reads.
fn expected<T: DeserializeOwned>(name: &str) -> &'static str {
    let kinds = [
        (json!(-1), "a number"),
        (json!(0.5), "a number"),
        (json!(1), "a whole number of at least 0"),
        (json!(true), "true or false"),
        (json!("a"), "a string"),
        (json!(["a"]), "a list of strings"),
        (json!([1]), "a list of whole numbers of at least 0"),
    ];
    kinds.into_iter().find(|(value, _)| reads::<T>(name, value)).map_or("another type", |(_, kind)| kind)
}

/// Token ids: none, one, or a list of them.
pub(super) fn one_or_several<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u32>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Tokens {
        One(u32),
        Several(Vec<u32>),
    }
    Ok(match Option::<Tokens>::deserialize(deserializer)? {
        None => Vec::new(),
        Some(Tokens::One(token)) => vec![token],
        Some(Tokens::Several(tokens)) => tokens,
    })
}

fn as_number(value: &Json) -> Option<Json> {
    match value {
        Json::String(text) => {
            let text = text.trim();
            // As a whole number first, since a float would lose digits of a large one.
            text.parse::<u64>().map(Json::from).or_else(|_| text.parse::<f64>().map(Json::from)).ok()
        }
        Json::Number(number) => {
            // Below 2^53, up to which a float64 represents every whole number.
            let whole = number.as_f64().filter(|number| number.fract() == 0.0 && (0.0..9e15).contains(number))?;
            Some(Json::from(whole as u64))
        }
        _ => None,
    }
}
