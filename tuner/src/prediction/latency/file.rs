//! The model as a file: JSON with a format version.

use std::path::Path;

use super::{LatencyError, RoundModel};
use crate::{TunerError, files::atomic_file};

/// Version of the file's format.
pub const FORMAT: u32 = 5;

impl RoundModel {
    /// Serialises the model as JSON.
    ///
    /// # Errors
    /// When a number in it is not finite.
    pub fn to_json(&self) -> Result<String, LatencyError> {
        serde_json::to_string_pretty(self).map_err(|error| LatencyError::File(error.to_string()))
    }

    /// Parses a model from JSON.
    ///
    /// # Errors
    /// When it is not a model, or has another format.
    pub fn from_json(text: &str) -> Result<Self, LatencyError> {
        #[derive(serde::Deserialize)]
        struct LatencyFileVersion {
            format: u32,
        }
        let wrong = |reason: String| LatencyError::File(reason);
        let LatencyFileVersion { format } = serde_json::from_str(text).map_err(|error| wrong(error.to_string()))?;
        if format != FORMAT {
            return Err(wrong(format!(
                "format {format}, but this version reads format {FORMAT}: time the rounds again"
            )));
        }
        let model: Self = serde_json::from_str(text).map_err(|error| wrong(error.to_string()))?;
        model.machine.check()?;
        let positive = model.parameters.values().iter().all(|value| value.is_finite() && *value > 0.0);
        let is_share = (0.0..=1.0).contains(&model.empty_place);
        if !positive || !is_share || !model.residuals.is_sound() {
            return Err(wrong("its numbers are inconsistent: the file was edited or truncated".into()));
        }
        Ok(model)
    }

    /// Writes the model into a folder atomically.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, folder: &Path, name: &str) -> Result<(), TunerError> {
        let malformed =
            |error: LatencyError| TunerError::Malformed { path: folder.join(name), reason: error.to_string() };
        atomic_file::write(folder, name, self.to_json().map_err(malformed)?.as_bytes())
    }
}
