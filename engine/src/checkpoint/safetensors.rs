//! Safetensors files of a checkpoint, and their headers, which are validated before use.

use std::{
    collections::BTreeMap,
    ops::Range,
    path::{Path, PathBuf},
};

use schemas::model::{TensorHeader, TensorHeaders, TensorIndex, header_length, is_own_file};
use serde::Deserialize;

use super::read::read_text;
use crate::error::EngineError;

/// Maximum number of shards in an index, and of files in a folder without one.
const MOST_SHARDS: usize = 4096;

/// The tensors of one file.
#[derive(Debug)]
pub(super) struct SafetensorsHeader {
    /// Dtypes and shapes.
    pub headers: TensorHeaders,
    /// Byte range of each tensor's data: within the file, and of the length that dtype and shape
    /// imply.
    pub bytes: BTreeMap<String, Range<usize>>,
}

/// The safetensors files of a folder, and which of them holds a tensor.
#[derive(Debug, Default)]
pub(super) struct Shards {
    /// The files.
    pub files: Vec<PathBuf>,
    /// The name of the file of each tensor, if there is an index.
    named: BTreeMap<String, String>,
}

impl Shards {
    /// Whether the index says that a tensor of this file is to be read from another file.
    pub fn is_elsewhere(&self, tensor: &str, file: &Path) -> bool {
        let name = file.file_name().and_then(|name| name.to_str());
        self.named.get(tensor).is_some_and(|named| Some(named.as_str()) != name)
    }
}

/// The safetensors files of a folder: the single file, else the shards that the index names, else
/// whatever safetensors files exist (some heads are published under other names).
///
/// # Errors
/// When there are none, or the index is invalid.
pub(super) fn files(folder: &Path) -> Result<Shards, EngineError> {
    let without_index = |files| Ok(Shards { files, named: BTreeMap::new() });
    let single = folder.join("model.safetensors");
    if single.exists() {
        return without_index(vec![single]);
    }
    let index = folder.join("model.safetensors.index.json");
    if index.exists() {
        return named_by(folder, &index);
    }
    let others = unnamed(folder)?;
    if !others.is_empty() {
        return without_index(others);
    }
    if folder.join("pytorch_model.bin").exists() || folder.join("pytorch_model.bin.index.json").exists() {
        return Err(EngineError::Unsupported {
            path: folder.to_owned(),
            feature: "a checkpoint in PyTorch's pickle format (pytorch_model.bin)".into(),
            hint: "convert it once: python -c \"import glob, torch, safetensors.torch as s; s.save_file(\
                   {k: v.contiguous() for f in glob.glob('pytorch_model*.bin') \
                   for k, v in torch.load(f, weights_only=True).items()}, 'model.safetensors', {'format': 'pt'})\""
                .into(),
        });
    }
    Err(EngineError::Malformed {
        path: folder.to_owned(),
        reason: "no model.safetensors and no model.safetensors.index.json in this folder".into(),
    })
}

/// Reads the header of a file of `size` bytes. `bytes` contains at least the header.
///
/// # Errors
/// When it is inconsistent in itself or with the file.
pub(super) fn header(path: &Path, bytes: &[u8], size: u64) -> Result<SafetensorsHeader, EngineError> {
    #[derive(Deserialize)]
    struct TensorOffsets {
        data_offsets: (u64, u64),
    }
    let malformed = |reason: String| EngineError::Malformed { path: path.to_owned(), reason };
    let start = 8 + length(path, bytes, size)?;
    let json = bytes.get(8..start).and_then(|json| std::str::from_utf8(json).ok());
    let json = json.ok_or_else(|| malformed("the safetensors header is not UTF-8 text".into()))?;
    let mut headers = TensorHeaders::default();
    headers.add_header(json).map_err(|error| malformed(format!("safetensors: {error}")))?;

    let mut entries: BTreeMap<String, serde_json::Value> =
        serde_json::from_str(json).map_err(|error| malformed(format!("safetensors: {error}")))?;
    entries.remove("__metadata__");
    let data = size - start as u64;
    let mut places = Vec::new();
    for (name, entry) in entries {
        let TensorOffsets { data_offsets: (from, to) } =
            serde_json::from_value(entry).map_err(|error| malformed(format!("tensor {name}: {error}")))?;
        if from > to || to > data {
            return Err(malformed(format!(
                "tensor {name} is at bytes {from}..{to}, but the file has {data} bytes of data: it is truncated or \
                 damaged"
            )));
        }
        places.push((from, to, name));
    }
    places.sort_unstable();
    for pair in places.windows(2) {
        if let [(_, end, before), (from, to, name)] = pair
            && from < end
            && from < to
        {
            return Err(malformed(format!("tensors {before} and {name} overlap")));
        }
    }
    // The data is within the file, so its bounds fit in a usize.
    let place = |(from, to, name): (u64, u64, String)| (name, start + from as usize..start + to as usize);
    Ok(SafetensorsHeader { headers, bytes: places.into_iter().map(place).collect() })
}

impl SafetensorsHeader {
    /// Dtype, shape and byte range of each tensor.
    pub(super) fn tensors(mut self) -> impl Iterator<Item = (String, TensorHeader, Range<usize>)> {
        self.headers.0.into_iter().filter_map(move |(name, header)| {
            let bytes = self.bytes.remove(&name)?;
            Some((name, header, bytes))
        })
    }
}

/// The length of the JSON text, from the first eight bytes of a file of `size` bytes.
fn length(path: &Path, bytes: &[u8], size: u64) -> Result<usize, EngineError> {
    let malformed = |reason: String| EngineError::Malformed { path: path.to_owned(), reason };
    let Some(first) = bytes.first_chunk::<8>() else {
        return Err(malformed(format!("{size} bytes are too few for a safetensors file")));
    };
    // A Git LFS pointer is a small text in place of the file.
    if bytes.starts_with(b"version https://git-lfs") {
        return Err(malformed(
            "this is a Git LFS pointer, not the file itself: run `git lfs pull` in its folder".into(),
        ));
    }
    let length = header_length(*first, size)
        .map_err(|error| malformed(format!("safetensors: {error}; the file is truncated or not a safetensors file")))?;
    Ok(length as usize)
}

fn named_by(folder: &Path, index: &Path) -> Result<Shards, EngineError> {
    let malformed = |reason: String| EngineError::Malformed { path: index.to_owned(), reason };
    let named =
        TensorIndex::parse(&read_text(index)?).map_err(|error| malformed(format!("not a valid index: {error}")))?;
    let names = named.files();
    if names.is_empty() || names.len() > MOST_SHARDS {
        return Err(malformed(format!("names {} shards, expected 1 to {MOST_SHARDS}", names.len())));
    }
    let files = names.into_iter().map(|name| folder.join(name)).collect();
    Ok(Shards { files, named: named.shards })
}

fn unnamed(folder: &Path) -> Result<Vec<PathBuf>, EngineError> {
    let read = |source| EngineError::Read { path: folder.to_owned(), source };
    let mut files = Vec::new();
    for entry in folder.read_dir().map_err(read)?.take(MOST_SHARDS) {
        let path = entry.map_err(read)?.path();
        if path.file_name().is_some_and(|name| is_own_file(&name.to_string_lossy())) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}
