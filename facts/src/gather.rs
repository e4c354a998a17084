//! Gathers the facts that rules use from the files of a checkpoint.

use schemas::model::{GenerationConfig, ModelConfig, ModelFacts, TokenizerFacts};

use crate::{Error, Files, tensors};

const LONGEST_CONFIG: u64 = 16 << 20;

const LONGEST_TOKENIZER: u64 = 128 << 20;

/// Files to read in addition to the config.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ModelPlaces {
    /// tokenizer.json, which can be several megabytes.
    pub tokenizer: bool,
}

/// The facts of a checkpoint.
#[derive(Clone, Debug)]
pub struct GatheredFacts {
    /// All facts that could be read.
    pub facts: ModelFacts,
    /// What could not be read, and why.
    pub notes: Vec<String>,
}

/// Reads a checkpoint. A missing or malformed part is skipped with a note; only config.json is
/// required.
///
/// # Errors
/// When config.json is missing or invalid.
pub fn gather(files: &dyn Files, name: &str, wanted: ModelPlaces) -> Result<GatheredFacts, Error> {
    const CONFIG: &str = "config.json";
    let malformed = |reason: String| Error::Malformed { place: files.place(CONFIG), reason };
    let text = text(files, CONFIG, LONGEST_CONFIG)?;
    let text = text.ok_or_else(|| malformed("missing: this is not a Hugging Face checkpoint".into()))?;
    let config = ModelConfig::parse(&text).map_err(|error| malformed(error.to_string()))?;
    let mut facts = ModelFacts { name: name.to_owned(), origin: files.place(CONFIG), config, ..ModelFacts::default() };
    let mut notes = Vec::new();
    const GENERATION: &str = "generation_config.json";
    facts.generation = optional(files, GENERATION, LONGEST_CONFIG, &mut notes, |text| {
        GenerationConfig::parse(text).map_err(|error| error.to_string())
    });
    if let Some(generation) = facts.generation.as_ref().filter(|generation| !generation.unread.is_empty()) {
        let unread: Vec<String> = generation.unread.iter().map(ToString::to_string).collect();
        notes.push(format!("{}: skipped: {}", files.place(GENERATION), unread.join("; ")));
    }
    if wanted.tokenizer {
        facts.tokenizer = optional(files, "tokenizer.json", LONGEST_TOKENIZER, &mut notes, |text| {
            TokenizerFacts::parse(text).map_err(|error| error.to_string())
        });
    }
    tensors::read(files, &mut facts, &mut notes);
    Ok(GatheredFacts { facts, notes })
}

/// An optional file; a malformed one is reported and counts as absent.
fn optional<T>(
    files: &dyn Files,
    name: &str,
    limit: u64,
    notes: &mut Vec<String>,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Option<T> {
    let read = text(files, name, limit).and_then(|text| {
        let parsed = text.map(|text| parse(&text)).transpose();
        parsed.map_err(|reason| Error::Malformed { place: files.place(name), reason })
    });
    read.unwrap_or_else(|error| {
        notes.push(error.to_string());
        None
    })
}

fn text(files: &dyn Files, name: &str, limit: u64) -> Result<Option<String>, Error> {
    let Some(bytes) = files.whole(name, limit)? else { return Ok(None) };
    let malformed = |error: std::string::FromUtf8Error| Error::Malformed {
        place: files.place(name),
        reason: format!("not UTF-8 text (first bad byte at offset {})", error.utf8_error().valid_up_to()),
    };
    String::from_utf8(bytes).map(Some).map_err(malformed)
}
