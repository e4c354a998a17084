//! What a server needs before it can start, looked up without network: the weights of its models, and its image.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::Read,
    path::Path,
};

use external::container::ContainerCommand;
use schemas::sweep::SystemSettings;
use serde::Deserialize;

use super::launch::LaunchPlan;

/// The index of a checkpoint whose weights are in several files.
const INDEX: &str = "model.safetensors.index.json";
/// Largest index that is read, in bytes.
const LARGEST_INDEX: u64 = 64 << 20;

#[derive(Deserialize)]
struct Index {
    #[serde(default)]
    metadata: Metadata,
    weight_map: std::collections::BTreeMap<String, String>,
}

#[derive(Default, Deserialize)]
struct Metadata {
    /// Bytes of all weights.
    #[serde(default)]
    total_size: u64,
}

/// Messages about what the first start has to fetch.
///
/// # Errors
/// When a start would fail, because files of a downloaded checkpoint are missing.
pub fn look_up(plan: &LaunchPlan, settings: &SystemSettings) -> Result<Vec<String>, String> {
    let words = || settings.command.iter().chain(&settings.extra_args);
    let needs_weights = !words().any(|word| word == "dummy" || word == "--load-format=dummy");
    for (what, folder) in [("target", &plan.target), ("draft", &plan.draft)] {
        if needs_weights
            && !folder.is_empty()
            && let Some(missing) = missing_weights(Path::new(folder))
        {
            return Err(format!("the {what} is incomplete: {missing}"));
        }
    }
    let container = ContainerCommand::parse(&settings.command, "name");
    let Some((command, image)) = container.and_then(|one| Some((one.clone(), one.image?))) else {
        return Ok(Vec::new());
    };
    let runtime = command.container.runtime.join(" ");
    Ok(match command.has_image() {
        Some(true) => Vec::new(),
        Some(false) => vec![format!(
            "the image {image} is not on this machine: the first start fetches it, within start_timeout_s = {} s; to \
             fetch it before: {runtime} pull {image}",
            settings.start_timeout_s
        )],
        None => vec![format!("`{runtime} version` fails, so it is unknown whether the image {image} is there")],
    })
}

/// The files that a checkpoint's index lists and its folder does not have; `None` if it is complete, has no index, or is no
/// folder.
fn missing_weights(folder: &Path) -> Option<String> {
    let mut text = String::new();
    File::open(folder.join(INDEX)).ok()?.take(LARGEST_INDEX).read_to_string(&mut text).ok()?;
    // The engine reports an index that cannot be read.
    let index: Index = serde_json::from_str(&text).ok()?;
    let files: BTreeSet<&String> = index.weight_map.values().collect();
    // A link of the cache without its file is missing too.
    let sizes: Vec<Option<u64>> =
        files.iter().map(|name| fs::metadata(folder.join(name)).ok().map(|file| file.len())).collect();
    let missing = sizes.iter().filter(|size| size.is_none()).count();
    let first = files.iter().zip(&sizes).find(|(_, size)| size.is_none()).map(|(name, _)| name)?;
    let left = index.metadata.total_size.saturating_sub(sizes.iter().flatten().sum());
    let bytes = if left > 0 { format!(", about {:.1} GiB", left as f64 / f64::from(1 << 30)) } else { String::new() };
    Some(format!(
        "{missing} of the {} weight files of {} are not there{bytes} (the first is {first}). Download them with `hf download`; \
         a gated model needs HF_TOKEN",
        files.len(),
        folder.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_an_index_lists_and_a_folder_lacks_are_counted() {
        let folder = tempfile::tempdir().expect("a folder");
        assert_eq!(missing_weights(folder.path()), None);
        let index =
            r#"{"metadata": {"total_size": 3221225472}, "weight_map": {"x": "a.safetensors", "y": "b.safetensors"}}"#;
        fs::write(folder.path().join(INDEX), index).expect("a file");
        fs::write(folder.path().join("a.safetensors"), "1").expect("a file");
        std::os::unix::fs::symlink("nowhere", folder.path().join("b.safetensors")).expect("a link");
        let words = missing_weights(folder.path()).expect("a link without its file");
        assert!(words.starts_with("1 of the 2 weight files") && words.contains("about 3.0 GiB"), "{words}");
        fs::remove_file(folder.path().join("b.safetensors")).expect("a link");
        fs::write(folder.path().join("b.safetensors"), "1").expect("a file");
        assert_eq!(missing_weights(folder.path()), None);
        fs::write(folder.path().join(INDEX), "{").expect("a file");
        assert_eq!(missing_weights(folder.path()), None);
    }
}
