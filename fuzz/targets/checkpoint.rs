//! The files of a checkpoint, as the linter gathers them. Each section `==== NAME` is one file.
#![no_main]

use std::{collections::BTreeMap, ops::Range};

use facts::{Error, Files, FilePart, ModelPlaces, gather};
use fuzz::sections::sections;
use libfuzzer_sys::fuzz_target;

/// Files of a checkpoint in memory, by name.
struct Memory<'a>(BTreeMap<&'a str, &'a [u8]>);

impl Files for Memory<'_> {
    fn place(&self, name: &str) -> String {
        name.to_owned()
    }

    fn whole(&self, name: &str, limit: u64) -> Result<Option<Vec<u8>>, Error> {
        let Some(bytes) = self.0.get(name) else { return Ok(None) };
        if bytes.len() as u64 > limit {
            return Err(Error::TooLarge { place: name.to_owned(), limit });
        }
        Ok(Some(bytes.to_vec()))
    }

    fn part(&self, name: &str, range: Range<u64>) -> Result<Option<FilePart>, Error> {
        let Some(bytes) = self.0.get(name) else { return Ok(None) };
        let place = |offset: u64| usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
        let (start, end) = (place(range.start), place(range.end));
        let part = bytes.get(start..end.max(start)).unwrap_or_default();
        Ok(Some(FilePart { bytes: part.to_vec(), size: bytes.len() as u64 }))
    }

    fn safetensors(&self) -> Result<Vec<String>, Error> {
        Ok(self.0.keys().filter(|name| name.ends_with(".safetensors")).map(|name| (*name).to_owned()).collect())
    }

    fn most_headers(&self) -> usize {
        8
    }
}

fuzz_target!(|input: &[u8]| {
    let named = sections(input).into_iter().filter_map(|(name, bytes)| Some((fuzz::text(name)?, bytes)));
    let files = Memory(named.collect());
    if let Ok(gathered) = gather(&files, "x", ModelPlaces { tokenizer: true }) {
        let facts = gathered.facts;
        let _ = (facts.loaded_bytes("bfloat16"), facts.has_mtp_tensors(), facts.dropped_mtp_layers());
        let _ = facts.draft_kind();
    }
});
