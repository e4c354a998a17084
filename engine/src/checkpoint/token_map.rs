//! FR-Spec's hot tokens (arXiv 2502.14856): the ids of the target's tokens that a draft may
//! propose.
//!
//! Published as `freq_<n>.pt`, which is `torch.save` of a list of numbers: a zip archive whose
//! `data.pkl` is the pickled list. A plain JSON list is accepted too. Pickle is parsed as data:
//! nothing in it is executed.

use std::{
    io::{Cursor, Read},
    path::Path,
};

use super::read::open;
use crate::error::EngineError;

/// Maximum file size in bytes: a map of a whole vocabulary of 262,144 tokens is under 2 MiB in
/// either form.
const LARGEST: u64 = 16 << 20;

/// Reads a map and checks that its tokens are distinct and within a vocabulary.
///
/// # Errors
/// When the file cannot be read, has neither format, or contains a token outside the vocabulary or
/// twice.
pub fn read_token_map(path: &Path, vocabulary: usize) -> Result<Vec<u32>, EngineError> {
    let read = |source| EngineError::Read { path: path.to_owned(), source };
    let malformed = |reason: String| EngineError::Malformed { path: path.to_owned(), reason };
    let mut bytes = Vec::new();
    // One byte more than allowed tells a larger file from one of the largest size.
    open(path)?.take(LARGEST + 1).read_to_end(&mut bytes).map_err(read)?;
    if bytes.len() as u64 > LARGEST {
        return Err(malformed(format!("larger than {} MiB, the limit for a token map", LARGEST >> 20)));
    }
    // The signature of a zip archive.
    let ids = if bytes.starts_with(b"PK") { from_torch(&bytes) } else { from_json(&bytes) }.map_err(malformed)?;
    check(&ids, vocabulary).map_err(malformed)
}

fn from_json(bytes: &[u8]) -> Result<Vec<i64>, String> {
    let error = |error: serde_json::Error| {
        format!("neither a file of torch.save nor a JSON list of token ids, such as [0, 5, 17]: {error}")
    };
    serde_json::from_slice(bytes).map_err(error)
}

fn from_torch(bytes: &[u8]) -> Result<Vec<i64>, String> {
    let mut archive =
        zip::ZipArchive::new(Cursor::new(bytes)).map_err(|error| format!("a damaged archive: {error}"))?;
    let name = archive.file_names().flatten().find(|name| name.ends_with("data.pkl")).map(std::borrow::Cow::into_owned);
    let name = name.ok_or("the archive has no data.pkl: it was not written by torch.save")?;
    let entry = archive.by_name(&name).map_err(|error| format!("{name}: {error}"))?;
    let mut pickle = Vec::new();
    entry.take(LARGEST).read_to_end(&mut pickle).map_err(|error| format!("{name}: {error}"))?;
    serde_pickle::from_slice(&pickle, serde_pickle::DeOptions::new())
        .map_err(|error| format!("{name}: expected a list of token ids, as in FR-Spec's freq_*.pt: {error}"))
}

fn check(ids: &[i64], vocabulary: usize) -> Result<Vec<u32>, String> {
    if ids.is_empty() {
        return Err("the list contains no token".into());
    }
    let mut seen = vec![false; vocabulary];
    let one = |id: &i64| {
        let place = usize::try_from(*id).ok().and_then(|id| seen.get_mut(id));
        match place.map(|seen| std::mem::replace(seen, true)) {
            None => Err(format!("token {id} is outside the target's {vocabulary}")),
            Some(true) => Err(format!("token {id} appears twice")),
            Some(false) => Ok(*id as u32),
        }
    };
    ids.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// `torch.save` of a list: an uncompressed archive.
    fn saved(ids: &[i64]) -> Vec<u8> {
        let pickle = serde_pickle::to_vec(&ids, serde_pickle::SerOptions::new().proto_v2()).expect("a list");
        archive("freq_3/data.pkl", &pickle)
    }

    fn archive(name: &str, bytes: &[u8]) -> Vec<u8> {
        let mut writer = zip::ZipWriter::new(Cursor::new(Vec::new()));
        let options = zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
        writer.start_file(name, options).expect("an entry");
        writer.write_all(bytes).expect("memory");
        writer.finish().expect("an archive").into_inner()
    }

    fn read(bytes: &[u8], vocabulary: usize) -> Result<Vec<u32>, String> {
        let file = tempfile::NamedTempFile::new().expect("a folder for temporary files");
        std::fs::write(file.path(), bytes).expect("writable");
        read_token_map(file.path(), vocabulary).map_err(|error| error.to_string())
    }

    #[test]
    fn both_forms_give_the_list_in_its_order() {
        assert_eq!(read(b"[2, 0, 70000]", 70_001), Ok(vec![2, 0, 70_000]));
        assert_eq!(read(&saved(&[2, 0, 70_000]), 70_001), Ok(vec![2, 0, 70_000]));
    }

    #[test]
    fn what_is_no_map_says_why() {
        fn check(bytes: &[u8], expected: &str) {
            let error = read(bytes, 10).expect_err("no map");
            assert!(error.contains(expected), "{error}");
        }
        check(b"", "JSON list");
        check(b"[]", "no token");
        check(b"[1, 10]", "token 10 is outside the target's 10");
        check(b"[1, -1]", "token -1");
        check(b"[1, 2, 1]", "token 1 appears twice");
        check(b"[1.5]", "JSON list");
        check(b"PK\x03\x04 broken", "damaged archive");
        check(&archive("other", b"x"), "no data.pkl");
        check(&archive("a/data.pkl", b"cos\nsystem\n."), "expected a list of token ids");
        // A list whose declared length is wrong.
        check(&archive("a/data.pkl", &[0x80, 2, b']', b'(', b'K']), "expected a list of token ids");
    }
}
