//! The format of the file of kept states.
//!
//! It consists of [`MAGIC`], the length of the header (4 bytes), the header as JSON, its checksum;
//! then pieces of texts: text, position and number of positions (8 bytes each), their states, and a
//! checksum of all that. All numbers are little-endian. Pieces are ordered by text and position, so
//! a truncated file holds a prefix of the complete one.

use std::{
    fs::File,
    io::{self, BufReader, ErrorKind, Read, Seek, SeekFrom, Write},
    ops::Range,
};

use serde::{Deserialize, Serialize};

use super::KeptRange;
use crate::backend::StateRow;

/// The first bytes of a file.
const MAGIC: [u8; 8] = *b"spstates";
/// The version of the format that this program writes and reads.
pub const FORMAT: u32 = 1;
/// Maximum length of a header in bytes.
const LONGEST_HEADER: usize = 1 << 16;
/// Length of a checksum in bytes: the first ones of a blake3 hash.
const CHECKSUM: usize = 16;
/// Bytes before the states of a piece: text, position and number of positions.
const HEAD: usize = 24;
/// Bytes of a piece in addition to its states.
pub const OVERHEAD: u64 = (HEAD + CHECKSUM) as u64;
/// Bytes read at once when scanning.
const WINDOW: usize = 1 << 20;

/// What the states depend on: if anything differs, the target must process the texts again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StateFileHeader {
    /// [`FORMAT`].
    pub format: u32,
    /// The program and its version.
    pub engine: String,
    /// Hash of the target's files.
    pub target: String,
    /// For example `cuda:0`.
    pub device: String,
    /// The name of the processor or GPU.
    pub device_name: String,
    /// The driver's version.
    pub driver: String,
    /// Attention kernels, if they were chosen by a flag.
    pub attention: Option<String>,
    /// Whether sums have an order that does not depend on the batch.
    pub batch_invariant: bool,
    /// Layout of the state of a position.
    pub row: StateRow,
    /// Maximum number of positions in a pass.
    pub together: usize,
    /// Hash of the texts.
    pub texts: String,
}

/// The extent of a text's states.
#[derive(Clone, Debug)]
pub struct Extent {
    /// Number of processed positions.
    pub positions: usize,
    /// Positions after which the target's final state is stored.
    pub wanted: Range<usize>,
}

/// The contents of a file.
pub struct KeptTexts {
    /// The pieces of each complete text; these are the first texts.
    pub texts: Vec<Vec<KeptRange>>,
    /// Byte offset of the end of the last one.
    pub end: u64,
    /// Whether other data follows.
    pub more: bool,
}

impl StateFileHeader {
    /// The encoded file up to its pieces.
    ///
    /// # Errors
    /// When the header cannot be encoded as JSON, or is too long to be read again.
    pub fn encode(&self) -> io::Result<Vec<u8>> {
        let text = serde_json::to_vec(self)?;
        if text.len() > LONGEST_HEADER {
            return Err(io::Error::new(ErrorKind::InvalidData, format!("a header of {} bytes", text.len())));
        }
        Ok([&MAGIC[..], &(text.len() as u32).to_le_bytes(), &text, &checksum(&text)].concat())
    }

    /// A message with the differences from another header.
    pub fn differences(&self, now: &Self) -> String {
        let fields = |header: &Self| match serde_json::to_value(header) {
            Ok(serde_json::Value::Object(fields)) => fields,
            _ => serde_json::Map::new(),
        };
        let now = fields(now);
        let differs = |(name, value): (String, serde_json::Value)| {
            let new = now.get(&name).filter(|new| **new != value)?;
            Some(format!("{name} {value}, now {new}"))
        };
        fields(self).into_iter().filter_map(differs).collect::<Vec<_>>().join("; ")
    }
}

/// Reads the start of a file, up to its pieces.
///
/// # Errors
/// A message, if the file has another format.
pub fn read_header(file: &mut File) -> Result<StateFileHeader, String> {
    let cut = |error: io::Error| match error.kind() {
        ErrorKind::UnexpectedEof => "it ends within its header".to_owned(),
        _ => error.to_string(),
    };
    let mut begin = [0; MAGIC.len() + 4];
    file.seek(SeekFrom::Start(0)).and_then(|_| file.read_exact(&mut begin)).map_err(cut)?;
    let Some(length) = begin.strip_prefix(&MAGIC).and_then(|length| length.try_into().ok()).map(u32::from_le_bytes)
    else {
        return Err("it holds no states".into());
    };
    let length = length as usize;
    if length > LONGEST_HEADER {
        return Err(format!("its header has {length} bytes; the limit is {LONGEST_HEADER}"));
    }
    let mut text = vec![0; length + CHECKSUM];
    file.read_exact(&mut text).map_err(cut)?;
    let (text, sum) = text.split_at(length);
    if checksum(text) != *sum {
        return Err("its header is damaged".into());
    }
    let value: serde_json::Value = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    // Another format version may have another header.
    if value.get("format") != Some(&FORMAT.into()) {
        let format = value.get("format").map_or("none".to_owned(), ToString::to_string);
        return Err(format!(
            "it has format {format}, but this program reads {FORMAT}: it was written by another version of spectune"
        ));
    }
    serde_json::from_value(value).map_err(|error| error.to_string())
}

/// Scans the pieces after the header; returns the intact ones, up to the end of the last complete
/// text.
///
/// # Errors
/// When the file cannot be read.
pub fn look_through(file: &mut File, header: &StateFileHeader, texts: &[Extent]) -> io::Result<KeptTexts> {
    let begin = file.stream_position()?;
    let length = file.metadata()?.len();
    let mut found = KeptTexts { texts: Vec::new(), end: begin, more: false };
    let (mut pieces, mut at) = (Vec::new(), begin);
    let mut reader = BufReader::with_capacity(WINDOW, file);
    while let Some(text) = texts.get(found.texts.len()) {
        let start = pieces.last().map_or(0, |piece: &KeptRange| piece.positions.end);
        let Some(piece) = next(&mut reader, header, found.texts.len(), text, start, at)? else { break };
        at = piece.offset + header.row.bytes(&piece.positions, &text.wanted) as u64 + CHECKSUM as u64;
        let whole = piece.positions.end == text.positions;
        pieces.push(piece);
        if whole {
            found.texts.push(std::mem::take(&mut pieces));
            found.end = at;
        }
    }
    found.more = found.end < length;
    Ok(found)
}

/// The piece of a text that starts at this position and byte offset, if it exists and is intact.
fn next(
    reader: &mut impl Read,
    header: &StateFileHeader,
    number: usize,
    text: &Extent,
    start: usize,
    at: u64,
) -> io::Result<Option<KeptRange>> {
    let mut head = [0; HEAD];
    if !fill(reader, &mut head)? {
        return Ok(None);
    }
    let (words, _) = head.as_chunks::<8>();
    let [of, from, count] = [0, 1, 2].map(|at| words.get(at).map_or(u64::MAX, |word| u64::from_le_bytes(*word)));
    let most = header.together.min(text.positions - start) as u64;
    if (of, from) != (number as u64, start as u64) || !(1..=most).contains(&count) {
        return Ok(None);
    }
    let positions = start..start + count as usize;
    let mut hasher = blake3::Hasher::new();
    hasher.update(&head);
    let mut left = header.row.bytes(&positions, &text.wanted);
    let mut window = vec![0; left.min(WINDOW)];
    while left > 0 {
        let part = left.min(WINDOW);
        if !fill(reader, &mut window[..part])? {
            return Ok(None);
        }
        hasher.update(&window[..part]);
        left -= part;
    }
    let mut sum = [0; CHECKSUM];
    let sound = fill(reader, &mut sum)? && hasher.finalize().as_bytes().starts_with(&sum);
    Ok(sound.then_some(KeptRange { positions, offset: at + HEAD as u64 }))
}

/// Whether the reader had enough bytes to fill the buffer.
fn fill(reader: &mut impl Read, buffer: &mut [u8]) -> io::Result<bool> {
    match reader.read_exact(buffer) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

/// Writes a piece; its states start [`HEAD`] bytes after its own start.
///
/// # Errors
/// When writing fails.
pub fn write_piece(file: &mut File, text: usize, positions: &Range<usize>, states: &[u8]) -> io::Result<()> {
    let head = [text, positions.start, positions.len()].map(|number| (number as u64).to_le_bytes()).concat();
    let mut hasher = blake3::Hasher::new();
    hasher.update(&head).update(states);
    file.write_all(&head)?;
    file.write_all(states)?;
    file.write_all(&hasher.finalize().as_bytes()[..CHECKSUM])
}

fn checksum(bytes: &[u8]) -> Vec<u8> {
    blake3::hash(bytes).as_bytes()[..CHECKSUM].to_vec()
}
