//! Launches in containers, as `docker run` commands that a sweep can start, name and end.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use launch::{ContainerRun, Launch, RunOptions, is_runtime};
use schemas::{quoting::quoted, secrets::is_secret_variable};

use super::{LaunchProgram, Treated, missing::Missing};

/// Options of `run` that the sweep sets, or that keep it from watching the server.
const SET_BY_SWEEP: [&str; 19] = [
    "name",
    "rm",
    "d",
    "detach",
    "i",
    "interactive",
    "t",
    "tty",
    "p",
    "publish",
    "P",
    "publish-all",
    "network",
    "net",
    "restart",
    "e",
    "env",
    "pull",
    "h",
];
const OPTIONS: &str = "a container of the sweep has a name of its own, the host's network and no terminal";

/// The words of a `docker run` command, taken apart.
struct ContainerStart<'a> {
    /// Up to and including `run`.
    runtime: &'a [String],
    options: RunOptions,
    /// From the image on.
    image: &'a [String],
}

impl<'a> ContainerStart<'a> {
    /// Reads a command such as `sudo docker run OPTIONS IMAGE …`; `None` if it runs no container.
    fn from_words(words: &'a [String]) -> Option<Self> {
        let program = words.iter().position(|word| is_runtime(word))?;
        let run = program + words.iter().skip(program).position(|word| word == "run")?;
        let given = words.get(run + 1..)?;
        let options = RunOptions::parse(given);
        let image = given.get(options.image?..)?;
        Some(Self { runtime: words.get(..=run)?, options, image })
    }
}

/// A launch whose own words run a container; `None` if they do not.
pub fn program_from_words(words: &[String], around: &BTreeMap<String, String>) -> Option<LaunchProgram> {
    let run = ContainerStart::from_words(words)?;
    let given = ["e", "env"].into_iter().flat_map(|option| run.options.values(option));
    let given = given.map(|given| match given.split_once('=') {
        Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
        None => (given.to_owned(), None),
    });
    let mut env = around.clone();
    let mut command = run.runtime.to_vec();
    command.extend(run.options.words(&SET_BY_SWEEP));
    command.extend(by_sweep(given, &mut env));
    command.extend_from_slice(run.image);
    let kept = run.options.words(&[]);
    let treated = (kept != run.options.words(&SET_BY_SWEEP)).then(|| Treated {
        launch: "options of docker run".into(),
        measured: format!("--network host, no {}", left_out(&run.options)),
        why: OPTIONS,
    });
    Some(LaunchProgram { command, env, treated: treated.into_iter().collect(), folder: None })
}

/// The command without its container, for an engine that is installed here; `None` if it runs no
/// container.
pub fn without(words: &[String]) -> Option<Vec<String>> {
    let run = ContainerStart::from_words(words)?;
    let entry_point = run.options.value("entrypoint").map(str::to_owned);
    Some(entry_point.into_iter().chain(run.image.get(1..).unwrap_or_default().iter().cloned()).collect())
}

/// A launch of a compose file or manifest as `docker run`.
///
/// # Errors
/// When its image is not known.
pub fn program_from_run(
    run: &ContainerRun,
    launch: &Launch,
    folder: &Path,
    known: BTreeMap<String, String>,
    missing: &mut Missing,
) -> Result<LaunchProgram, String> {
    let image = run.image.as_ref().and_then(|image| missing.word(image));
    let image = image.ok_or("the image of the container is not known")?;
    let program: Vec<String> = launch.program.iter().filter_map(|word| missing.word(&word.value)).collect();
    let mut treated = Vec::new();
    let mut command = vec![run.runtime.to_owned(), "run".to_owned()];
    let options: Vec<String> = run.options.iter().filter_map(|word| missing.word(word)).collect();
    let option = |at: usize| if at > 0 { options.get(at - 1).map_or("", String::as_str) } else { "" };
    command.extend(options.iter().enumerate().map(|(at, word)| match option(at) {
        "--volume" => mount(word, folder),
        "--env-file" => folder.join(word).display().to_string(),
        _ => word.clone(),
    }));
    let is_known = |name: &String| known.contains_key(name) || std::env::var_os(name).is_some();
    let (given, unknown): (Vec<&String>, Vec<&String>) = launch.environment.keys().partition(|name| is_known(name));
    let mut env = BTreeMap::new();
    command.extend(by_sweep(given.into_iter().map(|name| (name.clone(), known.get(name).cloned())), &mut env));
    match program.split_first() {
        Some((first, rest)) if !run.by_entry_point => {
            command.extend(["--entrypoint".to_owned(), first.clone(), image.clone()]);
            command.extend_from_slice(rest);
        }
        _ => command.push(image.clone()),
    }
    treated.push(Treated {
        launch: format!("image {image}"),
        measured: format!(
            "{} run {}",
            run.runtime,
            options.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
        ),
        why: OPTIONS,
    });
    let row = |launch: &String, why| Treated { launch: launch.clone(), measured: "left out".into(), why };
    treated.extend(
        run.left_out.iter().map(|what| row(what, "docker run has no counterpart: mount a folder of this host")),
    );
    treated.extend(unknown.iter().map(|name| row(name, "its value is not known here: set it in the environment")));
    Ok(LaunchProgram { command, env, treated, folder: None })
}

/// The options that every container of a sweep gets. A secret is passed on by its name, so that its
/// value is in no command; it is added to the environment of the runtime.
fn by_sweep(given: impl Iterator<Item = (String, Option<String>)>, env: &mut BTreeMap<String, String>) -> Vec<String> {
    let mut words = vec!["--network".to_owned(), "host".to_owned()];
    for (name, value) in given {
        words.push("-e".into());
        match value {
            Some(value) if !is_secret_variable(&name, &value) => words.push(format!("{name}={value}")),
            Some(value) => {
                env.insert(name.clone(), value);
                words.push(name);
            }
            None => words.push(name),
        }
    }
    words
}

/// The options that are not kept, without those of the environment.
fn left_out(options: &RunOptions) -> String {
    let gone = |option: &&&str| options.has(option) && !matches!(**option, "e" | "env" | "rm" | "network" | "net");
    let dashed = |option: &&str| format!("{}{option}", if option.len() == 1 { "-" } else { "--" });
    let words: Vec<String> = SET_BY_SWEEP.iter().filter(gone).map(dashed).collect();
    if words.is_empty() { "other network".into() } else { words.join(" ") }
}

/// A mount whose folder is relative to that of the file, as `docker run` takes it.
fn mount(volume: &str, folder: &Path) -> String {
    match volume.split_once(':') {
        Some((host, rest)) if host.starts_with('.') => {
            format!("{}:{rest}", schemas::paths::tidy(&folder.join(host)).display())
        }
        Some((host, rest)) if host.starts_with('~') => {
            let home = std::env::var("HOME").unwrap_or_default();
            format!("{home}{}:{rest}", &host[1..])
        }
        _ => volume.to_owned(),
    }
}

/// The folder of this host that a container's folder is, by the mounts of the command.
pub fn on_host(command: &[String], inside: &str) -> Option<String> {
    let run = ContainerStart::from_words(command)?;
    let mounts = ["v", "volume"].into_iter().flat_map(|option| run.options.values(option));
    let place = |volume: &str| {
        let mut parts = volume.split(':');
        let (host, target) = (parts.next()?, parts.next()?.trim_end_matches('/'));
        let rest = Path::new(inside).strip_prefix(target).ok()?;
        host.starts_with('/').then(|| (target.len(), Path::new(host).join(rest).display().to_string()))
    };
    // The innermost mount is the one that is seen.
    mounts.filter_map(place).max().map(|(_, path)| path.trim_end_matches('/').to_owned())
}

/// Makes folders of this host visible in the container of a command under their own paths.
pub fn mount_models(command: &mut Vec<String>, folders: &[&str]) {
    let Some(run) = ContainerStart::from_words(command).map(|run| run.runtime.len()) else { return };
    let mut mounts = BTreeSet::new();
    for folder in folders.iter().filter(|folder| folder.starts_with('/')) {
        // Files of a snapshot of the hub's cache are links to a folder next to it.
        let whole = folder.split_once("/snapshots/").map_or(*folder, |(model, _)| model);
        mounts.insert(whole.to_owned());
    }
    let words = mounts.iter().flat_map(|folder| ["--volume".to_owned(), format!("{folder}:{folder}:ro")]);
    command.splice(run..run, words);
}
