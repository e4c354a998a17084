//! Heads on disk: copies of a published head with trained values, written atomically.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    path::{Path, PathBuf},
};

use engine::{
    ModelFiles,
    checkpoint::TensorPlace,
    spec::{MASK_EMBEDDING, TensorSpec},
};
use half::{bf16, f16};

use crate::error::TrainingError;

/// Values by the published names of their tensors.
pub type Trained = BTreeMap<String, Vec<f32>>;

/// Writes a file atomically: a kill at any moment leaves either the old or the new file.
///
/// # Errors
/// When it cannot be written.
pub fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), TrainingError> {
    tuner::files::replace(path, bytes).map_err(TrainingError::write(path))
}

/// Creates a folder atomically: `fill` fills a temporary folder, which replaces an existing one
/// only when it is complete.
///
/// # Errors
/// When it cannot be written.
pub fn make_whole(path: &Path, fill: impl FnOnce(&Path) -> Result<(), TrainingError>) -> Result<(), TrainingError> {
    tuner::files::replace_folder(path, fill, |path, error| TrainingError::write(path)(error))
}

/// Removes a folder, if it exists.
///
/// # Errors
/// When it cannot be removed.
pub fn remove(path: &Path) -> Result<(), TrainingError> {
    tuner::files::remove_folder(path).map_err(TrainingError::write(path))
}

/// Copies the folder of a head: all of its files, such as the code of heads that bring their own,
/// but for weights in other formats, which would be those before training.
///
/// # Errors
/// When a file cannot be read or written.
pub fn copy_head(from: &Path, to: &Path) -> Result<(), TrainingError> {
    const OTHER_WEIGHTS: [&str; 9] = ["bin", "pt", "pth", "ckpt", "onnx", "gguf", "h5", "msgpack", "npz"];
    make_whole(to, |part| {
        for (name, path) in files(from)? {
            // Whatever its ending: engines look for it under several.
            let is_mask = path.file_stem().is_some_and(|stem| stem == MASK_EMBEDDING);
            if is_mask || !path.extension().is_some_and(|ending| OTHER_WEIGHTS.iter().any(|other| ending == *other)) {
                copy(&path, &part.join(name))?;
            }
        }
        Ok(())
    })
}

/// Writes the MTP layer of a target's checkpoint to a separate folder, from which it is loaded like
/// a head.
///
/// # Errors
/// When a file cannot be read or written.
pub fn extract_layer(models: &ModelFiles, tensors: &[TensorSpec], to: &Path) -> Result<(), TrainingError> {
    let from = models.draft_folder();
    make_whole(to, |part| {
        copy(&from.join("config.json"), &part.join("config.json"))?;
        let mut bytes = Vec::new();
        for tensor in tensors {
            let TensorPlace { path, dtype, bytes: place } = models.draft_place(tensor)?;
            bytes.push((tensor, dtype, read_part(&path, place)?));
        }
        let views: Vec<(&str, &str, &[usize], &[u8])> = (bytes.iter())
            .map(|(tensor, dtype, bytes)| (tensor.name.as_str(), dtype.as_str(), tensor.shape.as_slice(), &bytes[..]))
            .collect();
        write_whole(&part.join("model.safetensors"), &safetensors(&views))
    })
}

/// Writes a copy of a head's folder with new values for some tensors, in their stored types.
///
/// # Errors
/// When a file cannot be read or written, or a value is not finite in its tensor's type.
pub fn write_head(
    models: &ModelFiles,
    tensors: &[TensorSpec],
    trained: &Trained,
    to: &Path,
) -> Result<(), TrainingError> {
    let patched = patched_files(models, tensors, trained)?;
    make_whole(to, |part| {
        for (name, path) in files(models.draft_folder())? {
            match patched.get(&path) {
                Some(bytes) => write_whole(&part.join(name), bytes)?,
                None => copy(&path, &part.join(name))?,
            }
        }
        Ok(())
    })
}

/// Writes a copy of a target's folder with new values for its MTP layer. Shards without a changed
/// tensor are links to the original files.
///
/// # Errors
/// As [`write_head`].
pub fn stitch(models: &ModelFiles, tensors: &[TensorSpec], trained: &Trained, to: &Path) -> Result<(), TrainingError> {
    let patched = patched_files(models, tensors, trained)?;
    make_whole(to, |part| {
        for (name, path) in files(models.draft_folder())? {
            match patched.get(&path) {
                Some(bytes) => write_whole(&part.join(name), bytes)?,
                None if path.extension().is_some_and(|ending| ending == "safetensors") => {
                    // The target's own files are large and unchanged; only the layer's file is
                    // written again.
                    link(&path, &part.join(name))?;
                }
                None => copy(&path, &part.join(name))?,
            }
        }
        Ok(())
    })
}

/// The contents of the files that contain the tensors, with their new values.
fn patched_files(
    models: &ModelFiles,
    tensors: &[TensorSpec],
    trained: &Trained,
) -> Result<BTreeMap<PathBuf, Vec<u8>>, TrainingError> {
    let mut patched: BTreeMap<PathBuf, Vec<u8>> = BTreeMap::new();
    for tensor in tensors {
        let TensorPlace { path, dtype, bytes } = models.draft_place(tensor)?;
        let values = trained.get(&tensor.name).map(Vec::as_slice).unwrap_or_default();
        let encoded = encode(values, &dtype).ok_or_else(|| {
            TrainingError::malformed(&path, format!("the trained values of {} do not fit into {dtype}", tensor.name))
        })?;
        if encoded.len() != bytes.len() {
            return Err(TrainingError::malformed(
                &path,
                format!("{} does not have the size that was trained", tensor.name),
            ));
        }
        let file = match patched.entry(path) {
            std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::btree_map::Entry::Vacant(entry) => {
                let content = fs::read(entry.key()).map_err(TrainingError::read(entry.key().clone()))?;
                entry.insert(content)
            }
        };
        file[bytes].copy_from_slice(&encoded);
    }
    Ok(patched)
}

/// Encodes values in a safetensors type; `None` if one is not finite in it.
fn encode(values: &[f32], dtype: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(values.len() * 4);
    for value in values {
        match dtype {
            "F32" => bytes.extend(value.is_finite().then(|| value.to_le_bytes())?),
            // A value may be finite in training and infinite in the file's type.
            "F16" => bytes.extend(Some(f16::from_f32(*value)).filter(|value| value.is_finite())?.to_le_bytes()),
            "BF16" => bytes.extend(Some(bf16::from_f32(*value)).filter(|value| value.is_finite())?.to_le_bytes()),
            _ => return None,
        }
    }
    Some(bytes)
}

/// The contents of a safetensors file with these tensors: name, type, shape, bytes.
pub fn safetensors(tensors: &[(&str, &str, &[usize], &[u8])]) -> Vec<u8> {
    let (mut header, mut data) = (serde_json::Map::new(), Vec::new());
    header.insert("__metadata__".into(), serde_json::json!({"format": "pt"}));
    for (name, dtype, shape, bytes) in tensors {
        let offsets = [data.len(), data.len() + bytes.len()];
        header.insert((*name).into(), serde_json::json!({"dtype": dtype, "shape": shape, "data_offsets": offsets}));
        data.extend_from_slice(bytes);
    }
    let mut text = serde_json::Value::Object(header).to_string();
    // Data start at a multiple of eight bytes, as readers of mapped files expect.
    while !text.len().is_multiple_of(8) {
        text.push(' ');
    }
    [&(text.len() as u64).to_le_bytes(), text.as_bytes(), &data].concat()
}

/// The regular files of a folder, by name.
fn files(folder: &Path) -> Result<BTreeMap<String, PathBuf>, TrainingError> {
    let mut found = BTreeMap::new();
    for entry in folder.read_dir().map_err(TrainingError::read(folder))? {
        let path = entry.map_err(TrainingError::read(folder))?.path();
        if let Some(name) = path.file_name().and_then(|name| name.to_str()).filter(|_| path.is_file()) {
            found.insert(name.to_owned(), path.clone());
        }
    }
    Ok(found)
}

fn copy(from: &Path, to: &Path) -> Result<(), TrainingError> {
    fs::read(from).map_err(TrainingError::read(from)).and_then(|bytes| write_whole(to, &bytes))
}

fn read_part(path: &Path, place: std::ops::Range<usize>) -> Result<Vec<u8>, TrainingError> {
    use std::io::{Read, Seek, SeekFrom};
    let mut bytes = vec![0; place.len()];
    let read = File::open(path).and_then(|mut file| {
        file.seek(SeekFrom::Start(place.start as u64))?;
        file.read_exact(&mut bytes)
    });
    read.map_err(TrainingError::read(path))?;
    Ok(bytes)
}

/// Creates a link to a file by its absolute path; a copy if the system has no symbolic links.
fn link(from: &Path, to: &Path) -> Result<(), TrainingError> {
    #[cfg(unix)]
    {
        let whole = from.canonicalize().map_err(TrainingError::read(from))?;
        std::os::unix::fs::symlink(whole, to).map_err(TrainingError::write(to))
    }
    #[cfg(not(unix))]
    copy(from, to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copied_head_has_all_but_other_weights() {
        let folder = tempfile::tempdir().expect("a folder");
        let (from, to) = (folder.path().join("from"), folder.path().join("to"));
        fs::create_dir(&from).expect("a folder");
        let kept =
            ["config.json", "model.safetensors", "modeling_head.py", "mask_embedding.pt", "LICENSE", "README.md"];
        for name in kept.iter().chain(&["pytorch_model.bin", "head.gguf"]) {
            fs::write(from.join(name), name).expect("a file");
        }
        copy_head(&from, &to).expect("a copy");
        let mut expected = kept.map(ToOwned::to_owned);
        expected.sort();
        assert_eq!(files(&to).expect("files").into_keys().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn values_that_do_not_fit_are_refused() {
        assert_eq!(encode(&[1.0], "BF16"), Some(vec![0x80, 0x3f]));
        assert_eq!(encode(&[70_000.0], "F16"), None);
        assert_eq!(encode(&[f32::NAN], "F32"), None);
        assert_eq!(encode(&[1.0], "I64"), None);
    }
}
