//! `mask_embedding.pt` of block heads: the input vector of a position that is to be drafted, for
//! heads whose mask token is not a row of the target's embedding.
//!
//! `torch.save` of the vector alone, or of a dictionary with it as `embedding` or `mask_embedding`
//! and the number of the token as `mask_token_id`: an archive whose `data.pkl` says what the tensor
//! is, and whose entry `data/0` holds its numbers. As vLLM and the published heads of MiMo-V2.5
//! have it.

use std::{
    io::{Cursor, Read},
    ops::Range,
    path::Path,
};

use kernels::memory::MappedFile;

use super::{
    pickle::{self, PickleValue, PickledTensor},
    read::open,
};
use crate::{error::EngineError, spec::MASK_EMBEDDING};

/// The name of the file.
pub(super) const FILE: &str = "mask_embedding.pt";

/// Maximum file size in bytes: a vector of 16,384 numbers in float32 has 64 KiB.
const LARGEST: u64 = 16 << 20;

/// A vector in the file.
#[derive(Debug)]
pub(super) struct MaskEmbedding {
    /// The safetensors name of its type.
    pub dtype: &'static str,
    pub length: usize,
    /// Byte range in the file.
    pub bytes: Range<usize>,
    /// The token whose place it takes, if the file says so.
    pub token: Option<usize>,
}

/// Reads the file of a folder; `None` without one.
///
/// # Errors
/// When it cannot be read, or holds something else.
pub(super) fn read(folder: &Path) -> Result<Option<(MappedFile, MaskEmbedding)>, EngineError> {
    let path = folder.join(FILE);
    // A link to nothing is an incomplete checkpoint, not a head without the file.
    if !path.exists() && !path.is_symlink() {
        return Ok(None);
    }
    let malformed = |reason: String| EngineError::Malformed { path: path.clone(), reason };
    let size = open(&path)?.metadata().map_err(|source| EngineError::Read { path: path.clone(), source })?.len();
    if size > LARGEST {
        return Err(malformed(format!("larger than {} MiB, the limit for a mask embedding", LARGEST >> 20)));
    }
    let file = MappedFile::open(&path).map_err(|source| EngineError::Read { path: path.clone(), source })?;
    let found = find(&file).map_err(malformed)?;
    Ok(Some((file, found)))
}

/// The token whose place the vector takes, if the folder has one and it says so.
///
/// # Errors
/// As [`read`].
pub(crate) fn token(folder: &Path) -> Result<Option<usize>, EngineError> {
    Ok(read(folder)?.and_then(|(_, found)| found.token))
}

fn find(bytes: &[u8]) -> Result<MaskEmbedding, String> {
    let mut archive = zip::ZipArchive::new(Cursor::new(bytes))
        .map_err(|error| format!("it was not written by torch.save of torch 1.6 or later: {error}"))?;
    let names: Vec<String> = archive.file_names().flatten().map(std::borrow::Cow::into_owned).collect();
    // torch.save puts the entries in a folder whose name depends on the file's.
    let pickle = names.iter().find(|name| name.ends_with("data.pkl"));
    let pickle = pickle.ok_or("the archive has no data.pkl: it was not written by torch.save")?;
    let mut data = Vec::new();
    let entry = archive.by_name(pickle).map_err(|error| format!("{pickle}: {error}"))?;
    // A compressed entry may expand to more than the whole file.
    entry.take(LARGEST).read_to_end(&mut data).map_err(|error| format!("{pickle}: {error}"))?;
    let (tensor, token) = vector(pickle::read(&data)?)?;
    let (dtype, width) = match tensor.kind.as_str() {
        "torch.FloatStorage" => ("F32", 4),
        "torch.HalfStorage" => ("F16", 2),
        "torch.BFloat16Storage" => ("BF16", 2),
        other => return Err(format!("a tensor of {other}: expected float32, float16 or bfloat16")),
    };
    let length = match tensor.shape[..] {
        [length] | [1, length] if length > 0 => length,
        _ => return Err(format!("a tensor of shape {:?}: expected a vector", tensor.shape)),
    };
    // The stride of a single number means nothing.
    if length > 1 && tensor.strides.last() != Some(&1) {
        return Err("a vector whose numbers are not next to each other".into());
    }
    let numbers = format!("{}data/{}", pickle.trim_end_matches("data.pkl"), tensor.entry);
    let entry = archive.by_name(&numbers).map_err(|error| format!("{numbers}: {error}"))?;
    // The numbers are read in place, from the mapped file.
    if entry.compression() != zip::CompressionMethod::Stored {
        return Err(format!("{numbers} is compressed, which torch.save does not do"));
    }
    let start = entry.data_start().ok_or_else(|| format!("{numbers} has no place"))?;
    let of = |numbers: usize| numbers.checked_mul(width);
    let (offset, size) = (of(tensor.offset).ok_or("too far")?, of(length).ok_or("too long")?);
    let whole = usize::try_from(entry.size()).unwrap_or_default();
    let fits = offset.checked_add(size).is_some_and(|end| end <= whole);
    let start = usize::try_from(start).ok().and_then(|start| start.checked_add(offset));
    match start.and_then(|start| Some(start..start.checked_add(size)?)).filter(|range| range.end <= bytes.len()) {
        Some(bytes) if fits => Ok(MaskEmbedding { dtype, length, bytes, token }),
        _ => Err(format!("{numbers} has {whole} bytes, fewer than the {length} numbers of the vector")),
    }
}

/// The vector and its token in what was saved.
fn vector(saved: PickleValue) -> Result<(PickledTensor, Option<usize>), String> {
    let entries = match saved {
        PickleValue::Tensor(tensor) => return Ok((tensor, None)),
        PickleValue::Dict(entries) => entries,
        _ => return Err("expected a tensor, or a dictionary with one as embedding".into()),
    };
    let of = |wanted: &str| {
        entries.iter().find(|(key, _)| matches!(key, PickleValue::Text(key) if key == wanted)).map(|(_, value)| value)
    };
    let Some(PickleValue::Tensor(tensor)) = of("embedding").or_else(|| of(MASK_EMBEDDING)) else {
        return Err("the dictionary has no tensor with the key embedding or mask_embedding".into());
    };
    let token = match of("mask_token_id") {
        Some(PickleValue::Integer(token)) => usize::try_from(*token).ok(),
        _ => None,
    };
    Ok((tensor.clone(), token))
}

#[cfg(test)]
pub(super) mod tests {
    use std::{fs, io::Write};

    use super::*;

    /// Writes a vector in float32 as a file of this folder.
    pub fn write(folder: &Path, vector: &[f32], token: u8) {
        let length = u8::try_from(vector.len()).expect("a short vector");
        let numbers: Vec<u8> = vector.iter().flat_map(|number| number.to_le_bytes()).collect();
        let vector = tensor("Float", &[length]);
        fs::write(folder.join(FILE), archive(&in_dictionary("embedding", vector, token), &numbers)).expect("writable");
    }

    /// What `torch.save` of torch 2 writes for a tensor of these sizes, as a part of its pickle.
    fn tensor(kind: &str, shape: &[u8]) -> Vec<u8> {
        let mut text = b"ctorch._utils\n_rebuild_tensor_v2\nq\x01((X\x07\x00\x00\x00storageq\x02".to_vec();
        text.extend(format!("ctorch\n{kind}Storage\n").bytes());
        text.extend(b"q\x03X\x01\x00\x00\x000q\x04X\x03\x00\x00\x00cpuq\x05K\x04tq\x06QK\x00");
        let sizes = |numbers: &[u8]| {
            let mut text = vec![b'('];
            numbers.iter().for_each(|number| text.extend([b'K', *number]));
            text.push(b't');
            text
        };
        text.extend(sizes(shape));
        text.extend(sizes(&[4, 1][2 - shape.len().min(2)..]));
        text.extend(b"\x89ccollections\nOrderedDict\nq\x07)Rq\x08tq\x09Rq\x0a");
        text
    }

    fn pickled(middle: &[u8]) -> Vec<u8> {
        [b"\x80\x02", middle, b"."].concat()
    }

    fn in_dictionary(key: &str, vector: Vec<u8>, token: u8) -> Vec<u8> {
        let text = |text: &str| [b"X", &(text.len() as u32).to_le_bytes()[..], text.as_bytes()].concat();
        let entries = [text("mask_token_id"), vec![b'K', token], text(key), vector].concat();
        pickled(&[b"}q\x00(", entries.as_slice(), b"u"].concat())
    }

    fn folder(pickle: &[u8], numbers: &[u8]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join(FILE), archive(pickle, numbers)).expect("writable");
        folder
    }

    fn archive(pickle: &[u8], numbers: &[u8]) -> Vec<u8> {
        let mut writer = zip::ZipWriter::new(Cursor::new(Vec::new()));
        let options = zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
        for (name, bytes) in [("data.pkl", pickle), ("byteorder", b"little"), ("data/0", numbers), ("version", b"3\n")]
        {
            writer.start_file(format!("mask_embedding/{name}"), options).expect("an entry");
            writer.write_all(bytes).expect("memory");
        }
        writer.finish().expect("an archive").into_inner()
    }

    fn bfloat16(shape: &[u8]) -> Vec<u8> {
        tensor("BFloat16", shape)
    }

    #[test]
    fn a_vector_is_found_in_all_published_forms() {
        let numbers = [1, 2, 3, 4, 5, 6, 7, 8];
        for (pickle, token) in [
            (pickled(&bfloat16(&[4])), None),
            (pickled(&bfloat16(&[1, 4])), None),
            (in_dictionary("embedding", bfloat16(&[4]), 7), Some(7)),
            (in_dictionary("mask_embedding", bfloat16(&[4]), 9), Some(9)),
        ] {
            let folder = folder(&pickle, &numbers);
            let (file, found) = read(folder.path()).expect("a good file").expect("there is one");
            assert_eq!((found.dtype, found.length, found.token), ("BF16", 4, token));
            assert_eq!(file[found.bytes], numbers);
        }
        assert!(read(tempfile::tempdir().expect("a folder").path()).is_ok_and(|none| none.is_none()));
    }

    #[test]
    fn what_is_no_vector_says_why() {
        fn check(pickle: &[u8], numbers: &[u8], expected: &str) {
            let error = read(folder(pickle, numbers).path()).expect_err("no vector").to_string();
            assert!(error.contains(expected), "{error}");
        }
        let numbers = [0; 8];
        check(&pickled(&bfloat16(&[4])), &numbers[..6], "6 bytes, fewer than the 4 numbers");
        check(&pickled(&tensor("Double", &[4])), &numbers, "torch.DoubleStorage");
        check(&pickled(&bfloat16(&[2, 2])), &numbers, "expected a vector");
        check(&in_dictionary("other", bfloat16(&[4]), 1), &numbers, "no tensor with the key embedding");
        check(&pickled(b"K\x01"), &numbers, "expected a tensor");
        check(&pickled(b"cos\nsystem\n)R"), &numbers, "os.system, which makes no tensor");
        check(b"\x80\x02(", &numbers, "ends too early");
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join(FILE), b"text").expect("writable");
        assert!(read(folder.path()).is_err_and(|error| error.to_string().contains("torch.save")));
    }
}
