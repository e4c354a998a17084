//! Mutation fuzzing of one reader at a time for a given time, for machines on which no fuzzer can
//! be installed:
//!
//! `SPECTUNE_FUZZ_SECONDS=600 cargo test -p lint --test long_run -- --ignored python`
//!
//! `fuzz/` has coverage-guided targets. Here each round takes a seed, or an earlier mutation that
//! had a launch, and cuts, duplicates, swaps and inserts parts of it. Reading, linting and fixing
//! must terminate without a panic, with all spans inside the text. The time of the slowest text is
//! only printed, since the machine may be busy.

use std::{
    env,
    time::{Duration, Instant},
};

use launch::{Options, parse};
use lint::{
    published_models,
    report::{self, report},
};
use schemas::{
    diagnostic::{Diagnostic, fix},
    text::{Source, Span},
};

/// Maximum length of a mutated text, in bytes.
const LONGEST: usize = 8 << 10;

/// Texts that take longer are printed, so that they can be measured separately.
const SLOW: Duration = Duration::from_secs(2);

/// Maximum number of texts that are kept for further mutation.
const KEPT: usize = 512;

const COMMAND: &str = "python3 -m sglang.launch_server --model-path m --tp 2 --cuda-graph-max-bs 16 --speculative-algorithm EAGLE --speculative-num-steps 3";
const SERVE: &str =
    "vllm serve m --speculative-config '{\"method\": \"mtp\", \"num_speculative_tokens\": 2}' --max-model-len 9";

/// Words that are inserted into texts: those that the readers look for.
const WORDS: [&str; 41] = [
    " \\\n",
    " \\ # x\n",
    "\n",
    "\"",
    "'",
    "`",
    "$(",
    "${A:-b}",
    "$A",
    "{",
    "}",
    "[",
    "]",
    "(",
    ")",
    "<<EOF\n",
    "EOF\n",
    "```bash\n",
    "```\n",
    "~~~",
    ".. code:: yaml\n\n",
    "    ",
    "- ",
    ": ",
    "|\n",
    "#",
    "=",
    "--tp",
    "--speculative-num-steps 3",
    "sglang serve ",
    "vllm serve ",
    "FROM lmsysorg/sglang:v0.5.9\n",
    "CMD [",
    "ExecStart=",
    "git clone -b v0.5.9 https://x/sglang.git\n",
    "import os\n",
    "f\"{x}\"",
    "your port",
    "\u{e9}",
    "\u{0}",
    "...",
];

/// Pseudo-random numbers, deterministic for a seed (xorshift).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    /// A random byte offset on a character boundary.
    fn place(&mut self, text: &str) -> usize {
        let at = self.below(text.len() + 1);
        (0..=at).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
    }

    fn range(&mut self, text: &str) -> (usize, usize) {
        let (a, b) = (self.place(text), self.place(text));
        (a.min(b), a.max(b).min(floor(text, a.min(b) + 64)))
    }
}

fn floor(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}

fn mutated(text: &str, numbers: &mut Numbers) -> String {
    let mut text = text.to_owned();
    for _ in 0..=numbers.below(4) {
        let (from, to) = numbers.range(&text);
        match numbers.below(5) {
            0 => text.replace_range(from..to, ""),
            1 => text.insert_str(from, WORDS[numbers.below(WORDS.len())]),
            2 => text.replace_range(from..to, WORDS[numbers.below(WORDS.len())]),
            3 => {
                let part = text[from..to].to_owned();
                let at = numbers.place(&text);
                text.insert_str(at, &part);
            }
            _ => {
                let lines: Vec<&str> = text.split_inclusive('\n').collect();
                let (a, b) = (numbers.below(lines.len()), numbers.below(lines.len()));
                let mut lines = lines;
                if a < lines.len() && b < lines.len() {
                    lines.swap(a, b);
                }
                text = lines.concat();
            }
        }
        text.truncate(floor(&text, LONGEST));
    }
    text
}

/// All findings in a text, and whether it has a launch.
fn look(source: &Source) -> (Vec<Diagnostic>, bool) {
    let lies_in = |span: Span| assert!(source.text().get(span.range()).is_some(), "{span:?} in {:?}", source.text());
    let parsed = parse(source, &Options::default());
    for launch in &parsed.launches {
        lies_in(launch.span);
        lies_in(launch.anchor);
        launch.arguments.iter().for_each(|argument| lies_in(argument.span));
    }
    let has_launch = !parsed.launches.is_empty();
    let found = report(source, parsed, published_models::facts_of, &report::ReportOptions::default()).findings;
    for one in &found {
        lies_in(one.span);
        one.related.iter().for_each(|related| lies_in(related.span));
        one.fix.iter().flat_map(|fix| &fix.edits).for_each(|edit| lies_in(edit.span));
    }
    (found, has_launch)
}

fn run(name: &str, seeds: &[String]) {
    let seconds = env::var("SPECTUNE_FUZZ_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(600);
    let (start, mut numbers) = (Instant::now(), Numbers(0x9e37_79b9_7f4a_7c15));
    let mut texts = seeds.to_vec();
    let (mut rounds, mut with_launch, mut slowest) = (0_u64, 0_u64, Duration::ZERO);
    while start.elapsed() < Duration::from_secs(seconds) {
        let text = mutated(&texts[numbers.below(texts.len())], &mut numbers);
        let began = Instant::now();
        let source = Source::new(name, text.as_str());
        let (found, has_launch) = look(&source);
        let fixed = fix::apply(&source, &found, true).text;
        look(&Source::new(name, fixed.as_str()));
        if began.elapsed() > SLOW {
            eprintln!("{name}: {:?} for {text:?}", began.elapsed());
        }
        slowest = slowest.max(began.elapsed());
        rounds += 1;
        if has_launch {
            with_launch += 1;
            if texts.len() < KEPT {
                texts.push(text);
            } else {
                let at = seeds.len() + numbers.below(KEPT - seeds.len());
                texts[at] = text;
            }
        }
    }
    eprintln!("{name}: {rounds} texts, {with_launch} with a launch, the slowest took {slowest:?}");
    assert!(with_launch > 0, "the seeds of {name} hold no launch");
}

#[test]
#[ignore = "needs minutes; SPECTUNE_FUZZ_SECONDS says how many seconds"]
fn shell() {
    run("x.sh", &[
        format!("export A=1\nif [ \"$1\" = x ]; then\n  S=\"--tp 4\"\nelse\n  S=\"\"\nfi\n{COMMAND} $S\n"),
        format!("ARGS=(\n  --tp 2\n)\ndocker run --gpus all lmsysorg/sglang:v0.5.9 {COMMAND} \"${{ARGS[@]}}\"\n"),
        format!("cat > a.py <<'EOF'\nimport os\nos.system(\"{COMMAND}\")\nEOF\nsbatch --wrap=\"{COMMAND}\"\neval \"{SERVE}\"\n"),
        "python3 train.py --sglang-speculative-algorithm EAGLE --hf-checkpoint m\n".to_owned(),
        "python3 -m verl.trainer.main_ppo actor_rollout_ref.rollout.name=sglang +actor_rollout_ref.rollout.engine_kwargs.sglang.tp_size=2\n".to_owned(),
    ]);
}

#[test]
#[ignore = "needs minutes; SPECTUNE_FUZZ_SECONDS says how many seconds"]
fn variables() {
    run("x.env", &[
        "# a\nMODEL=m\nVLLM_ARGS=--max-model-len 9 --speculative-config {\"method\":\"mtp\",\"num_speculative_tokens\":1}\n".to_owned(),
        "ARGS='--model-path m --speculative-algorithm NGRAM --tp 2' # all\nB=\"--page-size $P\"\n".to_owned(),
    ]);
}

#[test]
#[ignore = "needs minutes; SPECTUNE_FUZZ_SECONDS says how many seconds"]
fn yaml() {
    run("x.yaml", &[
        format!("kind: Pod\nspec:\n  containers:\n  - image: lmsysorg/sglang:v0.5.9\n    command: [bash, -c]\n    args:\n    - |\n      {COMMAND}\n"),
        "spec:\n  containers:\n  - image: vllm/vllm-openai:v0.20.0\n    args:\n    - --model\n    - m\n    - --speculative-config={\"method\":\"mtp\"}\n".to_owned(),
        "model-path: m\ntp: 2\nspeculative-algorithm: EAGLE\nspeculative-num-steps: 3\n".to_owned(),
        "backend:\n  sglang_config:\n    decode:\n      model-path: m\n      speculative-algorithm: EAGLE\n      speculative-num-steps: 3\n".to_owned(),
        format!("data:\n  run.sh: |\n    {COMMAND}\nextraArgs:\n- --speculative-algorithm\n- EAGLE\n"),
    ]);
}

#[test]
#[ignore = "needs minutes; SPECTUNE_FUZZ_SECONDS says how many seconds"]
fn python() {
    run("x.py", &[
        format!("import os\nA = \"--tp 4\"\nos.system(f\"{COMMAND} {{A}}\")\n"),
        "import subprocess\ncmd = [\"python3\", \"-m\", \"sglang.launch_server\", \"--model-path\", path, \"--tp\", str(2)]\ncmd += [\"--speculative-algorithm\", \"EAGLE\"]\nsubprocess.run(cmd)\n".to_owned(),
        "import sglang as sgl\nllm = sgl.Engine(model_path=\"m\", tp_size=2, speculative_algorithm=\"EAGLE\", speculative_num_steps=3)\n".to_owned(),
        "from vllm import LLM\nllm = LLM(model=\"m\", speculative_config={\"method\": \"mtp\", \"num_speculative_tokens\": 2})\n".to_owned(),
        "args = (\n    \"--sglang-speculative-algorithm EAGLE \"\n    \"--sglang-speculative-num-steps 3 \"\n)\n".to_owned(),
    ]);
}

#[test]
#[ignore = "needs minutes; SPECTUNE_FUZZ_SECONDS says how many seconds"]
fn dockerfile() {
    run("Dockerfile", &[
        format!("FROM lmsysorg/sglang:v0.5.9 AS a\nRUN pip install sglang==0.5.10\nENV A=b C=\"d e\"\nCMD {COMMAND} \\\n  --page-size 1\n"),
        "FROM vllm/vllm-openai:v0.20.0\nENTRYPOINT [\"vllm\", \"serve\"]\nCMD [\"m\", \"--max-model-len\", \"9\"]\n".to_owned(),
        format!("FROM x\nCMD [\"sh\", \"-c\", \"{COMMAND}\"]\n"),
    ]);
}

#[test]
#[ignore = "needs minutes; SPECTUNE_FUZZ_SECONDS says how many seconds"]
fn unit() {
    run(
        "x.service",
        &[
            format!(
                "[Unit]\nDescription=x\n[Service]\nEnvironment=\"A=b\" 'C=d'\nEnvironmentFile=/e\nExecStart=-/usr/bin/{COMMAND} \\\n  --page-size 1\n"
            ),
            "[Container]\nImage=lmsysorg/sglang:v0.5.9\nExec=--model-path m --speculative-algorithm NGRAM\n".to_owned(),
        ],
    );
}

#[test]
#[ignore = "needs minutes; SPECTUNE_FUZZ_SECONDS says how many seconds"]
fn pages() {
    let markdown = format!(
        "# A\n`lmsysorg/sglang:v0.5.9`\n```bash\n{COMMAND}\n```\n~~~yaml\nargs: [--model-path, m]\n~~~\n```py\nfrom vllm import LLM\nLLM(model=\"m\")\n```\n"
    );
    run("x.md", &[markdown]);
    run(
        "x.rst",
        &[format!("A\n=\n\nRun::\n\n    {COMMAND}\n\n.. code:: yaml\n   :linenos:\n\n   commands:\n     - {SERVE}\n")],
    );
}
