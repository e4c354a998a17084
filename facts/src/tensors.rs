//! The headers of safetensors files; the contents of the tensors are not read.

use schemas::model::{ModelFacts, TensorHeaders, TensorIndex, header_length, is_own_file, is_plain_name};

use crate::{Error, Files};

/// Maximum size of an index in bytes; those of the largest checkpoints have a few MiB.
const LONGEST_INDEX: u64 = 64 << 20;

/// Maximum size of a header in bytes. The format allows 100 MB; published headers stay below 1 MiB
/// per file.
const LONGEST_HEADER: u64 = 32 << 20;

/// Size of the first read, so that most headers need only one.
const FIRST_READ: u64 = 64 << 10;

/// Adds index and headers to the facts, and a note for each that cannot be read.
pub(crate) fn read(files: &dyn Files, facts: &mut ModelFacts, notes: &mut Vec<String>) {
    let names = match names(files, facts) {
        Ok(names) => names,
        Err(error) => {
            notes.push(error.to_string());
            return;
        }
    };
    if names.is_empty() {
        notes.extend(without(files));
        return;
    }
    if names.len() > files.most_headers() {
        let said = format!("{}: the headers of {} files are not read, only their index", facts.name, names.len());
        notes.push(said);
        return;
    }
    let mut all = TensorHeaders::default();
    for name in &names {
        match header(files, name).and_then(|json| add(files, name, &json, &mut all)) {
            Ok(()) => {}
            Err(error) => {
                // With only half of the tensors, it would look as if the others had been dropped
                // from the checkpoint.
                notes.push(error.to_string());
                return;
            }
        }
    }
    facts.tensors = Some(all);
}

/// The files with the tensors: the single file, else those of the index, else whatever safetensors
/// files exist (some heads are published under other names).
fn names(files: &dyn Files, facts: &mut ModelFacts) -> Result<Vec<String>, Error> {
    const SINGLE: &str = "model.safetensors";
    const INDEX: &str = "model.safetensors.index.json";
    if files.part(SINGLE, 0..8)?.is_some() {
        return Ok(vec![SINGLE.to_owned()]);
    }
    if let Some(bytes) = files.whole(INDEX, LONGEST_INDEX)? {
        let malformed = |reason: String| Error::Malformed { place: files.place(INDEX), reason };
        let text = std::str::from_utf8(&bytes).map_err(|error| malformed(error.to_string()))?;
        let index = TensorIndex::parse(text).map_err(|error| malformed(format!("not a valid index: {error}")))?;
        let names: Vec<String> = index.files().into_iter().map(str::to_owned).collect();
        facts.index = Some(index);
        facts.loose_mtp = has_loose_mtp(files, facts, &names)?;
        return Ok(names);
    }
    let own = |name: &String| is_plain_name(name) && is_own_file(name);
    Ok(files.safetensors()?.into_iter().filter(own).collect())
}

/// Whether the MTP layers that the config declares are in a separate file that the index does not
/// list.
fn has_loose_mtp(files: &dyn Files, facts: &ModelFacts, indexed: &[String]) -> Result<bool, Error> {
    const LOOSE: &str = "mtp.safetensors";
    if facts.dropped_mtp_layers().is_none() || indexed.iter().any(|name| name == LOOSE) {
        return Ok(false);
    }
    Ok(files.part(LOOSE, 0..8)?.is_some())
}

/// A note on why there may be no safetensors file.
fn without(files: &dyn Files) -> Option<String> {
    let pickled = ["pytorch_model.bin", "pytorch_model.bin.index.json"];
    let name = pickled.into_iter().find(|name| files.part(name, 0..1).is_ok_and(|part| part.is_some()))?;
    let place = files.place(name);
    Some(format!("{place}: tensors in PyTorch's pickle format are not read; rules about tensors are skipped"))
}

/// The JSON header of a file.
fn header(files: &dyn Files, name: &str) -> Result<Vec<u8>, Error> {
    let malformed = |reason: String| Error::Malformed { place: files.place(name), reason };
    let absent = || malformed("the index lists this file, but it does not exist".into());
    let first = files.part(name, 0..FIRST_READ)?.ok_or_else(absent)?;
    let Some(length) = first.bytes.first_chunk::<8>() else {
        return Err(malformed(format!("{} bytes are too few for a safetensors file", first.size)));
    };
    let length = header_length(*length, first.size)
        .map_err(|error| malformed(format!("{error}: the file is truncated or not a safetensors file")))?;
    if length > LONGEST_HEADER {
        return Err(Error::TooLarge { place: format!("the header of {}", files.place(name)), limit: LONGEST_HEADER });
    }
    let end = 8 + length;
    let mut bytes = first.bytes;
    let have = bytes.len() as u64;
    if have < end {
        bytes.extend(files.part(name, have..end)?.ok_or_else(absent)?.bytes);
    }
    // The limit above keeps both ends within the address space.
    let json = bytes.get(8..end as usize);
    json.map(<[u8]>::to_vec).ok_or_else(|| malformed("the file ends within its header".into()))
}

/// Adds the tensors of a header.
fn add(files: &dyn Files, name: &str, json: &[u8], all: &mut TensorHeaders) -> Result<(), Error> {
    let malformed = |reason: String| Error::Malformed { place: files.place(name), reason };
    let text = std::str::from_utf8(json).map_err(|_| malformed("the header is not UTF-8 text".into()))?;
    all.add_header(text).map_err(|error| malformed(error.to_string()))
}
