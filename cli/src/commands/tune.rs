//! `spectune tune`: finds the fastest speculation for a launch, or measures running servers as they
//! are.

mod launch;
mod request_log;
mod words;

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use anyhow::bail;
use schemas::{
    quoting::quoted,
    secrets,
    sweep::{RandomPrompts, Until, Workload, is_server_address},
};
use tuner::{
    from_launch::LaunchStart, running::record::RunningSettings, strategy::Shard, trials::configuration::TrialLoad,
};

use self::request_log::Logged;
use super::running;
use crate::{data_set, exit::Exit};

/// New tokens of a request, if neither the command line nor a log gives their number.
const OUTPUT_LENGTH: usize = 128;

const EXAMPLES: &str = "\
Examples:
  spectune tune run.sh --prompts prompts.jsonl --concurrency 8 --dry-run
  spectune tune run.sh --prompts prompts.jsonl --concurrency 8 --max-time 20m
  spectune tune run.sh --request-log requests.jsonl --set MODEL_DIR=/models --write
  spectune tune compose.yaml --launch 2 --input-len 1000 --output-len 200
  spectune tune compose.yaml --input-len 1000 --local
  spectune tune job.sh --prompts prompts.jsonl --start 'srun -N 2 ./serve.sh' --stop 'scancel -n serve' \
      --address http://node-1:30000
  spectune tune run.sh --prompts prompts.jsonl --concurrency 8 --contexts 2048,16384 --max-time 1h
  spectune tune run.sh --prompts prompts.jsonl --print-sweep > sweep.toml
  spectune tune --url http://127.0.0.1:30000 --prompts prompts.jsonl --concurrency 1,8,32
  spectune tune --url http://127.0.0.1:8000 --launch run.sh --input-len 1000 --output-len 200
  spectune tune --url http://gpu-1:30000 --url http://gpu-2:30000 --prompts prompts.jsonl
  spectune tune --url https://llm.example.org --api-key-env LLM_KEY --prompts prompts.jsonl

A launch file is checked by the linter and read, never run: tune starts the command that it \
contains, with the environment that it exports, without speculation, with the launch's own shape, \
and with others, as `spectune sweep` does, and prints the changed launch if one is faster. It says \
first which flags are measured otherwise than they stand there, and why.

With --url, one configuration is measured: the one that runs. Nothing is changed on the server, nothing is \
varied, and no tuned file is written. Every repeat sends prompts that were not sent before; where \
the server counts cached tokens, trials with cold and with warm prompts are shown apart. Trials \
during which the server had other requests are excluded.

Two servers are measured in turns with the same prompts; the result is a paired ratio with its \
interval.

A vLLM server tells its configuration only with VLLM_SERVER_DEV_MODE=1; otherwise method, draft and \
backends are `not told`, or come from --launch FILE.

Ctrl-C keeps every finished trial and exits with code 130; --resume continues from there.";

/// Find the fastest speculation for a launch file, or measure running servers as they are.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// The launch file to tune: a shell script, a unit, a compose file or anything else that `lint`
    /// reads
    #[arg(value_name = "FILE", conflicts_with = "url")]
    file: Option<PathBuf>,
    /// URL of a running SGLang, vLLM or spectune server; given twice, two servers are compared
    #[arg(long, value_name = "URL")]
    url: Vec<String>,
    /// Of a FILE with several launches, the number of the one to tune; with --url, the file that
    /// the server was launched with, for what it does not tell (it is also checked by the linter)
    #[arg(long, value_name = "N|FILE")]
    launch: Option<PathBuf>,
    /// Value of a variable that FILE uses and does not set; may be given several times
    #[arg(long, value_name = "NAME=VALUE", conflicts_with = "url")]
    set: Vec<String>,
    /// The words that start the engine, in place of those in FILE
    #[arg(long, value_name = "WORDS", conflicts_with = "url")]
    command: Option<String>,
    /// Run the command of a container here, without the container
    #[arg(long, conflicts_with_all = ["url", "command"])]
    local: bool,
    /// Shell command that starts the servers, for what is not one process here (srun, Ray, a router
    /// with its workers): it gets the flags of each configuration in place of {flags}, or at its
    /// end
    #[arg(long, value_name = "COMMAND", conflicts_with_all = ["url", "command", "local"])]
    start: Option<String>,
    /// Shell command that ends what --start started
    #[arg(long, value_name = "COMMAND", requires = "start")]
    stop: Option<String>,
    /// Where the servers of --start answer (default: the --host and --port among the flags that
    /// --start gets)
    #[arg(long, value_name = "URL", requires = "start")]
    address: Option<String>,
    /// Measure with the prefix cache of the launch, flushed before every trial; by default it is
    /// off
    #[arg(long, conflicts_with = "url")]
    keep_prefix_cache: bool,
    /// Measure one of several parts of the space
    #[arg(long, value_name = "I/N", conflicts_with = "url")]
    shard: Option<Shard>,
    /// Draft to try, in place of the launch's or where it has none: a folder, or an id in the
    /// Hugging Face cache
    #[arg(long, value_name = "DIR", conflicts_with = "url")]
    draft: Option<String>,
    /// How the draft drafts: EAGLE3, EAGLE or NEXTN (default: the launch's, or what the tensors of
    /// --draft say)
    #[arg(long, value_name = "NAME", conflicts_with = "url")]
    algorithm: Option<String>,
    /// Write the faster shape into FILE
    #[arg(long, conflicts_with_all = ["url", "dry_run", "print_sweep"])]
    write: bool,
    /// Print the sweep file that would be run, secrets hidden, and stop
    #[arg(long, conflicts_with_all = ["url", "dry_run"])]
    print_sweep: bool,
    /// Tune FILE even if the linter finds errors in it
    #[arg(long, conflicts_with = "url")]
    force: bool,
    /// Environment variable that holds the server's API key
    #[arg(long, value_name = "NAME")]
    api_key_env: Option<String>,
    /// Prompts: a file in one of the forms that a sweep file takes, or the id of a data set in the
    /// local Hugging Face cache
    #[arg(long, value_name = "FILE", conflicts_with = "input_len")]
    prompts: Option<PathBuf>,
    /// Prompts from the log of a server (`spectune serve --log-requests`); number of new tokens and
    /// temperature are the log's medians, if not given
    #[arg(long, value_name = "FILE", conflicts_with_all = ["prompts", "input_len"])]
    request_log: Option<PathBuf>,
    /// Random prompts of this many tokens; accept lengths on them say nothing about text
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    input_len: Option<u32>,
    /// New tokens of each request (default: 128)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    output_len: Option<u32>,
    /// Numbers of requests that run together, each measured separately
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "1,8", value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    concurrency: Vec<u32>,
    /// Borders between buckets of contexts, in tokens: each concurrency is measured with the
    /// requests of each bucket, every shape from a start of its own
    #[arg(long, value_name = "N,…", value_delimiter = ',', conflicts_with = "url", value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    contexts: Vec<u32>,
    /// Requests of a trial; at least as many as run together
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    requests: u32,
    /// Trials of each configuration and load (default: 3; with --url 6, the fewest for a confidence
    /// interval)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    repeats: Option<u32>,
    /// When repeats end: repeats (after --repeats) or decided (when it is decided whether
    /// speculation pays and what to run, within --max-time)
    #[arg(long, value_name = "WHEN", conflicts_with = "url")]
    until: Option<Until>,
    /// Time from the first server that is ready on, such as 90s, 20m or 2h: no trial starts after
    /// it, and a start or a trial that has not ended by then is cut off; finished trials are kept
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    max_time: Option<f64>,
    /// Flush the server's prefix cache before every trial; it then also forgets the prompts of
    /// others
    #[arg(long, requires = "url")]
    flush: bool,
    /// End requests at the model's end-of-text token instead of generating all new tokens
    #[arg(long)]
    stop_at_end: bool,
    /// Sampling temperature; 0 is greedy (default: 0)
    #[arg(long, value_name = "T")]
    temperature: Option<f32>,
    /// Seed of random prompts and sampling
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Folder with the tokenizer and config.json of the server's model, if the one that it names is
    /// not on this machine
    #[arg(long, value_name = "DIR")]
    model_path: Option<PathBuf>,
    /// Folder for journal and report (default: results/tune-NAME of the FILE; with --url
    /// results/tune)
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Continue the measurement that was started in the folder
    #[arg(long)]
    resume: bool,
    /// Print what would be measured, without measuring
    #[arg(long)]
    dry_run: bool,
}

/// Runs the command.
pub fn run(arguments: Arguments) -> anyhow::Result<Exit> {
    if arguments.file.is_none() && arguments.url.is_empty() {
        bail!(
            "give the launch file to tune, such as `spectune tune run.sh --prompts FILE`, or --url of a running server"
        );
    }
    if arguments.url.len() > 2 {
        bail!("{} URLs are given, but one server is measured or two are compared", arguments.url.len());
    }
    if arguments.temperature.is_some_and(|temperature| !(temperature >= 0.0 && temperature.is_finite())) {
        bail!("--temperature takes a number of at least 0");
    }
    if let Some(file) = &arguments.file {
        return launch::tune(&from_file(file, &arguments)?);
    }
    let inputs = running::RunningInputs {
        urls: arguments.url.clone(),
        api_key_env: arguments.api_key_env.clone(),
        launch: arguments.launch.clone(),
        model: arguments.model_path.clone(),
        models: None,
        requested: requested(&arguments)?,
        out: arguments.out.clone().unwrap_or_else(|| "results/tune".into()),
        resume: arguments.resume,
        dry_run: arguments.dry_run,
    };
    running::measure(&inputs, &again(&arguments, Some(&inputs.out)).with(""))
}

fn from_file(file: &Path, arguments: &Arguments) -> anyhow::Result<launch::Inputs> {
    let number = match &arguments.launch {
        None => None,
        Some(text) => match text.to_str().and_then(|text| text.parse().ok()) {
            Some(number) => Some(number),
            None => bail!("--launch takes the number of a launch in {}, such as 2", file.display()),
        },
    };
    let mode = match (arguments.write, arguments.dry_run, arguments.print_sweep) {
        (true, ..) => launch::Mode::Write,
        (_, true, _) => launch::Mode::DryRun,
        (.., true) => launch::Mode::PrintSweep,
        _ => launch::Mode::Measure,
    };
    if let Some(address) = arguments.address.as_ref().filter(|address| !is_server_address(address)) {
        bail!("--address takes an address such as http://node-1:30000, but got {address}");
    }
    let requested = requested(arguments)?;
    Ok(launch::Inputs {
        file: file.to_owned(),
        number,
        set: arguments.set.clone(),
        command: arguments.command.clone(),
        start: arguments.start.clone().map(|start| LaunchStart {
            start,
            stop: arguments.stop.clone(),
            address: arguments.address.clone(),
        }),
        local: arguments.local,
        keep_prefix_cache: arguments.keep_prefix_cache,
        model_path: arguments.model_path.clone(),
        shard: arguments.shard,
        draft: arguments.draft.clone(),
        algorithm: arguments.algorithm.clone(),
        concurrency: requested.loads.iter().filter_map(|load| load.batch_size()).collect(),
        contexts: ascending(&arguments.contexts),
        workload: requested.workload,
        repeats: requested.repeats,
        seconds: requested.seconds,
        until: arguments.until.unwrap_or_default(),
        out: arguments.out.clone(),
        resume: arguments.resume,
        mode,
        force: arguments.force,
        again: again(arguments, None),
    })
}

/// Numbers in ascending order, each once: a load that is named twice would be measured once, but
/// planned twice.
fn ascending(numbers: &[u32]) -> Vec<usize> {
    let numbers: BTreeSet<usize> = numbers.iter().map(|number| *number as usize).collect();
    numbers.into_iter().collect()
}

fn requested(arguments: &Arguments) -> anyhow::Result<RunningSettings> {
    let folder = std::env::current_dir()?;
    let file = arguments.prompts.as_ref().or(arguments.request_log.as_ref());
    let random = match (file, arguments.input_len) {
        (Some(_), _) => None,
        (None, Some(length)) => Some(RandomPrompts { input_length: length as usize, ratio: 1.0 }),
        (None, None) => bail!("give prompts: --prompts FILE, --request-log FILE, or --input-len N for random ones"),
    };
    let logged = arguments.request_log.as_deref().map(Logged::read).transpose()?;
    let named = file.map(|file| file.display().to_string());
    let prompts = named.map(|name| data_set::file(&folder, &name)).transpose()?;
    if let Some(file) = prompts.as_ref().filter(|file| !folder.join(file).is_file()) {
        bail!("there is no file {file}");
    }
    let loads = ascending(&arguments.concurrency).into_iter().map(TrialLoad::BatchSize);
    Ok(RunningSettings {
        urls: Vec::new(),
        workload: Workload {
            prompt_files: Vec::new(),
            prompts,
            input_ids: None,
            random,
            trace: None,
            chat: None,
            turn: None,
            max_prompt_tokens: None,
            requests: arguments.requests as usize,
            output_length: arguments
                .output_len
                .map_or_else(|| logged.map_or(OUTPUT_LENGTH, |log| log.output_length), |length| length as usize),
            warm_up_tokens: 8,
            ignore_eos: !arguments.stop_at_end,
            // As the logged requests were sampled, since acceptance depends on it.
            temperature: arguments.temperature.or(logged.map(|log| log.temperature)).unwrap_or_default(),
            top_p: 1.0,
            top_k: 0,
            seed: arguments.seed,
        },
        folder: folder.display().to_string(),
        loads: loads.collect(),
        repeats: repeats(arguments) as usize,
        seconds: arguments.max_time,
        flush: arguments.flush,
    })
}

fn repeats(arguments: &Arguments) -> u32 {
    // Each repeat on own servers covers several configurations; one configuration alone can afford
    // more.
    arguments.repeats.unwrap_or(if arguments.file.is_some() { 3 } else { 6 })
}

/// The command that continues. Values of secrets are not in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Again {
    /// Its words, without the program.
    command: String,
    /// What must be so when it is run; empty if nothing must.
    remarks: String,
}

impl Again {
    /// The words with further ones, and what must be so.
    fn with(&self, further: &str) -> String {
        let command = [self.command.as_str(), further].join(" ");
        let remarks = if self.remarks.is_empty() { String::new() } else { format!(" (with {})", self.remarks) };
        command.trim_end().to_owned() + &remarks
    }
}

/// The command that continues, without the program; without a folder, also without it and
/// `--resume`.
fn again(arguments: &Arguments, out: Option<&Path>) -> Again {
    let mut words = vec!["tune".to_owned()];
    let mut add = |flag: &str, value: Option<String>| add_to(&mut words, flag, value);
    let path = |path: &PathBuf| path.display().to_string();
    add("", arguments.file.as_ref().map(path));
    arguments.url.iter().for_each(|url| add("--url", Some(url.clone())));
    add("--launch", arguments.launch.as_ref().map(path));
    let mut named = Vec::new();
    for pair in &arguments.set {
        match pair.split_once('=').filter(|(name, value)| secrets::is_secret_variable(name, value)) {
            Some((name, _)) => {
                // The shell fills it in: it is expanded in double quotes.
                named.push(name);
                words.push(format!("--set \"{name}=${name}\""));
            }
            None => add_to(&mut words, "--set", Some(pair.clone())),
        }
    }
    let mut is_masked = false;
    let texts = [("--command", &arguments.command), ("--start", &arguments.start), ("--stop", &arguments.stop)];
    for (flag, text) in texts {
        let Some(text) = text else { continue };
        // The advice is printed, and often lands in logs.
        let masked = secrets::masked_text(text);
        is_masked |= masked != *text;
        add_to(&mut words, flag, Some(masked));
    }
    let mut add = |flag: &str, value: Option<String>| add_to(&mut words, flag, value);
    add("--address", arguments.address.clone());
    add("--shard", arguments.shard.map(|shard| shard.to_string()));
    add("--draft", arguments.draft.clone());
    add("--algorithm", arguments.algorithm.clone());
    add("--api-key-env", arguments.api_key_env.clone());
    add("--prompts", arguments.prompts.as_ref().map(path));
    add("--input-len", arguments.input_len.map(|length| length.to_string()));
    add("--request-log", arguments.request_log.as_ref().map(path));
    add("--output-len", arguments.output_len.map(|length| length.to_string()));
    let list = |numbers: &[u32]| numbers.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    add("--concurrency", Some(list(&arguments.concurrency)));
    add("--contexts", (!arguments.contexts.is_empty()).then(|| list(&arguments.contexts)));
    add("--requests", Some(arguments.requests.to_string()));
    // Defaults too: the command must continue the same plan in a later version.
    add("--repeats", Some(repeats(arguments).to_string()));
    add("--max-time", arguments.max_time.map(|seconds| format!("{seconds}s")));
    add("--until", arguments.until.map(|until| until.name().to_owned()));
    add("--temperature", arguments.temperature.map(|temperature| temperature.to_string()));
    add("--seed", (arguments.seed > 0).then(|| arguments.seed.to_string()));
    add("--model-path", arguments.model_path.as_ref().map(path));
    add("--out", out.map(|out| out.display().to_string()));
    words.extend(arguments.local.then(|| "--local".to_owned()));
    words.extend(arguments.keep_prefix_cache.then(|| "--keep-prefix-cache".to_owned()));
    words.extend(arguments.write.then(|| "--write".to_owned()));
    words.extend(arguments.force.then(|| "--force".to_owned()));
    words.extend(arguments.flush.then(|| "--flush".to_owned()));
    words.extend(arguments.stop_at_end.then(|| "--stop-at-end".to_owned()));
    words.extend(out.map(|_| "--resume".to_owned()));
    let mut remarks = Vec::new();
    remarks.extend((!named.is_empty()).then(|| format!("{} set in the environment", named.join(", "))));
    remarks.extend(is_masked.then(|| "the secrets in place of ***".to_owned()));
    Again { command: words.join(" "), remarks: remarks.join(" and ") }
}

/// Adds a flag with its value to words for a shell.
fn add_to(words: &mut Vec<String>, flag: &str, value: Option<String>) {
    words.extend(value.map(|value| format!("{flag} {}", quoted(&value)).trim_start().to_owned()));
}

/// A time such as `90s`, `20m` or `2h`; a plain number counts seconds.
fn seconds(text: &str) -> Result<f64, String> {
    let (number, unit) = match text.trim().strip_suffix(['s', 'm', 'h']) {
        Some(number) => (number, text.trim().chars().last()),
        None => (text.trim(), None),
    };
    let number: f64 = number.parse().map_err(|_| "expected a time such as 90s, 20m or 2h".to_owned())?;
    let seconds = number
        * match unit {
            Some('m') => 60.0,
            Some('h') => 3600.0,
            _ => 1.0,
        };
    if seconds > 0.0 && seconds.is_finite() { Ok(seconds) } else { Err("expected a time above 0".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_that_continues_names_secrets_and_does_not_hold_them() {
        let command = |words: &[&str]| {
            let parser = <Arguments as clap::Args>::augment_args(clap::Command::new("tune"));
            let matches = parser.try_get_matches_from(words).expect("arguments");
            let arguments = <Arguments as clap::FromArgMatches>::from_arg_matches(&matches).expect("arguments");
            again(&arguments, None).with("--out out --resume")
        };
        let reported =
            command(&["tune", "run.sh", "--input-len", "8", "--set", "HF_TOKEN=hf_0123456789", "--set", "A=b c"]);
        assert!(reported.contains("--set \"HF_TOKEN=$HF_TOKEN\" --set 'A=b c'"), "{reported}");
        assert!(reported.ends_with("--out out --resume (with HF_TOKEN set in the environment)"), "{reported}");
        let words = "vllm serve m --api-key sk-0123456789";
        let reported = command(&["tune", "run.sh", "--input-len", "8", "--command", words, "--until", "decided"]);
        assert!(reported.contains("--api-key ***") && reported.contains("in place of ***"), "{reported}");
        assert!(!reported.contains("0123456789") && reported.contains("--until decided"), "{reported}");
    }

    #[test]
    fn times_are_read_with_their_units() {
        for (text, expected) in [("90s", 90.0), ("20m", 1200.0), ("2h", 7200.0), ("45", 45.0), ("0.5m", 30.0)] {
            assert_eq!(seconds(text), Ok(expected), "{text}");
        }
        for text in ["", "m", "-3s", "0", "2d", "nan"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }
}
