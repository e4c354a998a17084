//! Runs `spectune lint` like a user: exit codes, formats, settings, suppression, and files that are
//! fixed in place.
//!
//! Run by the crate `cli`: `cargo test -p cli --test lint`.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use tempfile::TempDir;

const FORMATS: [&str; 5] = ["full", "concise", "json", "sarif", "github"];

/// A warning with a safe fix (SD023) and an error with an unsafe one (SD070).
const SCRIPT: &str = "#!/bin/bash\n# Tuned by hand.\nSGLANG_ARGS=(\n   --rollout-num-gpus-per-engine 1   # one GPU each\n   \
                      --sglang-mem-fraction-static 0.8\n\n   --sglang-speculative-algorithm EAGLE3\n   \
                      --sglang-speculative-draft-model-path /root/sglang-EAGLE3-LLaMA3.1-Instruct-8B\n   \
                      --sglang-speculative-num-steps 5\n   --sglang-speculative-eagle-topk 1\n   \
                      --sglang-speculative-num-draft-tokens 32 # was 8\n\n   --sglang-max-running-requests 48\n   \
                      --sglang-context-length 2048\n   --sglang-attention-backend fa3\n)\n\
                      python3 train.py --hf-checkpoint /root/Llama-3.1-8B-Instruct \"${SGLANG_ARGS[@]}\"\n";

struct Ran {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

/// A separate folder with files in it.
struct Place(TempDir);

impl Place {
    fn with(files: &[(&str, &str)]) -> Self {
        let place = Self(tempfile::tempdir().expect("a folder"));
        for (name, text) in files {
            let path = place.path(name);
            fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            fs::write(path, text).expect("a file");
        }
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).expect("the file")
    }

    fn lint(&self, arguments: &[&str]) -> Ran {
        let output = Command::new(env!("CARGO_BIN_EXE_spectune"))
            .arg("lint")
            .args(arguments)
            .current_dir(self.0.path())
            .env_remove("HF_HOME")
            .stdin(Stdio::null())
            .output()
            .expect("it runs");
        let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
        let ran = Ran { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) };
        assert!(!ran.stderr.contains("panicked"), "{}", ran.stderr);
        ran
    }

    #[track_caller]
    fn check(&self, arguments: &[&str], code: i32, words: &[&str]) -> Ran {
        let ran = self.lint(arguments);
        let all = format!("{}{}", ran.stdout, ran.stderr);
        assert_eq!(ran.code, Some(code), "{arguments:?}\n{all}");
        for word in words {
            assert!(all.contains(word), "{arguments:?}: no {word:?} in\n{all}");
        }
        ran
    }
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .expect("a folder")
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into())
        .collect();
    names.sort();
    names
}

#[test]
fn the_exit_code_is_the_same_in_every_format() {
    let clean = SCRIPT.replace("tokens 32", "tokens 6").replace("fa3\n", "fa3\n   --sglang-dtype bfloat16\n");
    let place = Place::with(&[("bad.sh", SCRIPT), ("good.sh", &clean), ("none.sh", "ls\n"), ("broken.sh", "\u{0}")]);
    fs::write(place.path("latin1.sh"), [0xE9]).expect("a file");
    for format in FORMATS {
        let format = ["--format", format];
        for (file, code) in [("good.sh", 0), ("bad.sh", 1), ("none.sh", 1), ("nowhere.sh", 2), ("latin1.sh", 2)] {
            place.check(&[&format[..], &[file]].concat(), code, &[]);
        }
        place.check(&[&format[..], &["bad.sh", "--exit-zero"]].concat(), 0, &[]);
        place.check(&[&format[..], &["nowhere.sh", "--exit-zero"]].concat(), 2, &[]);
        place.check(&[&format[..], &["bad.sh", "--select", "LT"]].concat(), 0, &[]);
        place.check(&[&format[..], &["bad.sh", "--ignore", "SD"]].concat(), 0, &[]);
        place.check(&[&format[..], &["none.sh", "--allow-no-launch"]].concat(), 0, &[]);
    }
    // An unreadable file does not hide findings in the others.
    place.check(
        &["nowhere.sh", "bad.sh", "--format", "concise"],
        2,
        &["cannot read nowhere.sh", "bad.sh:11:42: warning[SD023]"],
    );
}

#[test]
fn what_could_not_be_checked_is_in_the_forms_for_machines_too() {
    let place = Place::with(&[("bad.sh", SCRIPT), ("empty/clean.sh", "ls\n")]);
    fs::write(place.path("latin1.sh"), [0xE9]).expect("a file");
    for file in ["nowhere.sh", "latin1.sh", "empty"] {
        let json = place.check(&[file, "bad.sh", "--format", "json"], 2, &[file]).stdout;
        let json: Vec<serde_json::Value> = serde_json::from_str(&json).expect("JSON");
        let own: Vec<&str> =
            json.iter().filter(|one| one["file"] == file).filter_map(|one| one["code"].as_str()).collect();
        assert_eq!(own, ["LT20"], "{file}");
        let sarif = place.check(&[file, "--format", "sarif"], 2, &[file]).stdout;
        let sarif: serde_json::Value = serde_json::from_str(&sarif).expect("JSON");
        let result = &sarif["runs"][0]["results"][0];
        assert_eq!((result["ruleId"].as_str(), result["level"].as_str()), (Some("LT20"), Some("error")), "{file}");
        // A reader sees the message.
        let full = place.check(&[file], 2, &["1 could not be checked"]).stdout;
        assert!(!full.contains("LT20"), "{full}");
    }
}

#[test]
fn what_runs_is_printed_in_forms_that_hold_it() {
    let vllm = "vllm serve x --speculative-config '{\"method\": \"ngram\", \"num_speculative_tokens\": 2}'\n";
    let place = Place::with(&[("run.sh", SCRIPT), ("vllm.sh", vllm)]);
    let both = place.check(&["run.sh", "--resolved", "--format", "json"], 1, &[]).stdout;
    let both: serde_json::Value = serde_json::from_str(&both).expect("JSON");
    assert_eq!(both["resolved"][0]["speculative_algorithm"]["value"], "EAGLE3");
    assert_eq!(both["findings"][0]["code"], "SD070");
    for format in ["sarif", "github"] {
        place.check(&["run.sh", "--resolved", "--format", format], 2, &["full, concise and json"]);
    }
    let shown = place.check(&["vllm.sh", "--resolved"], 0, &[]).stdout;
    for part in ["vllm.sh: resolved for vllm", "num_speculative_tokens", "verified_rows_per_request"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert!(!shown.contains("speculative_algorithm"), "{shown}");
}

#[test]
fn fixing_keeps_everything_else_as_it_was() {
    let place = Place::with(&[("run.sh", SCRIPT)]);
    let shown = place.check(&["run.sh", "--diff"], 1, &["--- run.sh\n+++ run.sh\n", "1 would be fixed (SD023); 1 can"]);
    assert!(shown.stdout.contains("-   --sglang-speculative-num-draft-tokens 32 # was 8\n+   --sglang-speculative-num-draft-tokens 6 # was 8\n"), "{}", shown.stdout);
    assert_eq!(place.read("run.sh"), SCRIPT, "--diff writes nothing");
    place.check(&["run.sh", "--fix"], 1, &["SD070", "1 fixed (SD023)", "1 can be fixed with --fix --unsafe-fixes"]);
    let safe = SCRIPT.replace("tokens 32", "tokens 6");
    assert_eq!(place.read("run.sh"), safe);
    place.check(&["run.sh", "--fix", "--unsafe-fixes"], 0, &["no findings; 1 fixed (SD070)"]);
    let all = place.read("run.sh");
    let without: String =
        all.lines().filter(|line| !line.contains("--sglang-dtype")).map(|line| format!("{line}\n")).collect();
    assert_eq!(without, safe, "one line more, and nothing else");
    place.check(&["run.sh", "--fix", "--unsafe-fixes"], 0, &["no findings"]);
    assert_eq!(names(place.0.path()), ["run.sh"], "nothing is left beside it");
    place.check(&["run.sh", "--unsafe-fixes"], 2, &["--fix"]);
}

#[cfg(unix)]
#[test]
fn a_fixed_file_keeps_its_rights_and_its_link() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let place = Place::with(&[("real/run.sh", SCRIPT)]);
    fs::set_permissions(place.path("real/run.sh"), fs::Permissions::from_mode(0o750)).expect("rights");
    symlink("real/run.sh", place.path("link.sh")).expect("a link");
    place.check(&["link.sh", "--fix"], 1, &["1 fixed"]);
    assert!(fs::symlink_metadata(place.path("link.sh")).expect("the link").is_symlink());
    assert!(place.read("real/run.sh").contains("tokens 6"));
    assert_eq!(fs::metadata(place.path("real/run.sh")).expect("the file").permissions().mode() & 0o777, 0o750);
    fs::set_permissions(place.path("real"), fs::Permissions::from_mode(0o550)).expect("rights");
    fs::write(place.path("real/run.sh"), SCRIPT).expect("a file");
    let ran = place.lint(&["link.sh", "--fix"]);
    fs::set_permissions(place.path("real"), fs::Permissions::from_mode(0o750)).expect("rights");
    // The superuser may write everywhere; for everyone else the old file stays unchanged.
    let text = place.read("real/run.sh");
    let is_stated = ran.stderr.contains("1 could not be written; found 1 error, 1 warning");
    assert!(text == SCRIPT && ran.code == Some(2) && is_stated || text.contains("tokens 6"), "{}", ran.stderr);
}

#[test]
fn settings_come_from_the_nearest_file_above_and_flags_win() {
    let place = Place::with(&[
        ("run.sh", SCRIPT),
        ("a/run.sh", SCRIPT),
        ("a/spectune.toml", "[lint]\nignore = [\"SD070\"]\n"),
        ("a/b/c/run.sh", SCRIPT),
        ("d/run.sh", SCRIPT),
        ("d/spectune.toml", "[lint]\nselect = [\"tree\"]\nengine_version = \"0.5.9\"\n"),
        ("e/run.sh", SCRIPT),
        ("e/spectune.toml", "[lint]\nselct = [\"tree\"]\n"),
    ]);
    let codes = |arguments: &[&str]| {
        let ran = place.lint(&[arguments, &["--format", "json"]].concat());
        let found: Vec<serde_json::Value> = serde_json::from_str(&ran.stdout).expect("a list");
        found.iter().map(|one| one["code"].as_str().expect("a code").to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(codes(&["run.sh"]), ["SD070", "SD023"]);
    assert_eq!(codes(&["a/run.sh"]), ["SD023"]);
    assert_eq!(codes(&["a/b/c/run.sh"]), ["SD023"]);
    assert_eq!(codes(&["a/run.sh", "--isolated"]), ["SD070", "SD023"]);
    assert_eq!(codes(&["run.sh", "--config", "a/spectune.toml"]), ["SD023"]);
    assert_eq!(codes(&["d/run.sh"]), ["SD023"]);
    assert_eq!(codes(&["d/run.sh", "--select", "SD07"]), ["SD070"]);
    assert_eq!(codes(&["a/run.sh", "--ignore", "SD023"]), Vec::<String>::new());
    assert_eq!(codes(&["run.sh", "a/run.sh"]), ["SD070", "SD023", "SD023"]);
    place.check(&["e/run.sh"], 2, &["spectune.toml:2:1", "unknown key"]);
    place.check(&["run.sh", "--select", "trees"], 2, &["did you mean 'tree'"]);
}

#[test]
fn comments_suppress_and_unused_ones_are_found_and_taken_out() {
    let script = SCRIPT
        .replace("# was 8", "# spectune: ignore[SD023] measured")
        .replace("--sglang-context", "# spectune: ignore[SD081]\n   --sglang-context");
    let place = Place::with(&[("run.sh", &script)]);
    place.check(&["run.sh", "--format", "concise", "--ignore", "SD070"], 1, &["run.sh:14:4: warning[LT10]"]);
    place.check(&["run.sh", "--fix", "--ignore", "SD070"], 0, &["1 fixed (LT10)"]);
    assert_eq!(place.read("run.sh"), SCRIPT.replace("# was 8", "# spectune: ignore[SD023] measured"));
}

#[test]
fn statistics_count_the_findings_of_all_files() {
    let place = Place::with(&[("a.sh", SCRIPT), ("b.sh", SCRIPT)]);
    let ran = place.check(&["a.sh", "b.sh", "--statistics"], 1, &["found 2 errors, 2 warnings"]);
    assert_eq!(
        ran.stdout,
        "2  SD023  warning  topk1-drafts-adjusted  2 fixable\n2  SD070  error    dtype-mismatch         2 fixable \
         with --unsafe-fixes\n"
    );
    let ran = place.check(&["a.sh", "b.sh", "--statistics", "--format", "json"], 1, &[]);
    assert_eq!(serde_json::from_str::<serde_json::Value>(&ran.stdout).expect("JSON")[0]["count"], 2);
    place.check(&["a.sh", "--statistics", "--format", "sarif"], 2, &["sarif"]);
}

#[test]
fn many_files_are_judged_in_their_order() {
    let files: Vec<String> = (0..64).map(|number| format!("{number}.sh")).collect();
    let place = Place::with(&files.iter().map(|name| (name.as_str(), SCRIPT)).collect::<Vec<_>>());
    let arguments: Vec<&str> = files.iter().map(String::as_str).chain(["--format", "concise"]).collect();
    let ran = place.check(&arguments, 1, &[]);
    let named: Vec<&str> = ran.stdout.lines().filter_map(|line| line.split(':').next()).collect();
    let expected: Vec<&str> = files.iter().flat_map(|name| [name.as_str(), name.as_str()]).collect();
    assert_eq!(named, expected);
}

/// The commands of `action.yml`.
#[cfg(unix)]
#[test]
fn the_action_annotates_writes_sarif_and_keeps_the_exit_code() {
    let place =
        Place::with(&[("launch/run.sh", SCRIPT), ("launch/other.sh", "echo hello\n"), ("Cargo.toml", "[package]\n")]);
    let run = |files: &str, arguments: &str| {
        let binaries = Path::new(env!("CARGO_BIN_EXE_spectune")).parent().expect("a folder");
        let path = std::env::var_os("PATH").unwrap_or_default();
        let path = std::env::join_paths(std::iter::once(binaries.to_owned()).chain(std::env::split_paths(&path)));
        Command::new("bash")
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.github/lint.sh"))
            .current_dir(place.0.path())
            .env("PATH", path.expect("a path"))
            .env("FILES", files)
            .env("ARGUMENTS", arguments)
            .env("SARIF", "findings.sarif")
            .env("GITHUB_OUTPUT", "output")
            .output()
            .expect("bash runs")
    };
    let ran = run("**/*.sh *.toml", "--engine-version 0.5.9");
    assert_eq!(ran.status.code(), Some(1), "{}", String::from_utf8_lossy(&ran.stderr));
    assert!(String::from_utf8_lossy(&ran.stdout).contains("file=launch/run.sh"));
    assert_eq!(place.read("output"), "findings=true\n");
    let sarif: serde_json::Value = serde_json::from_str(&place.read("findings.sarif")).expect("JSON");
    assert_eq!(sarif["runs"][0]["results"][0]["ruleId"].as_str().map(str::len), Some(5));
    assert_eq!(run("launch/other.sh", "").status.code(), Some(0));
    assert_eq!(run("nothing/*.sh", "").status.code(), Some(2));
    assert_eq!(run("launch/run.sh", "--no-such-flag").status.code(), Some(2));
}
