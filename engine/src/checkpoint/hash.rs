//! The hash that identifies a checkpoint in a fingerprint.

use std::{
    io::{Read, Seek, SeekFrom},
    path::Path,
};

use super::{mask_embedding, read::open, safetensors};
use crate::error::EngineError;

/// Bytes of each sample of a large file.
const SAMPLE: u64 = 1 << 20;
/// Number of samples per file.
const SAMPLES: u64 = 16;

/// blake3 over config.json and, for each safetensors file in order and for a mask embedding, its
/// size and its contents: all of it up to 16 MiB, and above that 16 samples of 1 MiB, evenly spaced
/// from the header to the end. Retraining changes every weight, so samples distinguish checkpoints
/// without reading hundreds of gigabytes.
pub(super) fn hash_folder(folder: &Path) -> Result<String, EngineError> {
    let mut hasher = blake3::Hasher::new();
    let mut files = vec![folder.join("config.json")];
    files.extend(safetensors::files(folder)?.files);
    let mask = folder.join(mask_embedding::FILE);
    files.extend(mask.exists().then_some(mask));
    for path in files {
        let read = |source| EngineError::Read { path: path.clone(), source };
        let mut file = open(&path)?;
        let size = file.metadata().map_err(read)?.len();
        hasher.update(&size.to_le_bytes());
        if size <= SAMPLE * SAMPLES {
            let mut all = Vec::new();
            file.take(SAMPLE * SAMPLES).read_to_end(&mut all).map_err(read)?;
            hasher.update(&all);
            continue;
        }
        let mut sample = vec![0; SAMPLE as usize];
        for at in 0..SAMPLES {
            file.seek(SeekFrom::Start((size - SAMPLE) / (SAMPLES - 1) * at)).map_err(read)?;
            file.read_exact(&mut sample).map_err(read)?;
            hasher.update(&sample);
        }
    }
    Ok(hasher.finalize().to_hex()[..16].to_owned())
}
