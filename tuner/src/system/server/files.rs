//! What a server needs before it can start, looked up without network: its program or its image,
//! and the weights of its models.

use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    fs::{self, File},
    io::Read,
    path::{Path, PathBuf},
};

use external::program::{self, ProgramState};
use schemas::sweep::SystemSettings;
use serde::Deserialize;

use super::{container::ContainerCommand, launch::LaunchPlan};

/// Indexes of checkpoints whose weights are in several files, in the order in which engines look
/// for them.
const INDEXES: [&str; 2] = ["model.safetensors.index.json", "pytorch_model.bin.index.json"];
/// Extensions of files with weights.
const WEIGHTS: [&str; 5] = ["safetensors", "bin", "pt", "pth", "gguf"];
/// Largest index that is read, in bytes.
const LARGEST_INDEX: u64 = 64 << 20;
/// Words that run a command in a folder, which comes after them.
pub const IN_FOLDER: [&str; 3] = ["sh", "-c", "cd \"$0\" && exec \"$@\""];
/// Variables that hold a token of the hub.
const TOKENS: [&str; 2] = ["HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"];

/// What is known of one thing that a start needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileLookup {
    /// `target`, `draft`, `program` or `image`.
    pub what: &'static str,
    /// What was found, or what is missing and what to do.
    pub words: String,
    /// What follows for a start.
    pub state: LookupState,
}

/// Whether a start can use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookupState {
    /// It is on this machine.
    Here,
    /// The first start fetches it, or it is unknown.
    Later,
    /// A start would fail.
    Missing,
}

#[derive(Deserialize)]
struct ShardIndex {
    #[serde(default)]
    metadata: Metadata,
    weight_map: BTreeMap<String, String>,
}

#[derive(Default, Deserialize)]
struct Metadata {
    /// Bytes of all weights.
    #[serde(default)]
    total_size: u64,
}

/// The weights of a folder.
struct WeightFiles {
    /// Sizes by name; `None` for a file that an index lists or a link names, and that does not
    /// exist.
    files: BTreeMap<String, Option<u64>>,
    /// Bytes of all files according to the index; 0 if unknown.
    total: u64,
}

impl FileLookup {
    /// Why no server can start, if it is missing.
    pub fn refusal(&self) -> Option<String> {
        let Self { what, words, state } = self;
        let is_model = matches!(*what, "target" | "draft");
        (*state == LookupState::Missing).then(|| match is_model {
            true => format!("the {what} is incomplete: {words}"),
            false => words.clone(),
        })
    }
}

/// The program or image, and the models, that the servers of a sweep need.
pub fn look_up(plan: &LaunchPlan, settings: &SystemSettings) -> Vec<FileLookup> {
    let words = || settings.command.iter().chain(&settings.extra_args);
    let is_random = words().any(|word| word == "dummy" || word == "--load-format=dummy");
    let own = plan.drafts.is_empty().then_some(("draft", &plan.draft));
    let drafts = plan.drafts.iter().map(|one| ("draft", &one.draft)).chain(own);
    let named =
        std::iter::once(("target", &plan.target)).chain(drafts).filter(|(_, folder)| !folder.is_empty() && !is_random);
    let has_token = has_token(settings);
    let models = named.map(|(what, folder)| model(what, folder, has_token));
    models.chain(image(settings).or_else(|| program(settings))).collect()
}

/// The weights of a model. An id that is not a folder is looked up by the engine.
fn model(what: &'static str, name: &str, has_token: bool) -> FileLookup {
    let folder = Path::new(name);
    let gated = if has_token {
        "a token is set, as gated models need"
    } else {
        "if the model is gated, it also needs a token: set HF_TOKEN or run `hf auth login`; none is set"
    };
    let download =
        || format!("download it with `hf download {}`; {gated}", id(folder).unwrap_or_else(|| name.to_owned()));
    if !folder.is_dir() {
        let words = format!("{name} is not a folder on this machine: the first start fetches it; {gated}");
        return FileLookup { what, words, state: LookupState::Later };
    }
    let missing = |words: String| FileLookup { what, words, state: LookupState::Missing };
    let weights = weights(folder);
    let partial = match partial_bytes(folder) {
        0 => String::new(),
        bytes => format!(", {} of a download that has not ended are there", size(bytes)),
    };
    if weights.files.is_empty() {
        return missing(format!(
            "{name} contains no weights (no index, and no file of {}){partial}: {}",
            WEIGHTS.map(|one| format!("*.{one}")).join(", "),
            download()
        ));
    }
    let here: u64 = weights.files.values().flatten().sum();
    let lacking: Vec<&String> = weights.files.iter().filter(|(_, size)| size.is_none()).map(|(name, _)| name).collect();
    let Some(first) = lacking.first() else {
        let (count, all) = (weights.files.len(), size(here));
        let files = if count == 1 { "1 weight file".into() } else { format!("{count} weight files") };
        return FileLookup { what, words: format!("{name}: {files}, {all}"), state: LookupState::Here };
    };
    let left = weights.total.saturating_sub(here);
    let bytes = if left > 0 { format!(", about {} to fetch", size(left)) } else { String::new() };
    missing(format!(
        "{} of the {} weight files of {name} are missing{bytes}{partial} (the first is {first}): {}",
        lacking.len(),
        weights.files.len(),
        download()
    ))
}

/// The weights that a folder's index lists; without an index, all files with weights.
fn weights(folder: &Path) -> WeightFiles {
    let length = |name: &str| fs::metadata(folder.join(name)).ok().map(|file| file.len());
    // An index names all shards, so that missing ones are noticed; a folder shows only those there.
    for index in INDEXES {
        let mut text = String::new();
        let Ok(file) = File::open(folder.join(index)) else { continue };
        // The engine reports an index that cannot be read.
        if file.take(LARGEST_INDEX).read_to_string(&mut text).is_err() {
            continue;
        }
        let Ok(ShardIndex { metadata, weight_map }) = serde_json::from_str::<ShardIndex>(&text) else { continue };
        let names: BTreeSet<String> = weight_map.into_values().collect();
        let files = names.into_iter().map(|name| (name.clone(), length(&name))).collect();
        return WeightFiles { files, total: metadata.total_size };
    }
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let is_weights = |name: &String| {
        Path::new(name).extension().is_some_and(|extension| WEIGHTS.iter().any(|one| extension == *one))
    };
    WeightFiles { files: names.filter(is_weights).map(|name| (name.clone(), length(&name))).collect(), total: 0 }
}

/// The hub's id of a snapshot in its cache: `models--ORG--NAME/snapshots/REVISION`.
fn id(folder: &Path) -> Option<String> {
    let name = repository(folder)?;
    Some(name.file_name()?.to_str()?.strip_prefix("models--")?.replace("--", "/"))
}

/// The folder of a repository in the hub's cache that a snapshot belongs to.
fn repository(snapshot: &Path) -> Option<PathBuf> {
    let snapshots = snapshot.parent()?;
    (snapshots.file_name()? == "snapshots").then(|| snapshots.parent().map(Path::to_owned))?
}

/// Bytes of downloads into the cache that have not ended.
fn partial_bytes(snapshot: &Path) -> u64 {
    let Some(repository) = repository(snapshot) else { return 0 };
    let entries = fs::read_dir(repository.join("blobs")).into_iter().flatten().flatten();
    let partial = entries.filter(|entry| entry.path().extension().is_some_and(|extension| extension == "incomplete"));
    partial.filter_map(|entry| entry.metadata().ok()).map(|metadata| metadata.len()).sum()
}

/// Whether a server would have a token of the hub: in its environment, or in the file of
/// `hf auth login`.
fn has_token(settings: &SystemSettings) -> bool {
    let set = |name: &str| env::var_os(name).filter(|value| !value.is_empty());
    let home = || set("HF_HOME").or_else(|| Some(Path::new(&set("HOME")?).join(".cache/huggingface").into_os_string()));
    let file = set("HF_TOKEN_PATH").map(PathBuf::from).or_else(|| Some(Path::new(&home()?).join("token")));
    TOKENS.iter().any(|name| settings.env.get(*name).is_some_and(|value| !value.is_empty()) || set(name).is_some())
        || file.is_some_and(|file| fs::metadata(file).is_ok_and(|file| file.len() > 0))
}

/// The image of a command that runs a container.
fn image(settings: &SystemSettings) -> Option<FileLookup> {
    let command = ContainerCommand::parse(&settings.command, "name")?;
    let image = command.image?;
    let runtime = command.container.runtime.join(" ");
    let (words, state) = match command.container.has_image(&image) {
        Some(true) => (format!("{image} is on this machine"), LookupState::Here),
        Some(false) => (
            format!(
                "{image} is not on this machine: the first start fetches it, within start_timeout_s = {} s; to fetch it \
                 before: {runtime} pull {image}",
                settings.start_timeout_s
            ),
            LookupState::Later,
        ),
        None => (
            format!("{image}: `{runtime} version` fails, so it is unknown whether the image is there"),
            LookupState::Later,
        ),
    };
    Some(FileLookup { what: "image", words, state })
}

/// The program of a command that runs no container; `None` if nothing is known of it.
fn program(settings: &SystemSettings) -> Option<FileLookup> {
    let in_folder = settings.command.strip_prefix(&IN_FOLDER.map(str::to_owned)).and_then(<[String]>::split_first);
    let (folder, command) = match in_folder {
        Some((folder, command)) => (Some(Path::new(folder)), command),
        None => (None, settings.command.as_slice()),
    };
    // What a line of shell runs is not known.
    if command.first().is_some_and(|program| program == "sh" || program == "bash") {
        return None;
    }
    let (words, state) = match program::look_up(command, &settings.env, folder) {
        ProgramState::Unknown => return None,
        ProgramState::Installed { name, place } => (format!("{name} is installed ({place})"), LookupState::Here),
        ProgramState::NoProgram { name } => (
            format!("there is no program {name} on this machine: install it, or name another one in system.command"),
            LookupState::Missing,
        ),
        ProgramState::NoModule { python, module } => (
            format!(
                "{module} is not installed in the Python that {python} starts: install it there, or name a Python that has \
                 it in system.command"
            ),
            LookupState::Missing,
        ),
    };
    Some(FileLookup { what: "program", words, state })
}

/// Bytes in words.
fn size(bytes: u64) -> String {
    match bytes as f64 {
        bytes if bytes >= f64::from(1 << 30) => format!("{:.1} GiB", bytes / f64::from(1 << 30)),
        bytes => format!("{:.1} MiB", bytes / f64::from(1 << 20)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(folder: &Path) -> (LookupState, String) {
        let found = model("target", folder.to_str().expect("UTF-8"), false);
        (found.state, found.words)
    }

    #[test]
    fn files_that_an_index_lists_and_a_folder_lacks_are_counted() {
        let folder = tempfile::tempdir().expect("a folder");
        let index =
            r#"{"metadata": {"total_size": 3221225472}, "weight_map": {"x": "a.safetensors", "y": "b.safetensors"}}"#;
        fs::write(folder.path().join(INDEXES[0]), index).expect("a file");
        fs::write(folder.path().join("a.safetensors"), "1").expect("a file");
        std::os::unix::fs::symlink("nowhere", folder.path().join("b.safetensors")).expect("a link");
        let (state, words) = found(folder.path());
        assert_eq!(state, LookupState::Missing);
        assert!(words.starts_with("1 of the 2 weight files") && words.contains("about 3.0 GiB to fetch"), "{words}");
        assert!(words.contains("if the model is gated"), "{words}");
        fs::remove_file(folder.path().join("b.safetensors")).expect("a link");
        fs::write(folder.path().join("b.safetensors"), "1").expect("a file");
        let (state, words) = found(folder.path());
        assert!(state == LookupState::Here && words.ends_with(": 2 weight files, 0.0 MiB"), "{words}");
        // Then the folder's files count.
        fs::write(folder.path().join(INDEXES[0]), "{").expect("a file");
        assert_eq!(found(folder.path()).0, LookupState::Here);
    }

    #[test]
    fn a_folder_without_weights_is_noticed() {
        let cache = tempfile::tempdir().expect("a folder");
        let repository = cache.path().join("models--org--name");
        let snapshot = repository.join("snapshots/0abc");
        fs::create_dir_all(&snapshot).expect("a folder");
        fs::create_dir_all(repository.join("blobs")).expect("a folder");
        fs::write(snapshot.join("config.json"), "{}").expect("a file");
        fs::write(repository.join("blobs/1.incomplete"), vec![0; 2 << 20]).expect("a file");
        let (state, words) = found(&snapshot);
        assert_eq!(state, LookupState::Missing);
        for part in ["contains no weights", "2.0 MiB of a download", "`hf download org/name`", "HF_TOKEN"] {
            assert!(words.contains(part), "{part}: {words}");
        }
        // A link of the cache without its file.
        std::os::unix::fs::symlink("../../blobs/1", snapshot.join("model.safetensors")).expect("a link");
        let (state, words) = found(&snapshot);
        assert!(state == LookupState::Missing && words.starts_with("1 of the 1 weight files"), "{words}");
        fs::write(repository.join("blobs/1"), "1").expect("a file");
        assert_eq!(found(&snapshot).0, LookupState::Here);
        assert_eq!(model("draft", "org/name", true).state, LookupState::Later);
    }
}
