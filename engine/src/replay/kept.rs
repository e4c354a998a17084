//! A file with the target's states of texts, from which later replays run the draft alone.
//!
//! The states do not depend on the shapes, and on the draft only through the features that it
//! reads. The file is a cache: it is append-only and written in the background. An incomplete end,
//! left by a kill or a full disk, is detected when the file is opened, truncated, and recomputed.

mod format;

use std::{
    fs::{self, File, OpenOptions},
    io::{self, ErrorKind, Read, Seek, SeekFrom, Write},
    ops::Range,
    path::Path,
};

use self::format::{Extent, FORMAT, KeptTexts, OVERHEAD, StateFileHeader};
use super::ReplayText;
use crate::{backend::Replay, error::EngineError, identity::Identity, options::EngineOptions};

/// Maximum size of the states in memory at once, in bytes, unless a single position is larger.
const IN_FLIGHT: usize = 64 << 20;

/// The file in which a replay may keep the target's states of its texts.
pub struct KeepStates<'a> {
    /// Path of the file. It can be deleted at any time while no replay is running.
    pub path: &'a Path,
    /// Maximum size of the file in bytes. If the states of all texts need more, none are written.
    pub most_bytes: u64,
    /// Receives a message on whether the states are used, and if not, why: without them the target
    /// processes the texts.
    pub note: &'a mut dyn FnMut(&str),
}

/// A piece of a text whose states are in the file.
#[derive(Clone, Debug, PartialEq)]
pub struct KeptRange {
    /// Positions of the text.
    pub positions: Range<usize>,
    /// Byte offset of the states.
    pub offset: u64,
}

/// The open file.
pub struct StateFile<'a> {
    keep: KeepStates<'a>,
    header: StateFileHeader,
    extents: Vec<Extent>,
    /// `None` if it can neither be read nor written.
    file: Option<File>,
    /// Pieces of the first texts: those that the file contained when it was opened.
    known: Vec<Vec<KeptRange>>,
    /// Byte offset of the next piece.
    end: u64,
    writes: bool,
}

/// A file, and the models whose states it holds.
pub struct Keeping<'a, 'b> {
    /// The file.
    pub keep: KeepStates<'a>,
    /// The models.
    pub identity: &'b Identity,
    /// The options that they run with.
    pub options: &'b EngineOptions,
}

impl<'a> StateFile<'a> {
    /// Opens or creates the file for these texts. Contents for other texts or another target are
    /// discarded. `None` without a draft.
    pub fn open(keeping: Keeping<'a, '_>, backend: &dyn Replay, texts: &[ReplayText]) -> Option<Self> {
        let Keeping { keep, identity, options } = keeping;
        let device = backend.device();
        let row = backend.state_row()?;
        let header = StateFileHeader {
            format: FORMAT,
            engine: crate::NAME_AND_VERSION.into(),
            target: identity.target.clone(),
            device: device.device,
            device_name: device.name,
            driver: device.driver,
            attention: options.attention_backend.clone(),
            batch_invariant: options.batch_invariant,
            together: (IN_FLIGHT / (row.features + row.last).max(1)).clamp(1, backend.capacity().prefill_chunk.max(1)),
            row,
            texts: hash(texts),
        };
        let extents: Vec<Extent> = texts.iter().map(extent).collect();
        let mut kept = Self { keep, header, extents, file: None, known: Vec::new(), end: 0, writes: false };
        if let Err(error) = kept.find() {
            kept.say(&format!("cannot be used, so the target processes the texts again: {error}"));
            kept.file = None;
        }
        Some(kept)
    }

    /// Number of texts, from the first on, that the target need not process.
    pub fn known(&self) -> usize {
        if self.file.is_some() { self.known.len() } else { 0 }
    }

    /// Whether states of further texts are to be appended.
    pub fn writes(&self) -> bool {
        self.writes && self.file.is_some()
    }

    /// Maximum number of positions in a pass.
    pub fn together(&self) -> usize {
        self.header.together
    }

    /// A piece of a known text; `None` after the last one.
    pub fn piece(&self, text: usize, number: usize) -> Option<&KeptRange> {
        self.known.get(text)?.get(number)
    }

    /// Appends the states of a piece of a known text to `to`.
    ///
    /// # Errors
    /// When reading the file fails.
    pub fn read(&mut self, text: usize, piece: &KeptRange, to: &mut Vec<u8>) -> Result<(), EngineError> {
        let count = self.extents.get(text).map_or(0, |text| self.header.row.bytes(&piece.positions, &text.wanted));
        let start = to.len();
        to.resize(start + count, 0);
        let nothing = || Err(io::Error::from(ErrorKind::NotFound));
        let read = self.file.as_mut().map_or_else(nothing, |file| {
            file.seek(SeekFrom::Start(piece.offset))?;
            file.read_exact(&mut to[start..])
        });
        read.map_err(|source| EngineError::Read { path: self.keep.path.to_owned(), source })
    }

    /// Appends the first states, which belong to a piece of a text, to the file, and returns the
    /// rest. If that fails, the file is deleted, which frees the space on a full disk.
    pub fn add<'b>(&mut self, text: usize, positions: &Range<usize>, states: &'b [u8]) -> &'b [u8] {
        let count = self.extents.get(text).map_or(0, |text| self.header.row.bytes(positions, &text.wanted));
        let (states, rest) = states.split_at(count.min(states.len()));
        let Some(file) = self.file.as_mut().filter(|_| self.writes) else { return rest };
        let written =
            file.seek(SeekFrom::Start(self.end)).and_then(|_| format::write_piece(file, text, positions, states));
        match written {
            Ok(()) => self.end += states.len() as u64 + OVERHEAD,
            Err(error) => {
                self.file = None;
                let removed = fs::remove_file(self.keep.path).err();
                let left = removed.map_or_else(String::new, |error| format!("; the intact part is kept: {error}"));
                self.say(&format!("cannot be written, so the next replay processes the texts again: {error}{left}"));
            }
        }
        rest
    }

    /// Reads what is known, and prepares to write the rest.
    fn find(&mut self) -> io::Result<()> {
        let mut found = None;
        match OpenOptions::new().read(true).write(true).open(self.keep.path) {
            Ok(mut file) => {
                match self.look_into(&mut file)? {
                    Ok(texts) => found = Some(texts),
                    Err(reason) => self.say(&format!("cannot be used and is recreated: {reason}")),
                }
                self.file = Some(file);
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let count = self.extents.len();
        if let Some(KeptTexts { texts, end, more }) = found {
            (self.known, self.end) = (texts, end);
            if !self.known.is_empty() {
                self.say(&format!(
                    "contains the hidden states of {} of {count} texts from an earlier run",
                    self.known.len()
                ));
            }
            if more {
                self.say(&format!("is truncated or damaged after byte {end}; the rest is recreated"));
                self.file.as_ref().map_or(Ok(()), |file| file.set_len(end))?;
            }
            // Complete: the file is read and nothing is appended, so its size does not matter.
            if self.known.len() == count {
                return Ok(());
            }
        }
        let most = self.keep.most_bytes;
        let header = self.header.encode()?;
        let needed = header.len() as u64 + self.most_needed();
        if needed > most {
            let (needed, most) = (needed.div_ceil(1 << 20), most >> 20);
            self.say(&format!(
                "is not written: the hidden states of {count} texts may take {needed} MiB, but the limit is {most} \
                 MiB; the target processes the texts at each replay"
            ));
            return Ok(());
        }
        // Nothing that was found is used, so the file begins anew.
        if self.end == 0 {
            let mut file = match self.file.take() {
                Some(file) => file,
                None => OpenOptions::new().read(true).write(true).create_new(true).open(self.keep.path)?,
            };
            file.set_len(0)?;
            file.seek(SeekFrom::Start(0))?;
            file.write_all(&header)?;
            self.end = header.len() as u64;
            self.file = Some(file);
        }
        self.writes = true;
        Ok(())
    }

    /// The contents of the file for these texts, or the reason why it cannot be used.
    fn look_into(&self, file: &mut File) -> io::Result<Result<KeptTexts, String>> {
        match format::read_header(file) {
            Err(reason) => Ok(Err(reason)),
            Ok(header) if header != self.header => Ok(Err(header.differences(&self.header))),
            Ok(header) => format::look_through(file, &header, &self.extents).map(Ok),
        }
    }

    /// Maximum size of the pieces in bytes: the end of a text, or of a group of texts, may fall
    /// into the middle of a pass.
    fn most_needed(&self) -> u64 {
        let text = |text: &Extent| {
            let pieces = text.positions / self.header.together + 2;
            self.header.row.bytes(&(0..text.positions), &text.wanted) as u64 + pieces as u64 * OVERHEAD
        };
        self.extents.iter().map(text).sum()
    }

    fn say(&mut self, words: &str) {
        (self.keep.note)(&format!("{} {words}", self.keep.path.display()));
    }
}

/// The processed part of a text: all tokens except the last. Probabilities are needed after the
/// prompt of a sampled text.
fn extent(text: &ReplayText) -> Extent {
    let positions = text.tokens.len().saturating_sub(1);
    let wanted = if text.sampling.is_greedy() { 0..0 } else { text.prompt_tokens.saturating_sub(1)..positions };
    Extent { positions, wanted }
}

/// The hash that identifies the texts.
fn hash(texts: &[ReplayText]) -> String {
    let mut hasher = blake3::Hasher::new();
    for ReplayText { tokens, prompt_tokens, sampling } in texts {
        for number in [tokens.len(), *prompt_tokens, usize::from(sampling.is_greedy())] {
            hasher.update(&(number as u64).to_le_bytes());
        }
        tokens.iter().for_each(|token| {
            hasher.update(&token.to_le_bytes());
        });
    }
    hasher.finalize().to_hex()[..16].to_owned()
}
