//! Container images and sources of the engines: the table `data/images.toml`.

use std::{collections::BTreeMap, sync::LazyLock};

use schemas::engines::Engine;
use serde::Deserialize;

/// What an image starts by itself.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(super) enum EntryPoint {
    /// The server.
    Server,
    /// The arguments, as a command.
    Nothing,
}

#[derive(Debug, Default, Deserialize)]
struct ImageTable {
    publishers: Vec<String>,
    owners: Vec<String>,
    others: Vec<String>,
    entry_points: BTreeMap<String, EntryPoint>,
}

const TEXT: &str = include_str!("../data/images.toml");

static TABLE: LazyLock<ImageTable> = LazyLock::new(|| toml::from_str(TEXT).unwrap_or_default());

/// The engine of an image, judging by its name.
pub(super) fn engine_of_image(image: &str) -> Option<Engine> {
    let name = name_of(image);
    match () {
        () if name.contains("sglang") || name.contains("sgl-dev") => Some(Engine::Sglang),
        () if name.contains("vllm") || image.contains("vllm/") => Some(Engine::Vllm),
        () => None,
    }
}

/// Whether an image contains another engine, judging by its name.
pub(super) fn is_of_other_engine(image: &str) -> bool {
    let name = name_of(image);
    TABLE.others.iter().any(|other| name == *other || (other.len() > 3 && name.contains(other.as_str())))
}

/// Whether a word is the name of another engine.
pub(super) fn is_other_engine(word: &str) -> bool {
    TABLE.others.iter().any(|other| other == word)
}

/// The name of an image in lower case, without namespace, tag and digest.
fn name_of(image: &str) -> String {
    let name = image.rsplit('/').next().and_then(|name| name.split([':', '@']).next());
    name.unwrap_or_default().to_ascii_lowercase()
}

/// Whether an image is published by the engines' projects or by GPU vendors, judging by its
/// namespace and name.
pub(super) fn is_published(image: &str) -> bool {
    let name = image.trim_start_matches("docker://").replace(['+', '#'], "/");
    let mut parts = name.rsplit('/').skip(1);
    // A published image may have been imported into a file; an image without a namespace is built
    // locally.
    let is_file = name.starts_with(['/', '.', '~']) || name.ends_with(".sqsh");
    is_file || parts.next().is_some_and(|publisher| TABLE.publishers.contains(&publisher.to_ascii_lowercase()))
}

/// Whether an address is one of an engine's own repository.
pub(super) fn is_own_source(address: &str) -> bool {
    TABLE.owners.iter().any(|owner| address.split(['/', ':']).any(|part| part == owner))
}

/// The entry point of an image, if known. Mirrors keep the names of what they copy.
pub(super) fn entry_point(image: &str) -> Option<EntryPoint> {
    let name = image.trim_start_matches("docker://").split(['@', '$']).next()?;
    // A port belongs to the registry.
    let name = name.rsplit_once(':').filter(|(_, tag)| !tag.contains('/')).map_or(name, |(name, _)| name);
    let is = |own: &str| name == own || name.strip_suffix(own).is_some_and(|registry| registry.ends_with('/'));
    TABLE.entry_points.iter().find(|(own, _)| is(own)).map(|(_, entry_point)| *entry_point)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted() {
        let table: ImageTable = toml::from_str(TEXT).expect("a table of images");
        for list in [&table.publishers, &table.owners, &table.others] {
            assert!(!list.is_empty() && list.windows(2).all(|pair| pair[0] < pair[1]), "{list:?}");
        }
        assert!(!table.entry_points.is_empty());
    }

    #[test]
    fn entry_points_are_known_by_the_name_of_the_image() {
        for image in ["vllm/vllm-openai", "docker.io/vllm/vllm-openai:v0.17.1", "mirror:5000/vllm/vllm-openai@sha256:0"]
        {
            assert_eq!(entry_point(image), Some(EntryPoint::Server), "{image}");
        }
        assert_eq!(entry_point("lmsysorg/sglang:v0.5.9-cu129"), Some(EntryPoint::Nothing));
        for image in
            ["me/vllm-openai:v1", "vllm/vllm-openai-tools", "rocm/vllm:latest", "nvcr.io/nvidia/vllm:26.01-py3"]
        {
            assert_eq!(entry_point(image), None, "{image}");
        }
    }

    #[test]
    fn other_engines_are_known_by_the_name_of_the_image() {
        for (image, expected) in [
            ("ghcr.io/huggingface/text-generation-inference:2.0", true),
            ("ghcr.io/huggingface/tgi", true),
            ("lmsysorg/sglang:v0.5.9", false),
            ("me/tgi-bench", false),
        ] {
            assert_eq!(is_of_other_engine(image), expected, "{image}");
        }
    }

    #[test]
    fn sources_have_owners() {
        assert!(is_own_source("https://github.com/sgl-project/sglang.git"));
        assert!(!is_own_source("https://github.com/me/sglang"));
    }
}
