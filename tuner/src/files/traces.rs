//! Files of traces by position: one record per line, as JSON.

use std::{fmt::Write as _, path::Path};

use engine::replay::trace::{FORMAT, OLDEST, PositionTrace};

use crate::{
    TunerError,
    files::atomic_file::{self, FormatVersion},
};

/// Largest file in bytes: about a million positions of 30 nodes.
const LARGEST: u64 = 2 << 30;

/// Writes traces to a file atomically.
///
/// # Errors
/// When it cannot be written.
pub fn write(path: &Path, traces: &[PositionTrace]) -> Result<(), TunerError> {
    let malformed = |reason: String| TunerError::Malformed { path: path.to_owned(), reason };
    let mut lines = String::new();
    for trace in traces {
        let line = serde_json::to_string(trace).map_err(|error| malformed(error.to_string()))?;
        let _ = writeln!(lines, "{line}");
    }
    let (folder, name) = place(path)?;
    atomic_file::write(folder, name, lines.as_bytes())
}

/// Reads a file of traces.
///
/// # Errors
/// When it cannot be read, has another format, or is damaged.
pub fn read(path: &Path) -> Result<Vec<PositionTrace>, TunerError> {
    let text = atomic_file::read(path, LARGEST).map_err(|source| TunerError::Read { path: path.to_owned(), source })?;
    let trace = |(at, line): (usize, &str)| {
        let wrong = |reason: String| TunerError::Malformed {
            path: path.to_owned(),
            reason: format!("line {}: {reason}", at + 1),
        };
        let version: FormatVersion = serde_json::from_str(line).map_err(|error| wrong(error.to_string()))?;
        version.expect_within(OLDEST, FORMAT).map_err(wrong)?;
        let trace: PositionTrace = serde_json::from_str(line).map_err(|error| wrong(error.to_string()))?;
        trace.check().map_err(wrong)?;
        Ok(trace)
    };
    let traces = text.lines().enumerate().map(trace).collect::<Result<Vec<_>, TunerError>>()?;
    if traces.is_empty() {
        let reason = "it contains no trace: `spectune generate --trace` writes one".into();
        return Err(TunerError::Malformed { path: path.to_owned(), reason });
    }
    Ok(traces)
}

/// Checks that traces can be written to a file, before they are made.
///
/// # Errors
/// When its folder does not exist or cannot be written, or the name is that of a folder.
pub fn check_place(path: &Path) -> Result<(), TunerError> {
    let (folder, name) = place(path)?;
    atomic_file::check_place(folder, name)
}

/// The folder and the name of a file.
fn place(path: &Path) -> Result<(&Path, &str), TunerError> {
    let name = path.file_name().and_then(|name| name.to_str());
    let nameless = || TunerError::Malformed { path: path.to_owned(), reason: "it has no file name".into() };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Ok((folder, name.ok_or_else(nameless)?))
}

#[cfg(test)]
mod tests {
    use schemas::tree::TreeShape;

    use super::*;

    #[test]
    fn what_is_written_is_read_and_another_format_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("trace.jsonl");
        let trace = PositionTrace {
            format: FORMAT,
            source: "EAGLE3".into(),
            limit: TreeShape::chain(1),
            largest: vec![TreeShape::chain(1)],
            texts: Vec::new(),
        };
        write(&path, &[trace.clone(), trace.clone()]).expect("it is written");
        assert_eq!(read(&path).expect("it is read"), [trace.clone(), trace]);
        let text = std::fs::read_to_string(&path).expect("the file");
        let of = |format: u32| text.replacen(&format!("\"format\":{FORMAT}"), &format!("\"format\":{format}"), 1);
        std::fs::write(&path, of(OLDEST)).expect("an older format");
        assert_eq!(read(&path).expect("it is read")[0].format, OLDEST);
        std::fs::write(&path, of(9)).expect("another format");
        let error = read(&path).expect_err("another format").to_string();
        assert!(error.contains("line 1") && error.contains("format 9"), "{error}");
    }
}
