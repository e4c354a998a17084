//! Safetensors files: which there are, and their headers, read without reading data.

use std::{
    collections::BTreeSet,
    fs::File,
    io::Read,
    path::{Path, PathBuf},
};

use ::safetensors::SafeTensors;
use schemas::model::{TensorHeader, TensorHeaders};
use serde::Deserialize;

use super::folder::read_text;
use crate::error::EngineError;

/// Largest header, as in the safetensors library: a length beyond it is a broken file, not a large model.
const LARGEST_HEADER: u64 = 100_000_000;
/// Most shards that an index may name.
const MOST_SHARDS: usize = 4096;

/// The `model.safetensors.index.json` of a sharded checkpoint.
#[derive(Deserialize)]
struct Index {
    weight_map: std::collections::BTreeMap<String, String>,
}

/// The safetensors files of a folder: the single file, else the shards that the index names.
///
/// # Errors
/// When there are none, or the index is broken.
pub(super) fn files(folder: &Path) -> Result<Vec<PathBuf>, EngineError> {
    let single = folder.join("model.safetensors");
    if single.exists() {
        return Ok(vec![single]);
    }
    let index = folder.join("model.safetensors.index.json");
    if index.exists() {
        return shards(folder, &index);
    }
    if folder.join("pytorch_model.bin").exists() || folder.join("pytorch_model.bin.index.json").exists() {
        return Err(EngineError::Unsupported {
            path: folder.to_owned(),
            feature: "a checkpoint in PyTorch's pickle format (pytorch_model.bin)".into(),
            hint: "convert it once: python -c \"import torch, safetensors.torch as s; s.save_file(\
                   {k: v.contiguous() for k, v in torch.load('pytorch_model.bin', weights_only=True).items()}, \
                   'model.safetensors', {'format': 'pt'})\""
                .into(),
        });
    }
    Err(EngineError::Malformed {
        path: folder.to_owned(),
        reason: "no model.safetensors and no model.safetensors.index.json in this folder".into(),
    })
}

/// Names, dtypes and shapes of all tensors of a folder.
///
/// # Errors
/// When a file is missing or its header is broken.
pub(super) fn headers(folder: &Path) -> Result<TensorHeaders, EngineError> {
    let mut all = TensorHeaders::default();
    for path in files(folder)? {
        let read = |source| EngineError::Read { path: path.clone(), source };
        let mut file = File::open(&path).map_err(read)?;
        let size = file.metadata().map_err(read)?.len();
        let mut bytes = [0; 8];
        file.read_exact(&mut bytes).map_err(read)?;
        let length = checked_header_length(&path, bytes, size)?;
        let mut header = vec![0; 8 + length];
        header[..8].copy_from_slice(&bytes);
        file.read_exact(&mut header[8..]).map_err(read)?;
        let (_, metadata) = SafeTensors::read_metadata(&header)
            .map_err(|error| EngineError::Malformed { path: path.clone(), reason: error.to_string() })?;
        for (name, info) in metadata.tensors() {
            all.0.insert(name, TensorHeader { dtype: info.dtype.to_string(), shape: info.shape.clone() });
        }
    }
    Ok(all)
}

/// The length of a header, from the first eight bytes of a file of `size` bytes.
///
/// # Errors
/// When the header would not fit into the file or the limit.
pub(super) fn checked_header_length(path: &Path, bytes: [u8; 8], size: u64) -> Result<usize, EngineError> {
    let length = u64::from_le_bytes(bytes);
    let malformed = |reason| Err(EngineError::Malformed { path: path.to_owned(), reason });
    if length > LARGEST_HEADER {
        return malformed(format!("the safetensors header claims {length} bytes, the limit is {LARGEST_HEADER}"));
    }
    if length > size.saturating_sub(8) {
        return malformed(format!(
            "the safetensors header claims {length} bytes, the file has {size}: it is truncated or no safetensors file"
        ));
    }
    Ok(length as usize)
}

fn shards(folder: &Path, index: &Path) -> Result<Vec<PathBuf>, EngineError> {
    let malformed = |reason: String| EngineError::Malformed { path: index.to_owned(), reason };
    let parsed: Index =
        serde_json::from_str(&read_text(index)?).map_err(|error| malformed(format!("not a valid index: {error}")))?;
    let names: BTreeSet<String> = parsed.weight_map.into_values().collect();
    if names.is_empty() || names.len() > MOST_SHARDS {
        return Err(malformed(format!("names {} shards, expected 1 to {MOST_SHARDS}", names.len())));
    }
    // A shard is a file of this folder: an index from outside must not lead elsewhere.
    if let Some(name) = names.iter().find(|name| Path::new(name).components().count() != 1 || name.starts_with("..")) {
        return Err(malformed(format!("names the shard {name:?}, which is not a file of this folder")));
    }
    Ok(names.into_iter().map(|name| folder.join(name)).collect())
}
