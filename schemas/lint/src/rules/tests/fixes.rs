//! Fixes in every kind of file: written where the file accepts them, and nowhere else.

use launch::{Launch, Options, parse};
use schemas::{
    diagnostic::{Diagnostic, fix},
    flags::{self, Key, Lookup},
    text::Source,
    version::EngineVersion,
};

use crate::report::{self, report};

const COMMAND: &str = "python3 -m sglang.launch_server --model-path m --max-running-requests 16 --cuda-graph-max-bs 16";
const SPECULATION: &str = "--speculative-algorithm EAGLE --speculative-num-steps 3";

fn launches(source: &Source) -> Vec<Launch> {
    parse(source, &Options::default()).launches
}

fn findings(source: &Source) -> Vec<Diagnostic> {
    let parsed = parse(source, &Options::default());
    report(source, parsed, |_| (None, None), &report::ReportOptions::default()).findings
}

fn fixed(name: &str, text: &str) -> String {
    fix::until_stable(&Source::new(name, text), true, findings).text
}

/// One file of each editable kind, with the version that it states.
fn editable(version: &str) -> Vec<(&'static str, String)> {
    let image = format!("lmsysorg/sglang:v{version}");
    vec![
        ("run.sh", format!("IMAGE={image}\n{COMMAND} \\\n  {SPECULATION}\n")),
        ("array.sh", format!("IMAGE={image}\nARGS=(\n  {SPECULATION}\n)\n{COMMAND} \"${{ARGS[@]}}\"\n")),
        ("Dockerfile", format!("FROM {image}\nENV A=b\nCMD {COMMAND} \\\n    {SPECULATION}\n")),
        (
            "sglang.service",
            format!("# sglang=={version}\n[Service]\nExecStart={COMMAND} \\\n  {SPECULATION}\nRestart=always\n"),
        ),
        ("README.md", format!("# Run\n`{image}`\n```bash\n{COMMAND} {SPECULATION}\n```\nthen wait\n")),
        (
            "pod.yaml",
            format!(
                "containers:\n- image: {image}\n  command: [bash, -c]\n  args:\n  - |\n    {COMMAND} {SPECULATION}\n"
            ),
        ),
    ]
}

#[test]
fn edits_are_written_where_the_file_takes_them() {
    for (name, text) in editable("0.5.23") {
        let after = fixed(name, &text);
        let source = Source::new(name, after.as_str());
        let found = launches(&source);
        let [launch] = found.as_slice() else { panic!("{name}: one launch in\n{after}") };
        assert_eq!(launch.integer(Key::SpeculativeEagleTopk).map(|topk| topk.value), Some(1), "{name}\n{after}");
        assert!(after.contains("--cuda-graph-max-bs-decode 16"), "{name}\n{after}");
        // The text outside the command is unchanged, and there are no findings about the text
        // itself.
        let others = |text: &str| -> Vec<String> {
            text.lines().filter(|line| !line.contains("--")).map(str::to_owned).collect()
        };
        assert_eq!(others(&after), others(&text), "{name}\n{after}");
        assert!(findings(&source).iter().all(|one| !one.code.starts_with("LT")), "{name}\n{after}");
    }
}

#[test]
fn a_fix_writes_only_flags_that_the_version_has() {
    for version in ["0.5.9", "0.5.14", "0.5.19", "0.5.23"] {
        let parsed: EngineVersion = version.parse().expect("a version");
        for (name, text) in editable(version) {
            let after = fixed(name, &text);
            for launch in launches(&Source::new(name, after.as_str())) {
                for argument in launch.arguments.iter().filter(|argument| !argument.is_positional()) {
                    let flag = argument.flag.value.trim_start_matches('-');
                    let is_old = text.contains(argument.flag.value.as_str());
                    let is_known = !matches!(flags::lookup(flag, Some(parsed)), Lookup::Unknown);
                    assert!(is_old || is_known, "{name} {version}: {flag}\n{after}");
                }
            }
        }
    }
}

#[test]
fn nothing_is_written_into_what_another_language_puts_together() {
    let words = format!("{COMMAND} {SPECULATION}");
    let list = words.split(' ').map(|word| format!("\"{word}\"")).collect::<Vec<_>>().join(", ");
    for (name, text) in [
        ("Dockerfile", format!("FROM lmsysorg/sglang:v0.5.23\nCMD [{list}]\n")),
        ("Dockerfile", format!("FROM lmsysorg/sglang:v0.5.23\nCMD [\"sh\", \"-c\", \"{words}\"]\n")),
        ("run.py", format!("# sglang==0.5.23\nimport subprocess\nsubprocess.run([{list}])\n")),
        ("run.py", format!("# sglang==0.5.23\nimport os\nos.system(\"{words}\")\n")),
    ] {
        let found = findings(&Source::new(name, text.as_str()));
        assert!(found.iter().any(|one| one.code == "SD021"), "{name}\n{text}\n{found:#?}");
        assert_eq!(fixed(name, &text), text, "{name}");
    }
}
