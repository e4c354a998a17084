//! The texts that the target generates without speculation, from which acceptance is replayed.
//! Generating them takes as long as a trial, so they are kept next to the journal as `texts.jsonl`,
//! for resumed sweeps and for inspection. The first line identifies model and workload. Each
//! further line is one text, in the order of the workload's requests.

use std::{path::Path, time::Instant};

use engine::{Request, ShapePolicy, replay::ReplayText};
use schemas::tree::TreeShape;
use serde::{Deserialize, Serialize};

use crate::{
    TunerError,
    files::atomic_file::{self, FormatVersion},
    preparation::{Ready, context::SweepContext, request::SweepProgress},
    trials::record::Fingerprint,
};

/// The file's name in the folder of a sweep.
pub const FILE_NAME: &str = "texts.jsonl";
/// The version of the format that this program writes and reads.
const FORMAT: u32 = 1;
/// Largest file in bytes: a few hundred texts of the longest contexts.
const LARGEST: u64 = 1 << 30;
/// Maximum number of texts to replay; more would hardly improve the known acceptance.
const MOST: usize = 256;

/// Texts written by the target.
pub struct TargetTexts {
    /// In the order of the workload's requests.
    pub texts: Vec<ReplayText>,
    /// Time to generate them, in seconds.
    pub seconds: f64,
}

/// The first line.
#[derive(Serialize, Deserialize)]
struct TextsHeader {
    /// [`FORMAT`].
    format: u32,
    /// Where and with what they were written.
    fingerprint: Fingerprint,
    /// Time to generate them, in seconds.
    seconds: f64,
    /// Hash of all lines after this one.
    checksum: String,
}

/// Any other line.
#[derive(Serialize, Deserialize)]
struct TextLine {
    prompt_ids: Vec<u32>,
    output_ids: Vec<u32>,
}

/// The texts of a sweep: the ones in its folder if it is resumed and they have the same target,
/// settings and workload, else new ones, which are then written there.
///
/// # Errors
/// When the engine fails, or the texts cannot be written.
pub fn find(context: &mut SweepContext<'_>) -> Result<TargetTexts, TunerError> {
    let SweepContext { ready, out, resume, progress, .. } = context;
    let requests: Vec<Request> = ready.workload.requests.iter().take(MOST).cloned().collect();
    if *resume || ready.has_texts {
        match read(out, &ready.fingerprint, &requests) {
            Ok(Some(texts)) => {
                if !ready.has_texts {
                    progress.note("texts without speculation are loaded from an earlier run");
                }
                return Ok(texts);
            }
            Ok(None) => {}
            Err(reason) => {
                progress.note(&format!("{FILE_NAME} cannot be used, so the texts are generated again: {reason}"))
            }
        }
    }
    let texts = make(&requests, ready, *progress)?;
    atomic_file::write(out, FILE_NAME, text(&texts, &ready.fingerprint)?.as_bytes())?;
    ready.has_texts = true;
    Ok(texts)
}

/// Runs requests without speculation.
fn make(requests: &[Request], ready: &mut Ready, progress: &mut dyn SweepProgress) -> Result<TargetTexts, TunerError> {
    progress.preparing("texts without speculation", requests.len());
    let begin = Instant::now();
    let engine = ready.engine()?;
    engine.set_policy(ShapePolicy::fixed(TreeShape::OFF))?;
    let completions = engine.run(requests.to_vec())?;
    progress.prepared(requests.len());
    let texts = requests.iter().zip(&completions).map(|(request, completion)| ReplayText::new(request, completion));
    Ok(TargetTexts { texts: texts.collect(), seconds: begin.elapsed().as_secs_f64() })
}

/// The contents of the file for these texts.
fn text(texts: &TargetTexts, fingerprint: &Fingerprint) -> Result<String, TunerError> {
    let unwritable = |error: serde_json::Error| TunerError::Configuration(format!("{FILE_NAME}: {error}"));
    let mut lines = String::new();
    for one in &texts.texts {
        let (prompt, output) = one.tokens.split_at(one.prompt_tokens.min(one.tokens.len()));
        let line = TextLine { prompt_ids: prompt.to_vec(), output_ids: output.to_vec() };
        lines += &(serde_json::to_string(&line).map_err(unwritable)? + "\n");
    }
    let header = TextsHeader {
        format: FORMAT,
        fingerprint: fingerprint.clone(),
        seconds: texts.seconds,
        checksum: checksum(&lines),
    };
    Ok(serde_json::to_string(&header).map_err(unwritable)? + "\n" + &lines)
}

/// The texts of a folder; `None` if there are none. The error says why they cannot be used for
/// these requests.
fn read(folder: &Path, fingerprint: &Fingerprint, requests: &[Request]) -> Result<Option<TargetTexts>, String> {
    let text = atomic_file::read_if_there(&folder.join(FILE_NAME), LARGEST).map_err(|error| error.to_string())?;
    text.map(|text| parse(&text, fingerprint, requests)).transpose()
}

/// The contents of a folder's file, if it is complete and its texts are of this target, machine and
/// workload.
pub(crate) fn usable(folder: &Path, fingerprint: &Fingerprint) -> Option<String> {
    let text = atomic_file::read_if_there(&folder.join(FILE_NAME), LARGEST).ok().flatten()?;
    open(&text, fingerprint).is_ok().then_some(text)
}

/// Whether two files contain the same texts, ignoring the time to generate them.
pub(crate) fn same(this: &str, that: &str) -> bool {
    let lines = |text| str::split_once(text, '\n').map(|(_, lines)| lines);
    lines(this) == lines(that)
}

/// The header of a file and the lines after it; the error says why they cannot be used.
fn open<'a>(text: &'a str, fingerprint: &Fingerprint) -> Result<(TextsHeader, &'a str), String> {
    let (first, lines) = text.split_once('\n').ok_or("it has no complete line")?;
    let wrong = |error: serde_json::Error| format!("line 1: {error}");
    let version: FormatVersion = serde_json::from_str(first).map_err(wrong)?;
    version.expect(FORMAT)?;
    let header: TextsHeader = serde_json::from_str(first).map_err(wrong)?;
    // The draft does not affect text without speculation.
    let (there, here) = (header.fingerprint.without_draft(), fingerprint.without_draft());
    if there != here {
        return Err(format!("it was written elsewhere ({})", there.difference(&here)));
    }
    if header.checksum != checksum(lines) {
        return Err("it is damaged, or was changed by hand".into());
    }
    Ok((header, lines))
}

fn parse(text: &str, fingerprint: &Fingerprint, requests: &[Request]) -> Result<TargetTexts, String> {
    let (header, lines) = open(text, fingerprint)?;
    let count = lines.lines().count();
    if count != requests.len() {
        return Err(format!("it contains {count} texts, but {} are needed", requests.len()));
    }
    let texts = lines.lines().zip(requests).enumerate().map(|(at, (line, request))| {
        let TextLine { prompt_ids, output_ids } =
            // Lines count from one, and the first is the header.
            serde_json::from_str(line).map_err(|error| format!("line {}: {error}", at + 2))?;
        if prompt_ids != request.input_ids {
            return Err(format!("line {}: its prompt is not that of the workload", at + 2));
        }
        let sampling = request.sampling.clone();
        Ok(ReplayText { prompt_tokens: prompt_ids.len(), tokens: [prompt_ids, output_ids].concat(), sampling })
    });
    Ok(TargetTexts { texts: texts.collect::<Result<_, String>>()?, seconds: header.seconds })
}

fn checksum(lines: &str) -> String {
    // 64 bits are enough against damage; nothing here is protected against intent.
    blake3::hash(lines.as_bytes()).to_hex()[..16].to_owned()
}
