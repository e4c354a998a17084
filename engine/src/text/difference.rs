//! Whether two tokenizers number tokens in the same way.

use tokenizers::Tokenizer;

use crate::{checkpoint::Folder, error::EngineError};

/// The first token, by its number in the first tokenizer, that the second numbers differently or
/// does not have, or a token that only the second has; in words. `None` if the two agree, or if a
/// folder has no tokenizer.json.
///
/// # Errors
/// When an existing file is invalid.
pub fn first_difference(one: &Folder, other: &Folder) -> Result<Option<String>, EngineError> {
    let (Some(one), Some(other)) = (tokenizer_json(one)?, tokenizer_json(other)?) else { return Ok(None) };
    if one.1 == other.1 {
        return Ok(None);
    }
    let [one, other] = [parsed(one)?, parsed(other)?].map(|tokenizer| tokenizer.get_vocab(true));
    let differs = |token: &&String| one.get(*token) != other.get(*token);
    let found = one.keys().filter(differs).min_by_key(|token| one.get(*token));
    let found = found.or_else(|| other.keys().filter(differs).min_by_key(|token| other.get(*token)));
    let number = |number: Option<&u32>| number.map_or("no token".to_owned(), |number| format!("token {number}"));
    Ok(found.map(|token| {
        format!("{token:?} is {} of it and {} of the target", number(other.get(token)), number(one.get(token)))
    }))
}

/// The folder's path and the text of its tokenizer.json.
fn tokenizer_json(folder: &Folder) -> Result<Option<(std::path::PathBuf, String)>, EngineError> {
    let json = folder.optional("tokenizer.json")?;
    Ok(json.map(|json| (folder.path().join("tokenizer.json"), json)))
}

fn parsed((path, json): (std::path::PathBuf, String)) -> Result<Tokenizer, EngineError> {
    json.parse::<Tokenizer>().map_err(|error| EngineError::Malformed { path, reason: error.to_string() })
}
