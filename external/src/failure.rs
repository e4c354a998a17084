//! Classifies the failure of a server from its log.
//!
//! The messages are those of SGLang 0.5.9 to 0.5.23 and vLLM 0.10 to 0.33. The class determines the
//! remedy: a run that failed because of its configuration is never repeated; one that lost a race
//! for a port is.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Maximum number of bytes of a log's end that are kept with a failure.
pub const KEPT_LOG_BYTES: usize = 8 << 10;

/// Maximum number of lines of a server's last message.
const MESSAGE_LINES: usize = 4;
/// Maximum number of characters of each.
const LINE_CHARACTERS: usize = 500;

/// Classes of failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureClass {
    /// GPU memory ran out while CUDA graphs were captured.
    OutOfMemoryAtCapture,
    /// No GPU memory left for a useful KV cache after the weights.
    OutOfMemoryForCache,
    /// GPU memory ran out while requests ran.
    OutOfMemoryWhileRunning,
    /// The host ran out of memory, and the kernel killed a process.
    HostOutOfMemory,
    /// Another process holds the GPU's memory.
    GpuNotFree,
    /// A CUDA kernel accessed an illegal address.
    IllegalAccess,
    /// NCCL, or another link between ranks, failed.
    Communication,
    /// The engine rejected the configuration.
    Configuration,
    /// A port was in use.
    PortInUse,
    /// The server did not respond in time.
    Hang,
    /// Another server responds on the port.
    ForeignServer,
    /// It ended for a reason that the log does not show.
    Crash,
}

/// How to continue after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// Do not repeat: the same would happen again, and the configuration counts as failed.
    Never,
    /// Try once more: the same configuration may succeed on fresh ports.
    OnceMore,
    /// Stop: the machine must be fixed first.
    StopTheSweep,
}

/// A failure with its evidence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerFailure {
    /// Its class.
    pub class: FailureClass,
    /// The log line with the cause, or what was observed instead.
    pub evidence: String,
    /// The end of the log.
    pub log_tail: String,
}

/// Texts that identify a failure in a log. The first matching entry decides, so specific texts come
/// first, and messages that only report a child's death come last.
struct Signature {
    /// Texts that must all be on one line.
    texts: &'static [&'static str],
    class: FailureClass,
}

const fn signature(texts: &'static [&'static str], class: FailureClass) -> Signature {
    Signature { texts, class }
}

const SIGNATURES: &[Signature] = &[
    // `Capture cuda graph failed`, `Capture prefill CUDA graph failed` and the like.
    signature(&["Capture ", "graph failed", "out of memory"], FailureClass::OutOfMemoryAtCapture),
    signature(&["Capture ", "graph failed", "same dtype"], FailureClass::Configuration),
    signature(&["illegal memory access"], FailureClass::IllegalAccess),
    signature(&["illegal instruction was encountered"], FailureClass::IllegalAccess),
    signature(&["misaligned address"], FailureClass::IllegalAccess),
    signature(&["less than desired GPU memory utilization"], FailureClass::GpuNotFree),
    signature(&["Not enough memory. Please try to increase --mem-fraction-static"], FailureClass::OutOfMemoryForCache),
    signature(&["Not enough memory", "mem-fraction-static"], FailureClass::OutOfMemoryForCache),
    signature(&["No available memory for the cache blocks"], FailureClass::OutOfMemoryForCache),
    signature(&["KV cache is needed", "larger than the available KV cache memory"], FailureClass::OutOfMemoryForCache),
    signature(&["alloc_req_slots runs out of memory"], FailureClass::OutOfMemoryWhileRunning),
    signature(&["Prefill out of memory"], FailureClass::OutOfMemoryWhileRunning),
    signature(&["Decode out of memory"], FailureClass::OutOfMemoryWhileRunning),
    // When one rank runs out of memory, the links of the others break.
    signature(&["torch.OutOfMemoryError"], FailureClass::OutOfMemoryWhileRunning),
    signature(&["CUDA out of memory"], FailureClass::OutOfMemoryWhileRunning),
    signature(&["cudaErrorMemoryAllocation"], FailureClass::OutOfMemoryWhileRunning),
    signature(&["CUDA_ERROR_OUT_OF_MEMORY"], FailureClass::OutOfMemoryWhileRunning),
    signature(&["address already in use"], FailureClass::PortInUse),
    signature(&["is used by a process already"], FailureClass::PortInUse),
    signature(&["EADDRINUSE"], FailureClass::PortInUse),
    signature(&["ncclSystemError"], FailureClass::Communication),
    signature(&["ncclUnhandledCudaError"], FailureClass::Communication),
    signature(&["ncclInternalError"], FailureClass::Communication),
    signature(&["NCCL error"], FailureClass::Communication),
    signature(&["Watchdog caught collective operation timeout"], FailureClass::Communication),
    signature(&["couldn't get a response from detokenizer"], FailureClass::Hang),
    signature(&["Scheduler watchdog timeout"], FailureClass::Hang),
    signature(&["died during initialization (exit code: -9)"], FailureClass::HostOutOfMemory),
    signature(&["error: unrecognized arguments"], FailureClass::Configuration),
    signature(&["error: argument"], FailureClass::Configuration),
    signature(&["invalid choice:"], FailureClass::Configuration),
    signature(&["selected index k out of range"], FailureClass::Configuration),
    signature(&["NotImplementedError"], FailureClass::Configuration),
    signature(&["AssertionError"], FailureClass::Configuration),
    signature(&["ValidationError"], FailureClass::Configuration),
    signature(&["ValueError:"], FailureClass::Configuration),
    signature(&["KeyError:"], FailureClass::Configuration),
    signature(&["ModuleNotFoundError"], FailureClass::Configuration),
];

/// Messages at the start of graph capture: running out of memory after one of them and before
/// readiness is a failed capture.
///
/// Each entry lists texts of one line: SGLang names the graphs of a phase (`Capture target prefill
/// CUDA graph begin`), vLLM says `Capturing CUDA graphs` or, in 0.10.0, `Capturing CUDA graph
/// shapes`.
const CAPTURE_BEGINS: &[&[&str]] = &[&["Capturing CUDA graph"], &["Capturing batches"], &["Capture ", "graph begin"]];

/// How a server's main process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessEnd {
    /// With an exit code.
    Code(i32),
    /// By a signal.
    Signal(i32),
}

/// Classifies the failure of a server that ended by itself.
///
/// `was_ready` says whether it had been serving before.
pub fn from_end(ended: ProcessEnd, was_ready: bool, log: &str) -> ServerFailure {
    let log_tail = tail(log);
    if let Some((class, line)) = reported(log) {
        let capturing = class == FailureClass::OutOfMemoryWhileRunning && !was_ready;
        let class = match capturing {
            true if captures(log, line) => FailureClass::OutOfMemoryAtCapture,
            true => FailureClass::OutOfMemoryForCache,
            false => class,
        };
        return ServerFailure { class, evidence: line.trim().to_owned(), log_tail };
    }
    let (class, evidence) = match ended {
        ProcessEnd::Signal(9) => {
            (FailureClass::HostOutOfMemory, "killed by SIGKILL, as the kernel does when memory runs out".to_owned())
        }
        ProcessEnd::Signal(11) => (FailureClass::Crash, "killed by SIGSEGV".to_owned()),
        ProcessEnd::Signal(signal) => (FailureClass::Crash, format!("ended by signal {signal}")),
        // Argument parsers exit with 2.
        ProcessEnd::Code(2) if !was_ready => (
            FailureClass::Configuration,
            last_words(log).unwrap_or_else(|| "exit code 2: the arguments were rejected, without a message".to_owned()),
        ),
        ProcessEnd::Code(code) => (
            FailureClass::Crash,
            match last_words(log) {
                Some(words) => format!("exit code {code}: {words}"),
                None => format!("exit code {code}, and its log is empty"),
            },
        ),
    };
    ServerFailure { class, evidence, log_tail }
}

/// Classifies the failure of a server that still runs but does not work as it should.
pub fn from_silence(what: &str, log: &str) -> ServerFailure {
    // A cause in the log takes precedence: some parents keep waiting for a dead child.
    match reported(log) {
        Some((class, line)) => ServerFailure { class, evidence: line.trim().to_owned(), log_tail: tail(log) },
        None => ServerFailure { class: FailureClass::Hang, evidence: what.to_owned(), log_tail: tail(log) },
    }
}

/// The cause in a log, with its line.
fn reported(log: &str) -> Option<(FailureClass, &str)> {
    SIGNATURES.iter().find_map(|one| {
        let has = |line: &&str| one.texts.iter().all(|text| contains(line, text));
        log.lines().find(has).map(|line| (one.class, line))
    })
}

/// What a server said last: the message of an argument parser or the last line of a traceback with
/// the lines that continue it, else its last line. `None` if it said nothing.
fn last_words(log: &str) -> Option<String> {
    let plain = without_colour(log);
    let lines: Vec<&str> = plain.lines().filter(|line| !line.trim().is_empty()).collect();
    let is_message = |line: &&str| {
        // `error: …` of a parser, with the program's name or without; `NameError: …` and the like
        // at the end of a traceback.
        let (head, message) = line.split_once(':').unwrap_or_default();
        let name = head.rsplit(['.', ' ']).next().unwrap_or_default();
        let is_error = head == "error" || name.ends_with("Error") || name.ends_with("Exception");
        !line.starts_with(char::is_whitespace) && (is_error || message.trim_start().starts_with("error:"))
    };
    let at = lines.iter().rposition(is_message).unwrap_or(lines.len().checked_sub(1)?);
    let message = lines[at..].iter().take(MESSAGE_LINES).map(|line| line.trim());
    Some(message.map(|line| line.chars().take(LINE_CHARACTERS).collect()).collect::<Vec<String>>().join(" | "))
}

/// A text without the sequences that colour it on a terminal.
fn without_colour(text: &str) -> String {
    let mut parts = text.split("\u{1b}[");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |plain, part| {
        let end = part.find(|letter: char| letter.is_ascii_alphabetic()).map_or(part.len(), |at| at + 1);
        plain + &part[end..]
    })
}

/// Whether a line contains a text, ignoring ASCII case.
fn contains(line: &str, text: &str) -> bool {
    line.as_bytes().windows(text.len()).any(|part| part.eq_ignore_ascii_case(text.as_bytes()))
}

/// Whether graphs were being captured when a line was written.
fn captures(log: &str, line: &str) -> bool {
    let before = log.split(line).next().unwrap_or_default();
    let begins = |line: &str| CAPTURE_BEGINS.iter().any(|texts| texts.iter().all(|text| contains(line, text)));
    before.lines().chain([line]).any(begins)
}

/// The end of a log, from the start of a line if possible.
pub fn tail(log: &str) -> String {
    let mut start = log.len().saturating_sub(KEPT_LOG_BYTES);
    while !log.is_char_boundary(start) {
        start += 1;
    }
    let kept = &log[start..];
    match (start, kept.find('\n')) {
        (1.., Some(end)) => kept[end + 1..].to_owned(),
        _ => kept.to_owned(),
    }
}

impl FailureClass {
    /// As a phrase.
    pub fn words(self) -> &'static str {
        match self {
            Self::OutOfMemoryAtCapture => "out of GPU memory while capturing CUDA graphs",
            Self::OutOfMemoryForCache => "no GPU memory left for a KV cache",
            Self::OutOfMemoryWhileRunning => "out of GPU memory while serving",
            Self::HostOutOfMemory => "killed because the host ran out of memory",
            Self::GpuNotFree => "another process holds the GPU's memory",
            Self::IllegalAccess => "illegal memory access on the GPU",
            Self::Communication => "communication between GPUs failed",
            Self::Configuration => "the engine rejected the configuration",
            Self::PortInUse => "a port was in use",
            Self::Hang => "no response in time",
            Self::ForeignServer => "another server responds on the port",
            Self::Crash => "crashed",
        }
    }

    /// The remedy.
    pub fn remedy(self) -> Remedy {
        match self {
            Self::PortInUse | Self::Communication | Self::Hang | Self::ForeignServer => Remedy::OnceMore,
            Self::GpuNotFree => Remedy::StopTheSweep,
            Self::OutOfMemoryAtCapture
            | Self::OutOfMemoryForCache
            | Self::OutOfMemoryWhileRunning
            | Self::HostOutOfMemory
            | Self::IllegalAccess
            | Self::Configuration
            | Self::Crash => Remedy::Never,
        }
    }

    /// Whether the cause is outside the server and its configuration, so that a later start may
    /// succeed.
    pub fn is_elsewhere(self) -> bool {
        matches!(self, Self::GpuNotFree | Self::PortInUse | Self::ForeignServer)
    }

    /// Advice to the user; empty if there is none in general.
    pub fn advice(self) -> &'static str {
        match self {
            Self::OutOfMemoryAtCapture => "lower the largest captured batch size, then the memory fraction",
            Self::OutOfMemoryForCache => "raise the memory fraction, or shorten the context",
            Self::OutOfMemoryWhileRunning => "lower the memory fraction or the largest batch",
            Self::HostOutOfMemory => "give the job more host memory",
            Self::GpuNotFree => "end the process that holds the GPU",
            Self::Configuration => "run `spectune lint` on the launch",
            Self::Communication | Self::PortInUse => "it is retried once on other ports",
            Self::IllegalAccess | Self::Hang | Self::ForeignServer | Self::Crash => "",
        }
    }
}

impl fmt::Display for ServerFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.class.words(), self.evidence)?;
        match self.class.advice() {
            "" => Ok(()),
            advice => write!(f, "; {advice}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(log: &str, ended: ProcessEnd, was_ready: bool, expected: FailureClass) {
        let failure = from_end(ended, was_ready, log);
        assert_eq!(failure.class, expected, "{log}\n{failure}");
    }

    #[test]
    fn the_cause_is_distinguished_from_the_log_and_not_from_what_follows_it() {
        let exit = ProcessEnd::Code(1);
        let death = "Received sigquit from a child process. It usually means the child failed.\n";
        for (line, class) in [
            (
                "Exception: Capture cuda graph failed: CUDA out of memory. Tried to allocate",
                FailureClass::OutOfMemoryAtCapture,
            ),
            ("Capture cuda graph failed: expected mat1 and mat2 to have the same dtype", FailureClass::Configuration),
            ("RuntimeError: CUDA error: an illegal memory access was encountered", FailureClass::IllegalAccess),
            (
                "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
                FailureClass::OutOfMemoryForCache,
            ),
            ("ValueError: No available memory for the cache blocks.", FailureClass::OutOfMemoryForCache),
            (
                "ValueError: To serve at least one request, 4.0 GiB KV cache is needed, which is larger than the \
                 available KV cache memory (1.0 GiB)",
                FailureClass::OutOfMemoryForCache,
            ),
            (
                "ValueError: Free memory on device (3/79 GiB) on startup is less than desired GPU memory utilization",
                FailureClass::GpuNotFree,
            ),
            ("torch.distributed.DistBackendError: NCCL error in: ncclSystemError", FailureClass::Communication),
            ("OSError: [Errno 98] Address already in use", FailureClass::PortInUse),
            (
                "ERROR: [Errno 98] error while attempting to bind on address: address already in use",
                FailureClass::PortInUse,
            ),
            (
                "launch_server.py: error: argument --attention-backend: invalid choice: 'flash'",
                FailureClass::Configuration,
            ),
            (
                "RuntimeError: Rank 0 scheduler died during initialization (exit code: -9).",
                FailureClass::HostOutOfMemory,
            ),
        ] {
            check(&format!("loading\n{line}\n{death}"), exit, false, class);
        }
        check(death, exit, false, FailureClass::Crash);
        check("", ProcessEnd::Signal(9), true, FailureClass::HostOutOfMemory);
        check("usage: …", ProcessEnd::Code(2), false, FailureClass::Configuration);
    }

    #[test]
    fn running_out_of_memory_is_reported_by_what_the_server_was_doing() {
        let out = "torch.OutOfMemoryError: CUDA out of memory.";
        let capture = format!("Capturing batches (bs=128 avail_mem=0.5 GB)\n{out}");
        check(&capture, ProcessEnd::Code(1), false, FailureClass::OutOfMemoryAtCapture);
        check(out, ProcessEnd::Code(1), false, FailureClass::OutOfMemoryForCache);
        check(&capture, ProcessEnd::Code(1), true, FailureClass::OutOfMemoryWhileRunning);
        for begin in [
            "Capture target prefill CUDA graph begin. backend=breakable, num_tokens=[4, 8], avail mem=0.5 GB",
            "Capture draft decode CUDA graph begin. backend=full, num_tokens_per_req=4, bs=[1, 8], avail mem=0.5 GB",
            "Capture Frozen-KV MTP draft cuda graph begin.",
            "Capture piecewise CUDA graph begin. avail mem=0.5 GB",
            "Capturing CUDA graph shapes:  50%|#####     | 33/67",
            "Capturing CUDA graphs (decode, FULL):  50%|#####     | 33/67",
        ] {
            check(&format!("{begin}\n{out}"), ProcessEnd::Code(1), false, FailureClass::OutOfMemoryAtCapture);
        }
        for graphs in ["prefill CUDA", "frozen-KV MTP cuda", "cuda"] {
            let failed = format!("RuntimeError: Capture {graphs} graph failed: CUDA out of memory. Tried to allocate");
            check(&failed, ProcessEnd::Code(1), false, FailureClass::OutOfMemoryAtCapture);
        }
    }

    #[test]
    fn a_rank_without_memory_is_the_cause_of_the_links_that_break() {
        let link = "torch.distributed.DistBackendError: NCCL error in: NCCLUtils.cpp:77, ncclSystemError";
        let out = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.";
        let capture = "Capturing batches (bs=128 avail_mem=0.5 GB)";
        for log in [format!("{capture}\n{link}\n{out}\n"), format!("{capture}\n{out}\n{link}\n")] {
            check(&log, ProcessEnd::Code(1), false, FailureClass::OutOfMemoryAtCapture);
            check(&log, ProcessEnd::Code(1), true, FailureClass::OutOfMemoryWhileRunning);
        }
        check(link, ProcessEnd::Code(1), false, FailureClass::Communication);
    }

    #[test]
    fn without_a_known_cause_the_servers_own_last_message_is_the_evidence() {
        let argparse =
            "usage: launch_server.py [-h]\nlaunch_server.py: error: the following are required: --model-path\n";
        let traceback = "Traceback (most recent call last):\n  File \"a.py\", line 1\n    f()\nTypeError: wrong kind\nof two \
                         lines\n";
        let clap = "\u{1b}[1m\u{1b}[31merror:\u{1b}[0m unexpected argument '--x' found\n\n  tip: try --y\n\nUsage: a\n";
        for (log, code, expected) in [
            (argparse, 2, "launch_server.py: error: the following are required: --model-path"),
            (traceback, 1, "exit code 1: TypeError: wrong kind | of two lines"),
            (clap, 2, "error: unexpected argument '--x' found | tip: try --y | Usage: a"),
            ("ready\nthe GPU is on fire\n\n", 1, "exit code 1: the GPU is on fire"),
            ("\n", 1, "exit code 1, and its log is empty"),
        ] {
            assert_eq!(from_end(ProcessEnd::Code(code), false, log).evidence, expected, "{log}");
        }
        // Words of a long log that look like an error do not hide what came last.
        let long = "x".repeat(1 << 16);
        assert!(from_end(ProcessEnd::Code(1), false, &long).evidence.len() <= 1 << 11);
    }

    #[test]
    fn a_tail_begins_with_a_line_and_is_bounded() {
        let log = "ä\n".repeat(KEPT_LOG_BYTES);
        let kept = tail(&log);
        assert!(kept.len() <= KEPT_LOG_BYTES && kept.starts_with('ä'), "{}", kept.len());
        assert_eq!(tail("short"), "short");
    }
}
