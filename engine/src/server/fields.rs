//! The fields of a JSON body, read one by one so that every complaint names its parameter.

use serde_json::{Map, Value};

use super::error::ApiError;

/// A JSON object that a client sent.
#[derive(Clone, Debug)]
pub struct Fields(Map<String, Value>);

impl Fields {
    /// Reads a body.
    ///
    /// # Errors
    /// When it is no JSON object.
    pub fn parse(body: &[u8]) -> Result<Self, ApiError> {
        match serde_json::from_slice(body) {
            Ok(Value::Object(fields)) => Ok(Self(fields)),
            Ok(other) => Err(ApiError::invalid(format!("expected a JSON object, found {}", kind(&other)))),
            Err(error) => Err(ApiError::invalid(format!("the body is not valid JSON: {error}"))),
        }
    }

    /// The fields of an object inside; none where it is absent.
    ///
    /// # Errors
    /// When it is there and no object.
    pub fn object(&self, name: &str) -> Result<Self, ApiError> {
        match self.value(name) {
            None => Ok(Self(Map::new())),
            Some(Value::Object(fields)) => Ok(Self(fields.clone())),
            Some(other) => Err(wrong(name, "an object", other)),
        }
    }

    /// A value; null counts as absent.
    pub fn value(&self, name: &str) -> Option<&Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    /// A text.
    ///
    /// # Errors
    /// When it is there and something else.
    pub fn text(&self, name: &str) -> Result<Option<&str>, ApiError> {
        self.read(name, "a string", Value::as_str)
    }

    /// A switch; off where it is absent.
    ///
    /// # Errors
    /// When it is there and something else.
    pub fn flag(&self, name: &str) -> Result<bool, ApiError> {
        self.read(name, "true or false", Value::as_bool).map(Option::unwrap_or_default)
    }

    /// A number in a range.
    ///
    /// # Errors
    /// When it is there and something else, or outside.
    pub fn number(&self, name: &str, least: f64, most: f64) -> Result<Option<f64>, ApiError> {
        match self.read(name, "a number", Value::as_f64)? {
            Some(number) if !(least..=most).contains(&number) => {
                Err(ApiError::parameter(name, format!("{name} is {number}, expected {least} to {most}")))
            }
            number => Ok(number),
        }
    }

    /// An integer in a range.
    ///
    /// # Errors
    /// When it is there and something else, or outside.
    pub fn integer(&self, name: &str, least: i64, most: i64) -> Result<Option<i64>, ApiError> {
        match self.read(name, "an integer", Value::as_i64)? {
            Some(number) if !(least..=most).contains(&number) => {
                Err(ApiError::parameter(name, format!("{name} is {number}, expected {least} to {most}")))
            }
            number => Ok(number),
        }
    }

    /// One text or several.
    ///
    /// # Errors
    /// When it is there and something else, or there are more than `most`.
    pub fn texts(&self, name: &str, most: usize) -> Result<Vec<String>, ApiError> {
        match self.value(name) {
            Some(Value::String(text)) => Ok(vec![text.clone()]),
            _ => self.list(name, "a string or a list of strings", most, |value| value.as_str().map(ToOwned::to_owned)),
        }
    }

    /// A list of token ids.
    ///
    /// # Errors
    /// When it is there and something else, or there are more than `most`.
    pub fn tokens(&self, name: &str, most: usize) -> Result<Vec<u32>, ApiError> {
        self.list(name, "a list of token ids", most, token)
    }

    /// Complains of parameters that this server does not implement, unless they have their neutral value.
    ///
    /// # Errors
    /// When one of them asks for something.
    pub fn refuse(&self, names: &[&str]) -> Result<(), ApiError> {
        let asks = |value: &Value| match value {
            Value::Null | Value::Bool(false) => false,
            Value::Number(number) => number.as_f64() != Some(0.0),
            Value::Array(list) => !list.is_empty(),
            Value::Object(fields) => !fields.is_empty() && fields.get("type") != Some(&"text".into()),
            Value::String(text) => !["none", "auto", ""].contains(&text.as_str()),
            Value::Bool(true) => true,
        };
        match names.iter().find(|name| self.0.get(**name).is_some_and(asks)) {
            None => Ok(()),
            Some(name) => Err(ApiError::parameter(name, format!("{name} is not supported by this server"))),
        }
    }

    fn read<'a, T>(
        &'a self,
        name: &str,
        expected: &str,
        read: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, ApiError> {
        let Some(value) = self.value(name) else { return Ok(None) };
        read(value).map(Some).ok_or_else(|| wrong(name, expected, value))
    }

    fn list<T>(
        &self,
        name: &str,
        expected: &str,
        most: usize,
        read: impl Fn(&Value) -> Option<T>,
    ) -> Result<Vec<T>, ApiError> {
        let Some(value) = self.value(name) else { return Ok(Vec::new()) };
        let list = value.as_array().ok_or_else(|| wrong(name, expected, value))?;
        if list.len() > most {
            return Err(ApiError::parameter(
                name,
                format!("{name} has {} entries, at most {most} are taken", list.len()),
            ));
        }
        list.iter().map(|item| read(item).ok_or_else(|| wrong(name, expected, item))).collect()
    }
}

/// A token id.
pub fn token(value: &Value) -> Option<u32> {
    u32::try_from(value.as_u64()?).ok()
}

/// A parameter of the wrong type.
pub fn wrong(name: &str, expected: &str, found: &Value) -> ApiError {
    ApiError::parameter(name, format!("{name}: expected {expected}, found {}", kind(found)))
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
