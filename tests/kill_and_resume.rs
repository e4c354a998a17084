//! Sweeps that are stopped early: `--resume` finishes them with each trial exactly once.
//!
//! Run by the crate `cli`: `cargo test -p cli --test kill_and_resume`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    thread::sleep,
    time::Duration,
};

use tempfile::TempDir;

/// Number of kills.
const KILLS: u64 = 10;

/// A small sweep of the demo models in a separate folder.
struct Sweep {
    folder: TempDir,
}

impl Sweep {
    fn new() -> Self {
        Self::with("")
    }

    /// With further tables in its file.
    fn with(more: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().expect("the repository");
        // Every trial once: those that a busy machine disturbs would be measured again.
        let search = "[search]\nremeasure = 0\n";
        let more = match more.contains("[search]") {
            true => more.replace("[search]\n", search),
            false => format!("{search}{more}"),
        };
        let content = format!(
            "[models]\ntarget = '{0}/target'\ndraft = '{0}/eagle3'\nalgorithm = 'EAGLE3'\n\
             [workload]\nrandom = {{ input_length = 16 }}\nrequests = 2\noutput_length = 24\n\
             [batch]\nsizes = [1, 2]\n[space]\nnum_steps = [1, 2, 3]\ntopk = [1, 2]\nnum_draft_tokens = [3, 4]\n{more}",
            root.join("models/tiny").display()
        );
        fs::write(folder.path().join("sweep.toml"), content).expect("a sweep file");
        Self { folder }
    }

    fn out(&self) -> PathBuf {
        self.folder.path().join("out")
    }

    /// Starts or resumes it with a command, to which the arguments of the sweep are appended.
    fn start(&self, mut command: Command) -> Child {
        let sweep = self.folder.path().join("sweep.toml");
        command
            .args(["sweep".as_ref(), sweep.as_os_str(), "--resume".as_ref(), "--out".as_ref()])
            .arg(self.out())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary starts")
    }

    fn journal(&self) -> String {
        fs::read_to_string(self.out().join("journal.jsonl")).unwrap_or_default()
    }

    /// Waits until the journal has this many complete lines, or the sweep has ended.
    fn wait_for_lines(&self, lines: usize, sweep: &mut Child) {
        while self.journal().matches('\n').count() < lines && sweep.try_wait().expect("a child").is_none() {
            sleep(Duration::from_millis(5));
        }
    }

    /// Resumes it and checks that it succeeds.
    fn finish(&self) {
        let (ended, words) = ended(self.start(spectune()));
        assert!(ended.status.success(), "{words}");
        let mut trials: BTreeMap<String, usize> = BTreeMap::new();
        for line in self.journal().lines().skip(1) {
            let record: serde_json::Value = serde_json::from_str(line).expect("a whole line");
            *trials.entry(record["content"]["trial"].to_string()).or_default() += 1;
        }
        // No speculation, the default and six shapes; two batch sizes, three repeats.
        let shapes: BTreeSet<&str> =
            trials.keys().map(|trial| trial.split("batch").next().unwrap_or_default()).collect();
        assert_eq!(trials.len(), shapes.len() * 2 * 3, "{words}");
        assert!(trials.values().all(|count| *count == 1), "{trials:#?}");
        assert!(self.out().join("report.html").exists() && self.out().join("tuned.toml").exists());
    }
}

fn spectune() -> Command {
    Command::new(env!("CARGO_BIN_EXE_spectune"))
}

fn ended(child: Child) -> (Output, String) {
    let output = child.wait_with_output().expect("it ends");
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    (output, words)
}

#[test]
fn a_sweep_that_is_killed_ten_times_measures_each_trial_exactly_once() {
    let sweep = Sweep::new();
    let mut seen = 0;
    for kill in 0..KILLS {
        let mut child = sweep.start(spectune());
        match kill % 2 {
            // Times spread over loading, measuring and writing; it does not matter which of them is
            // hit.
            0 => sleep(Duration::from_millis(40 + (kill * 37) % 160)),
            // Right after a record, regardless of the machine's speed.
            _ => sweep.wait_for_lines(seen + 1, &mut child),
        }
        child.kill().expect("SIGKILL");
        child.wait().expect("it ends");
        let whole = sweep.journal().matches('\n').count();
        assert!(whole >= seen, "a finished trial was lost");
        seen = whole;
    }
    assert!(seen > 1, "no kill hit a sweep that had measured something");
    sweep.finish();
}

#[test]
fn a_sweep_grows_by_a_larger_batch() {
    let sweep = Sweep::new();
    let file = sweep.folder.path().join("sweep.toml");
    let whole = fs::read_to_string(&file).expect("the sweep file");
    fs::write(&file, whole.replace("sizes = [1, 2]", "sizes = [1]")).expect("a smaller sweep");
    let (small, words) = ended(sweep.start(spectune()));
    assert!(small.status.success(), "{words}");
    let before = sweep.journal();
    fs::write(&file, whole).expect("the whole sweep");
    sweep.finish();
    // The header contains the plan, which has grown.
    let after = sweep.journal();
    assert!(before.lines().skip(1).all(|record| after.contains(record)), "what was measured is kept");
}

/// Sends a signal to a sweep once its output contains `behind`, and returns its whole output and
/// exit code.
#[cfg(unix)]
fn stopped(mut sweep: Child, signal: &str, behind: &str) -> (String, Option<i32>) {
    let (mut words, mut said) = (BufReader::new(sweep.stderr.take().expect("a pipe")), String::new());
    while !said.contains(behind) {
        assert!(words.read_line(&mut said).expect("UTF-8") > 0, "it ended without {behind:?}:\n{said}");
    }
    let sent = Command::new("sh").args(["-c", "kill -s \"$0\" \"$1\"", signal, &sweep.id().to_string()]).status();
    assert!(sent.expect("a shell").success());
    words.read_to_string(&mut said).expect("UTF-8");
    (said, sweep.wait().expect("it ends").code())
}

#[cfg(unix)]
#[test]
fn a_sweep_that_is_stopped_keeps_what_is_finished_and_says_how_to_go_on() {
    // Enough repeats that it is not finished before the signal.
    let many = "[search]\nrepeats = 10000\n";
    for signal in ["INT", "TERM"] {
        let sweep = Sweep::with(many);
        let (words, code) = stopped(sweep.start(spectune()), signal, "repeat 1");
        assert_eq!(code, Some(130), "{words}");
        for part in ["interrupted; continue with:", "--resume", "report.html"] {
            assert!(words.contains(part), "no {part:?} in\n{words}");
        }
        let finished = sweep.journal().matches('\n').count() - 1;
        assert!(finished > 0 && sweep.out().join("report.html").exists(), "{words}");
        // Budgets may change: it continues and ends normally.
        let file = sweep.folder.path().join("sweep.toml");
        let content = fs::read_to_string(&file).expect("the sweep file") + &format!("trials = {}\n", finished + 2);
        fs::write(&file, content).expect("a sweep file");
        let (output, words) = ended(sweep.start(spectune()));
        assert_eq!(output.status.code(), Some(0), "{words}");
        assert_eq!(sweep.journal().matches('\n').count() - 1, finished + 2, "{words}");
    }
    // The same before the first trial.
    let guided = Sweep::with(&format!("{many}strategy = 'guided'\n"));
    let (words, code) = stopped(guided.start(spectune()), "INT", "texts without speculation");
    assert_eq!(code, Some(130), "{words}");
    for part in ["no trial has finished yet", "interrupted; continue with:"] {
        assert!(words.contains(part), "no {part:?} in\n{words}");
    }
}

/// Killed while acceptance is being replayed from the texts: the texts are not generated again.
#[cfg(unix)]
#[test]
fn a_guided_sweep_that_is_killed_between_its_texts_and_its_predictions_keeps_the_texts() {
    let sweep = Sweep::with("[search]\nstrategy = 'guided'\nrepeats = 1\n");
    let (words, code) = stopped(sweep.start(spectune()), "KILL", "acceptance of");
    assert_eq!(code, None, "{words}");
    let texts = fs::read(sweep.out().join("texts.jsonl")).expect("the texts");
    let (output, words) = ended(sweep.start(spectune()));
    assert_eq!(output.status.code(), Some(0), "{words}");
    assert!(words.contains("are loaded from an earlier run"), "{words}");
    assert!(fs::read(sweep.out().join("texts.jsonl")).expect("the texts") == texts, "{words}");
    assert!(sweep.out().join("guide.json").exists() && sweep.out().join("tuned.toml").exists(), "{words}");
}

/// A limit on file sizes simulates a full disk: a write fails after part of it was done.
#[cfg(unix)]
#[test]
fn a_sweep_that_cannot_write_keeps_what_is_finished() {
    let sweep = Sweep::new();
    let limited_command = |blocks: usize| {
        let mut command = Command::new("sh");
        // In blocks of 512 bytes. Without the trap the signal would kill the process.
        command.args(["-c", &format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$0\" \"$@\"")]);
        command.arg(env!("CARGO_BIN_EXE_spectune"));
        command
    };
    let limited = |blocks: usize| ended(sweep.start(limited_command(blocks)));
    // Not even the header fits.
    let (output, words) = limited(1);
    assert_eq!(output.status.code(), Some(2), "{words}");
    assert!(words.contains("cannot write") && words.contains("journal.jsonl"), "{words}");
    assert!(sweep.journal().is_empty());
    // The header and some records fit, then some more; a record has about a thousand bytes.
    let mut seen = 0;
    for blocks in [20, 40] {
        let (output, words) = limited(blocks);
        assert_eq!(output.status.code(), Some(2), "{words}");
        let journal = sweep.journal();
        assert!(journal.ends_with('\n'), "half a line was left");
        let whole = journal.matches('\n').count() - 1;
        assert!(whole > seen, "no trial was kept in {blocks} blocks: {words}");
        seen = whole;
        for part in ["cannot write", "journal.jsonl", &format!("{seen} finished trials are kept"), "--resume"] {
            assert!(words.contains(part), "no {part:?} in\n{words}");
        }
    }
    // All trials and the guide fit, but neither the target's states, which are optional, nor the
    // report.
    let guided = Sweep::with("[search]\nstrategy = 'guided'\nrepeats = 1\n");
    let (output, words) = ended(guided.start(limited_command(200)));
    assert_eq!(output.status.code(), Some(2), "{words}");
    assert!(words.contains("states.bin cannot be written") && words.contains("spectune report"), "{words}");
    assert!(guided.out().join("tuned.toml").exists() && !guided.out().join("states.bin").exists(), "{words}");
    // All trials fit, but not the report.
    let (output, words) = limited(400);
    assert_eq!(output.status.code(), Some(2), "{words}");
    assert!(words.contains("cannot write") && words.contains("spectune report"), "{words}");
    let left: Vec<PathBuf> =
        fs::read_dir(sweep.out()).expect("the folder").flatten().map(|entry| entry.path()).collect();
    assert!(!left.iter().any(|path| path.to_string_lossy().ends_with(".new")), "{left:?}");
    sweep.finish();
}
