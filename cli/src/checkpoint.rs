//! Checkpoints as users name them: folders, or models downloaded from the Hugging Face hub.

use std::path::Path;

use anyhow::{Context, bail};
use facts::{Hub, HubCache, is_id};

/// The folder of a checkpoint. A name that is a folder relative to `from`, or that cannot be a hub
/// id, is returned unchanged; a hub id is looked up in the local cache. Nothing is downloaded.
///
/// # Errors
/// When the name may be a hub id and is not in the cache.
pub fn folder(from: &Path, name: &str) -> anyhow::Result<String> {
    /// The hub's default branch.
    const BRANCH: &str = "main";
    if from.join(name).exists() || !is_id(name) {
        return Ok(name.to_owned());
    }
    let cache = HubCache::from_environment();
    let Some(snapshot) = cache.as_ref().and_then(|cache| cache.find(name, BRANCH)) else {
        let place = match &cache {
            Some(cache) => format!("the Hugging Face cache {}", cache.root().display()),
            None => "a Hugging Face cache (set HF_HOME to where it is)".into(),
        };
        let gated = match Hub::from_environment().has_token() {
            true => "",
            false => " (if the model is gated, set HF_TOKEN or run `hf auth login` before; no token is set)",
        };
        bail!(
            "{name} is neither a folder nor in {place}: give the checkpoint's folder, or download it with \
             `hf download {name}`{gated}"
        );
    };
    let path = snapshot.to_str().with_context(|| format!("{}: the path is not UTF-8", snapshot.display()))?;
    Ok(path.to_owned())
}
