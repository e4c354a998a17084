//! Files of prompts as users name them: paths, or data sets downloaded from the Hugging Face hub.

use std::path::Path;

use anyhow::{Context, bail};
use facts::HubCache;
use schemas::quoting::quoted;

use crate::terminal;

/// The file of prompts with this name. A name that is a file relative to `from`, or that no data
/// set in the local cache has, is returned unchanged. Which file of a data set is read is said on
/// standard error. Nothing is downloaded.
///
/// # Errors
/// When the data set has no file that can be read; for Parquet, with the command that converts it.
pub fn file(from: &Path, name: &str) -> anyhow::Result<String> {
    if from.join(name).exists() {
        return Ok(name.to_owned());
    }
    let Some(set) = HubCache::from_environment().and_then(|cache| cache.data_set(name)) else {
        return Ok(name.to_owned());
    };
    let Some(chosen) = set.readable.first() else {
        if let Some(parquet) = set.parquet.first() {
            // The reader of prompts knows the command.
            let path = set.folder.join(parquet);
            return Ok(path.to_str().context("the path of the data set is not UTF-8")?.to_owned());
        }
        let folder = set.folder.display();
        match name == set.id {
            true => bail!("the data set {name} in {folder} has no JSON or CSV file: convert one of its files"),
            false => bail!("the data set {} has no such file: ls {}", set.id, quoted(&folder.to_string())),
        }
    };
    let path = set.folder.join(chosen);
    let others = match set.readable.len() - 1 {
        0 => String::new(),
        1 => " (of 2 files)".into(),
        more => format!(" (of {} files)", more + 1),
    };
    terminal::note(&format!(
        "prompts: {} of the data set {}{others}; another file: {}/PATH",
        chosen.display(),
        set.id,
        set.id
    ));
    Ok(path.to_str().context("the path of the data set is not UTF-8")?.to_owned())
}
