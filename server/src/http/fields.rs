//! The fields of a JSON body. Each is removed when it is read, so the remaining ones at the end
//! would be ignored. Errors name the parameter.

use std::{ops::RangeInclusive, time::Instant};

use serde_json::{Map, Value};

use super::{
    error::ApiError,
    memory::footprint,
    neutral::{self, Endpoint},
};

/// A JSON object that a client sent.
#[derive(Clone, Debug)]
pub struct Fields {
    fields: Map<String, Value>,
    /// Prefix of names in error messages, such as `sampling_params.`.
    place: String,
    endpoint: Endpoint,
    arrived: Instant,
}

impl Fields {
    /// Parses a body.
    ///
    /// # Errors
    /// When it is not a JSON object.
    pub fn parse(body: &[u8]) -> Result<Self, ApiError> {
        // The first bytes of gzip, which are no JSON.
        if body.starts_with(&[0x1f, 0x8b]) {
            return Err(ApiError::invalid(
                "the body is compressed by gzip: send the header Content-Encoding: gzip too",
            ));
        }
        match serde_json::from_slice(body) {
            Ok(Value::Object(fields)) => Ok(Self::new(fields)),
            Ok(other) => Err(ApiError::invalid(format!("expected a JSON object, found {}", kind(&other)))),
            Err(error) => Err(ApiError::invalid(format!("the body is not valid JSON: {error}"))),
        }
    }

    /// The fields of an object.
    pub fn new(fields: Map<String, Value>) -> Self {
        Self { fields, place: String::new(), endpoint: Endpoint::default(), arrived: Instant::now() }
    }

    /// Fields of the same endpoint and place.
    pub fn like(&self, fields: Map<String, Value>) -> Self {
        Self { fields, place: self.place.clone(), ..*self }
    }

    /// The fields of an object that was the value of a field.
    pub fn within(&self, name: &str, fields: Map<String, Value>) -> Self {
        Self { fields, place: format!("{}{name}.", self.place), ..*self }
    }

    /// Sets the endpoint, which decides which fields can be ignored.
    pub fn for_endpoint(self, endpoint: Endpoint) -> Self {
        Self { endpoint, ..self }
    }

    /// Sets the arrival time of the request.
    pub fn that_arrived(self, arrived: Instant) -> Self {
        Self { arrived, ..self }
    }

    /// Arrival time of the request, before its body was read.
    pub fn arrived(&self) -> Instant {
        self.arrived
    }

    /// Approximate size in memory, in bytes.
    pub fn footprint(&self) -> usize {
        self.fields.iter().map(|(name, value)| name.len() + footprint(value)).sum()
    }

    /// Removes and returns a value; null counts as absent.
    pub fn value(&mut self, name: &str) -> Option<Value> {
        self.fields.remove(name).filter(|value| !value.is_null())
    }

    /// A value that stays; null counts as absent.
    pub fn peek(&self, name: &str) -> Option<&Value> {
        self.fields.get(name).filter(|value| !value.is_null())
    }

    /// Sets a value.
    pub fn put(&mut self, name: &str, value: Value) {
        self.fields.insert(name.to_owned(), value);
    }

    /// The fields of a nested object; empty if it is absent.
    ///
    /// # Errors
    /// When it is present but not an object.
    pub fn object(&mut self, name: &str) -> Result<Self, ApiError> {
        match self.value(name) {
            None => Ok(self.within(name, Map::new())),
            Some(Value::Object(fields)) => Ok(self.within(name, fields)),
            Some(other) => Err(self.wrong(name, "an object", &other)),
        }
    }

    /// A string.
    ///
    /// # Errors
    /// When it is present but of another type.
    pub fn text(&mut self, name: &str) -> Result<Option<String>, ApiError> {
        self.read(name, "a string", |value| value.as_str().map(ToOwned::to_owned))
    }

    /// A boolean; false if absent.
    ///
    /// # Errors
    /// When it is present but of another type.
    pub fn flag(&mut self, name: &str) -> Result<bool, ApiError> {
        self.flag_or(name, false)
    }

    /// A boolean with a default.
    ///
    /// # Errors
    /// When it is present but of another type.
    pub fn flag_or(&mut self, name: &str, default: bool) -> Result<bool, ApiError> {
        self.read(name, "true or false", Value::as_bool).map(|flag| flag.unwrap_or(default))
    }

    /// A number in a range.
    ///
    /// # Errors
    /// When it is present but of another type, or out of range.
    pub fn number(&mut self, name: &str, range: RangeInclusive<f64>) -> Result<Option<f64>, ApiError> {
        let number = self.read(name, "a number", Value::as_f64)?;
        let most = (*range.end() < f64::MAX).then(|| range.end().to_string());
        self.inside(name, number, &range, most)
    }

    /// An integer in a range.
    ///
    /// # Errors
    /// When it is present but of another type, or out of range.
    pub fn integer(&mut self, name: &str, range: RangeInclusive<i64>) -> Result<Option<i64>, ApiError> {
        let number = self.read(name, "an integer", integer)?;
        let most = (*range.end() < i64::MAX).then(|| range.end().to_string());
        self.inside(name, number, &range, most)
    }

    /// A seed: any 64-bit integer, signed or unsigned.
    ///
    /// # Errors
    /// When it is present but of another type.
    pub fn seed(&mut self, name: &str) -> Result<Option<u64>, ApiError> {
        let read = |value: &Value| value.as_u64().or_else(|| integer(value).map(|seed| seed as u64));
        self.read(name, "an integer of 64 bits", read)
    }

    /// One string or several.
    ///
    /// # Errors
    /// When it is present but of another type, or there are more than `most`.
    pub fn texts(&mut self, name: &str, most: usize) -> Result<Vec<String>, ApiError> {
        let value = self.value(name).map(|value| if value.is_string() { Value::Array(vec![value]) } else { value });
        let read = |item: &Value| item.as_str().map(ToOwned::to_owned);
        self.list(name, "a string or a list of strings", value, most, read)
    }

    /// A list of token ids.
    ///
    /// # Errors
    /// When it is present but of another type, or there are more than `most`.
    pub fn tokens(&mut self, name: &str, most: usize) -> Result<Vec<u32>, ApiError> {
        let value = self.value(name);
        self.list(name, "a list of token ids", value, most, token)
    }

    /// Checks that every remaining field has no effect, so that nothing is ignored silently.
    ///
    /// # Errors
    /// When a field has not been read and its value would have an effect.
    pub fn finish(self) -> Result<(), ApiError> {
        for (name, value) in &self.fields {
            let field = format!("{}{name}", self.place);
            if !neutral::has_no_effect(self.endpoint, &field, value) {
                let reason = neutral::reason(&field).map(|reason| format!(" ({reason})")).unwrap_or_default();
                let message = format!("{name} is not supported by this server with this value{reason}; leave it out");
                return Err(ApiError::parameter(&field, message));
            }
        }
        Ok(())
    }

    /// An error about one of these fields.
    pub fn complain(&self, name: &str, message: impl Into<String>) -> ApiError {
        ApiError::parameter(&format!("{}{name}", self.place), message)
    }

    /// An error about a field of the wrong type.
    pub fn wrong(&self, name: &str, expected: &str, found: &Value) -> ApiError {
        self.complain(name, format!("{name}: expected {expected}, found {}", kind(found)))
    }

    fn read<T>(
        &mut self,
        name: &str,
        expected: &str,
        read: impl FnOnce(&Value) -> Option<T>,
    ) -> Result<Option<T>, ApiError> {
        let Some(value) = self.value(name) else { return Ok(None) };
        read(&value).map(Some).ok_or_else(|| self.wrong(name, expected, &value))
    }

    fn inside<T: PartialOrd + std::fmt::Display>(
        &self,
        name: &str,
        number: Option<T>,
        range: &RangeInclusive<T>,
        most: Option<String>,
    ) -> Result<Option<T>, ApiError> {
        match number {
            Some(number) if !range.contains(&number) => {
                let least = range.start();
                let expected = most.map_or(format!("at least {least}"), |most| format!("{least} to {most}"));
                Err(self.complain(name, format!("{name} is {number}, expected {expected}")))
            }
            number => Ok(number),
        }
    }

    fn list<T>(
        &self,
        name: &str,
        expected: &str,
        value: Option<Value>,
        most: usize,
        read: impl Fn(&Value) -> Option<T>,
    ) -> Result<Vec<T>, ApiError> {
        let Some(value) = value else { return Ok(Vec::new()) };
        let list = value.as_array().ok_or_else(|| self.wrong(name, expected, &value))?;
        if list.len() > most {
            return Err(self.complain(name, format!("{name} has {} entries; the maximum is {most}", list.len())));
        }
        list.iter().map(|item| read(item).ok_or_else(|| self.wrong(name, expected, item))).collect()
    }
}

/// An integer, also if written as `16.0`, as far as such numbers are exact.
pub fn integer(value: &Value) -> Option<i64> {
    // Some clients write integers as 16.0; above this, floats skip integers.
    const EXACT: f64 = (1_u64 << f64::MANTISSA_DIGITS) as f64;
    let float = || value.as_f64().filter(|number| number.fract() == 0.0 && number.abs() < EXACT);
    value.as_i64().or_else(|| float().map(|number| number as i64))
}

/// A token id.
pub fn token(value: &Value) -> Option<u32> {
    u32::try_from(integer(value)?).ok()
}

/// Token ids.
pub fn tokens(value: &Value) -> Option<Vec<u32>> {
    value.as_array()?.iter().map(token).collect()
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(list) if list.is_empty() => "an empty list",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn integers_may_be_written_as_floats() {
        let check = |value: Value, expected: Option<i64>| assert_eq!(integer(&value), expected, "{value}");
        check(json!(16), Some(16));
        check(json!(16.0), Some(16));
        check(json!(-3.0), Some(-3));
        check(json!(16.5), None);
        check(json!(1e300), None);
        check(json!(u64::MAX), None);
        check(json!("16"), None);
        let mut fields = Fields::parse(br#"{"a": 18446744073709551615, "b": -1, "c": 2.0}"#).expect("an object");
        let mut seed = |name: &str| fields.seed(name).ok().flatten();
        assert_eq!((seed("a"), seed("b"), seed("c")), (Some(u64::MAX), Some(u64::MAX), Some(2)));
    }
}
