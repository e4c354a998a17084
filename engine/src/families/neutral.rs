//! Values of settings that have no effect.

use serde_json::Value as Json;

/// The value of a setting that, like its absence, has no effect.
#[derive(Clone, Copy, Debug)]
pub enum Neutral {
    /// False, zero, null or an empty list.
    Off,
    /// A factor of one.
    One,
}

/// Whether a setting is off: false, zero, null or an empty list.
pub fn is_off(value: &Json) -> bool {
    Neutral::Off.is(value)
}

impl Neutral {
    /// Whether a value has no effect.
    pub fn is(self, value: &Json) -> bool {
        match (self, value) {
            (_, Json::Null | Json::Bool(false)) => true,
            (_, Json::Array(values)) => values.is_empty(),
            (Self::Off, Json::Number(number)) => number.as_f64() == Some(0.0),
            (Self::One, Json::Number(number)) => number.as_f64() == Some(1.0),
            // Names of the standard choices.
            (_, Json::String(name)) => matches!(name.as_str(), "rope" | "rotary" | "rms_norm" | "rmsnorm" | "none"),
            _ => false,
        }
    }
}
