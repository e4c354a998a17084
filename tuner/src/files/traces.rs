//! Files of traces by position: one record per line, as JSON.

use std::{fmt::Write as _, path::Path};

use engine::replay::trace::{FORMAT, OLDEST, PositionTrace};

use crate::{
    TunerError,
    files::atomic_file::{self, FormatVersion},
};

/// Largest file in bytes: about a million positions of 30 nodes.
const LARGEST: u64 = 2 << 30;

/// How a file of traces is made.
const WRITTEN_BY: &str = "`spectune generate … --trace FILE` writes such files";

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
/// When it cannot be read, has another format, is damaged, or has two traces of one limit.
pub fn read(path: &Path) -> Result<Vec<PositionTrace>, TunerError> {
    let text = atomic_file::read(path, LARGEST).map_err(|source| TunerError::Read { path: path.to_owned(), source })?;
    let trace = |(at, line): (usize, &str)| {
        let wrong = |reason: String| TunerError::Malformed {
            path: path.to_owned(),
            reason: format!("line {}: {reason}; {WRITTEN_BY}", at + 1),
        };
        let version: FormatVersion = serde_json::from_str(line).map_err(|error| wrong(error.to_string()))?;
        version.expect_within(OLDEST, FORMAT).map_err(wrong)?;
        let trace: PositionTrace = serde_json::from_str(line).map_err(|error| wrong(error.to_string()))?;
        trace.check().map_err(wrong)?;
        Ok::<_, TunerError>((at + 1, trace))
    };
    // Editors write a byte order mark at the start.
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let (places, traces): (Vec<usize>, Vec<PositionTrace>) = lines.map(trace).collect::<Result<_, TunerError>>()?;
    if traces.is_empty() {
        let reason = format!("it contains no trace; {WRITTEN_BY}");
        return Err(TunerError::Malformed { path: path.to_owned(), reason });
    }
    check_limits(&traces, &places).map_err(|reason| TunerError::Malformed { path: path.to_owned(), reason })?;
    Ok(traces)
}

/// Refuses a second trace of one limit: which of them counts is not known, and what is traced would
/// count twice. `places` are the lines of the traces.
fn check_limits(traces: &[PositionTrace], places: &[usize]) -> Result<(), String> {
    for (at, trace) in traces.iter().enumerate() {
        let Some(first) = traces[..at].iter().position(|one| one.limit == trace.limit) else { continue };
        let what = if traces[first] == *trace { "the same trace" } else { "another trace of the limit" };
        return Err(format!(
            "line {}: {what} as in line {} ({}): remove one of them, since a file has one trace for each limit",
            places[at], places[first], trace.limit
        ));
    }
    Ok(())
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
        let other = PositionTrace { limit: TreeShape::chain(2), ..trace.clone() };
        write(&path, &[trace.clone(), other.clone()]).expect("it is written");
        assert_eq!(read(&path).expect("it is read"), [trace, other]);
        let text = std::fs::read_to_string(&path).expect("the file");
        std::fs::write(&path, format!("\u{feff}{text}")).expect("a byte order mark");
        assert_eq!(read(&path).expect("it is read").len(), 2);
        let of = |format: u32| text.replacen(&format!("\"format\":{FORMAT}"), &format!("\"format\":{format}"), 1);
        std::fs::write(&path, of(OLDEST)).expect("an older format");
        assert_eq!(read(&path).expect("it is read")[0].format, OLDEST);
        std::fs::write(&path, of(9)).expect("another format");
        let error = read(&path).expect_err("another format").to_string();
        assert!(error.contains("line 1") && error.contains("format 9"), "{error}");
    }

    #[test]
    fn a_second_trace_of_one_limit_is_refused_with_both_lines() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("trace.jsonl");
        let of = |steps: usize, source: &str| PositionTrace {
            format: FORMAT,
            source: source.into(),
            limit: TreeShape::chain(steps),
            largest: Vec::new(),
            texts: Vec::new(),
        };
        for (third, what) in [("EAGLE3", "the same trace"), ("EAGLE", "another trace of the limit")] {
            write(&path, &[of(1, "EAGLE3"), of(2, "EAGLE3"), of(1, third)]).expect("it is written");
            let error = read(&path).expect_err("a second one").to_string();
            assert!(error.contains(&format!("line 3: {what} as in line 1 (1,1,2)")), "{error}");
        }
    }
}
