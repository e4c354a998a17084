//! Checks that job files do what they say: the scripts are run, and the manifest is parsed.
//!
//! In a separate process, because a child process that is just starting holds the locks of the
//! journals that its parent writes.
#![cfg(unix)]

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use saphyr_parser::{Event, Parser};
use schemas::{sweep::SweepFile, text::Source};
use serde_json::{Value, json};
use tuner::sweep::jobs::{JobFile, JobRequest, JobScheduler, place::KUBERNETES_COUNT};

/// A name with everything that shells, SLURM and YAML could trip over.
const HARD: &str = "it's a \"$(touch x)\" `y` \\ & #1: {} é";

fn sweep_file(engine: &str, workload: &str) -> SweepFile {
    let text = format!(
        "[models]\ntarget = '../nowhere/target'\ndraft = 'draft'\nalgorithm = 'EAGLE3'\n[engine]\n{engine}\n\
         [workload]\n{workload}\n[space]\nshapes = ['1,1,2', '2,1,3', '2,2,4']\n"
    );
    SweepFile::read(&Source::new("sweep.toml", text)).expect("a sweep file")
}

fn job(scheduler: JobScheduler, engine: &str, folder: &Path, shards: Option<usize>) -> JobFile {
    let request = JobRequest {
        file: &sweep_file(engine, "prompts = \"two\\nlines\""),
        path: &folder.join(format!("{HARD}.toml")),
        out: &folder.join(HARD),
        program: &folder.join("program"),
        device: None,
        shards,
    };
    scheduler.job(&request).expect("a job file")
}

/// The job file of a sweep over servers that use two GPUs each.
fn server_job(scheduler: JobScheduler, folder: &Path) -> JobFile {
    let text = "[system]\nkind = 'sglang'\ncommand = ['serve']\nextra_args = ['--tp-size', '2']\n[models]\ntarget = 't'\n\
                draft = 'd'\nalgorithm = 'EAGLE3'\n[engine]\ndevice = 'cpu'\n[workload]\nprompts = 'p'\n\
                [space]\nshapes = ['1,1,2', '2,1,3']\n";
    let request = JobRequest {
        file: &SweepFile::read(&Source::new("sweep.toml", text)).expect("a sweep file"),
        path: &folder.join(format!("{HARD}.toml")),
        out: &folder.join(HARD),
        program: &folder.join("program"),
        device: None,
        shards: Some(2),
    };
    scheduler.job(&request).expect("a job file")
}

fn program(path: &Path, text: &str) {
    use std::os::unix::fs::PermissionsExt;
    fs::write(path, text).expect("a program");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("it may run");
}

/// A program that records its call in a separate file in `calls`, next to itself; two shards
/// running at once would interleave their lines in a common file.
fn recorder(folder: &Path) {
    fs::create_dir_all(folder.join("calls")).expect("a folder");
    let text =
        "#!/bin/sh\nprintf '%s|' \"${CUDA_VISIBLE_DEVICES-unset}\" \"$@\" > \"$(mktemp \"${0%/*}/calls/XXXXXX\")\"\n";
    program(&folder.join("program"), text);
}

/// Checks the syntax of a script, runs it with bash, and returns the calls that it made, sorted.
/// The recorded calls are then removed.
fn calls(folder: &Path, script: &str, arguments: &[&str], variables: &[(&str, &str)]) -> (Output, Vec<String>) {
    recorder(folder);
    let path = folder.join("job.sh");
    fs::write(&path, script).expect("a script");
    let syntax = Command::new("bash").arg("-n").arg(&path).output().expect("bash");
    assert!(syntax.status.success(), "{}\n{script}", String::from_utf8_lossy(&syntax.stderr));
    let mut command = Command::new("bash");
    command.arg(&path).args(arguments).current_dir(folder).env_clear().envs(variables.iter().copied());
    command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
    let output = command.output().expect("it runs");
    let files = fs::read_dir(folder.join("calls")).expect("a folder");
    let read = |file: std::io::Result<fs::DirEntry>| fs::read_to_string(file.expect("a file").path()).expect("a call");
    let mut made: Vec<String> = files.map(read).collect();
    made.sort();
    fs::remove_dir_all(folder.join("calls")).expect("the calls");
    assert!(!folder.join("x").exists(), "a part of a name was run");
    (output, made)
}

fn sweep_call(gpu: &str, folder: &Path, device: &str, shard: usize, shards: usize) -> String {
    let base = folder.join(HARD);
    let base = base.display();
    format!(
        "{gpu}|sweep|{base}.toml|--device|{device}|--shard|{shard}/{shards}|--out|{base}-shard-{shard}-of-{shards}|--resume|"
    )
}

#[test]
fn a_slurm_task_measures_its_shard_and_the_merge_finds_all_of_them() {
    let folder = tempfile::tempdir().expect("a folder");
    let job = job(JobScheduler::Slurm, "", folder.path(), None);
    assert_eq!((job.shards, job.configurations), (Some(3), 3));
    for line in ["#SBATCH --array=1-3\n", "#SBATCH --gres=gpu:1\n", "#SBATCH --requeue\n"] {
        assert!(job.text.contains(line), "{}", job.text);
    }
    let directives =
        job.text.lines().skip_while(|line| !line.starts_with("#SBATCH")).take_while(|line| line.starts_with('#'));
    assert_eq!(
        directives.count(),
        job.text.matches("#SBATCH").count() + 1,
        "SLURM reads none behind the first command"
    );

    let task = [("SLURM_ARRAY_TASK_ID", "2"), ("CUDA_VISIBLE_DEVICES", "5")];
    let (output, made) = calls(folder.path(), &job.text, &[], &task);
    assert!(output.status.success());
    assert_eq!(made, [sweep_call("5", folder.path(), "cuda", 2, 3)]);

    let (_, made) = calls(folder.path(), &job.text, &["merge"], &[]);
    let out = folder.path().join(HARD);
    let shards: Vec<String> = (1..=3).map(|shard| format!("{}-shard-{shard}-of-3", out.display())).collect();
    let merge = format!("unset|merge|{}|--out|{}|", shards.join("|"), out.display());
    assert_eq!(made, [merge, format!("unset|report|{}|", out.display())]);

    let (output, made) = calls(folder.path(), &job.text, &[], &[]);
    assert!(!output.status.success() && made.is_empty(), "outside of SLURM it says so");
    assert!(String::from_utf8_lossy(&output.stderr).contains("sbatch"));
}

#[test]
fn the_script_for_one_host_gives_every_visible_gpu_its_shards() {
    let run = |engine: &str, shards, variables: &[(&str, &str)]| {
        let folder = tempfile::tempdir().expect("a folder");
        let job = job(JobScheduler::Bash, engine, folder.path(), shards);
        let (output, made) = calls(folder.path(), &job.text, &[], variables);
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{words}");
        let (mut sweeps, last): (Vec<String>, Vec<String>) =
            made.into_iter().partition(|call| call.contains("|sweep|"));
        assert_eq!(last.len(), 2, "merge and report");
        sweeps.iter_mut().for_each(|call| *call = call.replace(folder.path().to_str().expect("UTF-8"), ""));
        sweeps
    };
    let expected = |calls: &[(&str, &str, usize, usize)]| {
        let call = |(gpu, device, shard, shards): &(&str, &str, usize, usize)| {
            sweep_call(gpu, Path::new("/"), device, *shard, *shards)
        };
        calls.iter().map(call).collect::<Vec<_>>()
    };
    // One shard per GPU, at most one per configuration; more if the user wants it.
    let gpus = |list: &'static str| [("CUDA_VISIBLE_DEVICES", list)];
    assert_eq!(run("", None, &gpus("4,6")), expected(&[("4", "cuda", 1, 2), ("6", "cuda", 2, 2)]));
    assert_eq!(run("", None, &gpus("0,1,2,3,4")).len(), 3);
    let three = [("4", "cuda", 1, 3), ("4", "cuda", 3, 3), ("6", "cuda", 2, 3)];
    assert_eq!(run("", Some(3), &gpus("4,6")), expected(&three));
    assert_eq!(run("", Some(2), &[("CUDA_VISIBLE_DEVICES", "4,6"), ("SHARDS", "3")]), expected(&three));
    // Without a GPU, or if none is wanted, the CPU.
    assert_eq!(run("", None, &gpus("")), expected(&[("", "cpu", 1, 1)]));
    assert_eq!(run("", Some(2), &gpus("-1")), expected(&[("", "cpu", 1, 2), ("", "cpu", 2, 2)]));
    assert_eq!(run("device = 'cpu'", None, &gpus("4,6")), expected(&[("", "cpu", 1, 1)]));
    assert_eq!(run("device = 'cuda:3'", None, &gpus("4")), expected(&[("4", "cuda", 1, 1)]));
}

#[test]
fn a_job_over_servers_takes_their_gpus_and_ends_what_is_left_of_them() {
    let folder = tempfile::tempdir().expect("a folder");
    let calls = |text: &str, variables: &[(&str, &str)]| {
        let (output, made) = calls(folder.path(), text, &[], variables);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        made
    };
    let ends = |call: &String| call.contains("--end-servers");

    let slurm = server_job(JobScheduler::Slurm, folder.path()).text;
    assert!(slurm.contains("#SBATCH --gres=gpu:2\n"), "{slurm}");
    let made = calls(&slurm, &[("SLURM_ARRAY_TASK_ID", "2"), ("CUDA_VISIBLE_DEVICES", "2,3")]);
    assert_eq!((made.len(), made.iter().filter(|call| ends(call)).count()), (2, 1), "{made:?}");
    let end = made.iter().find(|call| ends(call)).expect("the servers are ended");
    assert!(end.contains("-shard-2-of-2|--end-servers|"), "{end}");

    let bash = server_job(JobScheduler::Bash, folder.path()).text;
    let made = calls(&bash, &[("CUDA_VISIBLE_DEVICES", "4,5,6,7,8")]);
    for gpus in ["4,5|", "6,7|"] {
        let of_group = made.iter().filter(|call| call.starts_with(gpus) && call.contains("|--shard|"));
        assert_eq!(of_group.count(), 1, "{made:?}");
    }
    assert!(made.iter().filter(|call| ends(call)).count() >= 2, "{made:?}");

    let k8s = server_job(JobScheduler::Kubernetes, folder.path()).text;
    assert!(k8s.contains("nvidia.com/gpu: 2\n"), "{k8s}");
}

#[test]
fn what_is_no_number_of_shards_is_refused_before_anything_runs() {
    let folder = tempfile::tempdir().expect("a folder");
    let job = job(JobScheduler::Bash, "", folder.path(), None);
    for wrong in ["0", "x[$(touch x)]", "-1", "1 2"] {
        let (output, made) = calls(folder.path(), &job.text, &[], &[("SHARDS", wrong), ("CUDA_VISIBLE_DEVICES", "")]);
        assert_eq!((output.status.code(), made.len()), (Some(2), 0), "{wrong}");
    }
}

#[test]
fn a_shard_that_fails_fails_the_script_and_nothing_is_merged() {
    let folder = tempfile::tempdir().expect("a folder");
    let job = job(JobScheduler::Bash, "", folder.path(), Some(2));
    let failing = folder.path().join("failing");
    program(&failing, "#!/bin/sh\nexit 2\n");
    let failing = failing.display().to_string();
    let (output, made) =
        calls(folder.path(), &job.text, &[], &[("SPECTUNE", &failing), ("CUDA_VISIBLE_DEVICES", "0,1")]);
    assert_eq!((output.status.code(), made.len()), (Some(2), 0));
    assert!(String::from_utf8_lossy(&output.stderr).contains("a shard failed"));
}

#[test]
fn the_manifest_is_an_indexed_job_in_which_every_pod_has_a_gpu_and_a_shard() {
    let folder = tempfile::tempdir().expect("a folder");
    let text = job(JobScheduler::Kubernetes, "", folder.path(), Some(3)).text;
    let manifest = yaml(&text);
    assert_eq!(manifest["kind"], "Job");
    let spec = &manifest["spec"];
    assert_eq!(
        (&spec["completionMode"], &spec["completions"], &spec["parallelism"]),
        (&json!("Indexed"), &json!("3"), &json!("3"))
    );
    let name = manifest["metadata"]["name"].as_str().expect("a name");
    assert!(
        name.len() < 53 && name.chars().all(|one| one.is_ascii_lowercase() || one.is_ascii_digit() || one == '-'),
        "{name}"
    );
    let pod = &spec["template"]["spec"];
    let container = &pod["containers"][0];
    assert_eq!(container["resources"]["limits"]["nvidia.com/gpu"], "1");
    assert_eq!(container["volumeMounts"][0]["name"], pod["volumes"][0]["name"]);
    for path in ["target: \"../nowhere/target\" (not below", "draft: \"draft\"\n", "prompts: \"two\\nlines\"\n"] {
        assert!(text.contains(path), "{path}");
    }

    // What Kubernetes does to a container's arguments, as far as it matters here.
    let replaced = |text: &Value| text.as_str().expect("a text").replace("$$", "$");
    let environment: Vec<(String, String)> = container["env"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|one| (one["name"].as_str().expect("a name").to_owned(), replaced(&one["value"])))
        .chain([("JOB_COMPLETION_INDEX".into(), "1".into())])
        .collect();
    let environment: Vec<(&str, &str)> =
        environment.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert!(environment.contains(&(KUBERNETES_COUNT, "3")));
    let script = replaced(&container["args"][0]).replace("spectune sweep", "./program sweep");
    let (_, made) = calls(folder.path(), &script, &[], &environment);
    let out = folder.path().join(HARD);
    let expected = format!("unset|sweep|{HARD}.toml|--device|cuda|--out|{}-shard-2-of-3|--resume|", out.display());
    assert_eq!(made, [expected]);
    let without = yaml(&job(JobScheduler::Kubernetes, "device = 'cpu'", folder.path(), None).text);
    assert!(without["spec"]["template"]["spec"]["containers"][0].get("resources").is_none());
}

#[test]
fn a_name_that_would_leave_its_line_is_refused() {
    let file = sweep_file("", "prompts = 'p'");
    let request = |path| JobRequest {
        file: &file,
        path,
        out: Path::new("out"),
        program: Path::new("spectune"),
        device: None,
        shards: None,
    };
    for scheduler in [JobScheduler::Slurm, JobScheduler::Kubernetes, JobScheduler::Bash] {
        let error = scheduler.job(&request(Path::new("a\nb.toml"))).expect_err("a line end").to_string();
        assert!(error.contains("control character"), "{error}");
        for shards in [0, usize::MAX] {
            let wrong = JobRequest { shards: Some(shards), ..request(Path::new("a.toml")) };
            let error = scheduler.job(&wrong).expect_err("no such number").to_string();
            assert!(error.contains(&format!("--shards {shards}")), "{error}");
        }
    }
}

/// The first document of a YAML text; scalars become strings.
fn yaml(text: &str) -> Value {
    let mut events = Parser::new_from_str(text).map(|event| event.expect("YAML").0).peekable();
    while events
        .next_if(|event| matches!(event, Event::StreamStart | Event::DocumentStart(_) | Event::Nothing))
        .is_some()
    {}
    let first = events.next().expect("a node");
    node(first, &mut events)
}

fn node<'a>(first: Event<'a>, events: &mut impl Iterator<Item = Event<'a>>) -> Value {
    match first {
        Event::Scalar(text, ..) => Value::from(text.into_owned()),
        Event::SequenceStart(..) => {
            let mut list = Vec::new();
            loop {
                match events.next().expect("an end") {
                    Event::SequenceEnd => return Value::Array(list),
                    event => list.push(node(event, events)),
                }
            }
        }
        Event::MappingStart(..) => {
            let mut map = serde_json::Map::new();
            loop {
                match events.next().expect("an end") {
                    Event::MappingEnd => return Value::Object(map),
                    Event::Scalar(key, ..) => {
                        let value = events.next().expect("a value");
                        let twice = map.insert(key.into_owned(), node(value, events));
                        assert!(twice.is_none(), "a key twice");
                    }
                    other => panic!("{other:?} is no key"),
                }
            }
        }
        other => panic!("{other:?} is no node"),
    }
}
