//! Lenient reading of JSON: values that are written in several ways, and objects field by field, so
//! that one unreadable field does not affect the others.

use serde::{Deserialize, Deserializer, de::DeserializeOwned};
use serde_json::{Map, Value as Json};

/// The fields that `T` can read, either as they are or converted to a number (from a string or a
/// float without a fraction). The names of the other fields are added to `unread`, prefixed with
/// `place`.
pub(super) fn readable<T: DeserializeOwned>(
    object: Map<String, Json>,
    place: &str,
    unread: &mut Vec<String>,
) -> Map<String, Json> {
    let reads = |name: &str, value: &Json| {
        let single = Map::from_iter([(name.to_owned(), value.clone())]);
        serde_json::from_value::<T>(Json::Object(single)).is_ok()
    };
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
                unread.push(format!("{place}{name}"));
            }
            Some((name, number?))
        })
        .collect()
}

/// Applies [`readable`] to the object under `name`. Any other value there is removed, and added to
/// `unread` unless null.
pub(super) fn nested<T: DeserializeOwned>(object: &mut Map<String, Json>, name: &str, unread: &mut Vec<String>) {
    match object.remove(name) {
        None | Some(Json::Null) => {}
        Some(Json::Object(inner)) => {
            let inner = readable::<T>(inner, &format!("{name}."), unread);
            object.insert(name.to_owned(), Json::Object(inner));
        }
        Some(_) => unread.push(name.to_owned()),
    }
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
