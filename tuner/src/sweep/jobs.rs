//! Job files: a sweep spread over the GPUs of a host, a SLURM cluster or Kubernetes. They are
//! printed, never submitted.
//!
//! Every file does the same: it measures one shard after another, each on one GPU and into a
//! separate folder, continues where a killed one stopped, and merges the folders. [`place`]
//! determines from the environment which shard a task is.

mod bash;
mod kubernetes;
pub mod place;
mod slurm;

use std::path::{Path, PathBuf};

use engine::{DeviceChoice, options::default_shape};
use schemas::{
    sweep::SweepFile,
    tree::{NodeSource, TreeShape},
};

use crate::{TunerError, space::expand, trials::record::CandidateRole};

/// Default maximum number of shards. It is low because each shard measures the baselines too.
const MOST_SHARDS: usize = 8;
/// Maximum number of shards; larger values are assumed to be mistakes.
const LARGEST: usize = 10_000;

/// The system that runs the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobScheduler {
    /// An array job of SLURM.
    Slurm,
    /// An Indexed Job of Kubernetes.
    Kubernetes,
    /// A script for one host.
    Bash,
}

/// The inputs of a job file.
#[derive(Debug)]
pub struct JobRequest<'a> {
    /// The sweep file, read and checked.
    pub file: &'a SweepFile,
    /// Path of the sweep file.
    pub path: &'a Path,
    /// Folder of the merged results; the shards' folders are next to it.
    pub out: &'a Path,
    /// The program that the job runs.
    pub program: &'a Path,
    /// Device to run on, in place of the file's.
    pub device: Option<DeviceChoice>,
    /// The number of shards, if the user gives it.
    pub shards: Option<usize>,
}

/// A job file, ready to print.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobFile {
    /// Its text.
    pub text: String,
    /// Number of shards; `None` if the job determines it when it runs.
    pub shards: Option<usize>,
    /// Configurations that are divided among the shards, without the baselines, and without
    /// configurations that only tuned files name.
    pub configurations: usize,
}

/// Values for all templates. The texts contain no control characters.
struct JobParts {
    /// Name of the job: letters, digits, dots and hyphens.
    name: String,
    /// The sweep file as the user named it, absolute for schedulers that see the same file system.
    sweep: String,
    /// Folder of the merged results.
    out: String,
    /// The program.
    program: String,
    /// Device of the shards.
    device: DeviceChoice,
    /// Number of GPUs of a shard's engine or server.
    gpus: usize,
    /// Whether shards start servers, which would outlive a killed shard.
    starts_servers: bool,
    /// The number of shards, if it is given.
    requested: Option<usize>,
    /// The largest useful number of shards.
    most: usize,
    /// Files and folders that the sweep file names, each with its role.
    inputs: Vec<(&'static str, String)>,
}

impl JobScheduler {
    /// The job file of a sweep.
    ///
    /// # Errors
    /// When a path cannot be written into a script, or the number of shards is invalid.
    pub fn job(self, request: &JobRequest<'_>) -> Result<JobFile, TunerError> {
        let parts = JobParts::new(request, self)?;
        let fixed = parts.requested.unwrap_or(parts.most.min(MOST_SHARDS));
        let (text, shards) = match self {
            Self::Slurm => (slurm::script(&parts, fixed), Some(fixed)),
            Self::Kubernetes => (kubernetes::manifest(&parts, fixed), Some(fixed)),
            Self::Bash => (bash::script(&parts), parts.requested),
        };
        Ok(JobFile { text, shards, configurations: parts.most })
    }
}

impl std::str::FromStr for JobScheduler {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "slurm" => Ok(Self::Slurm),
            "k8s" => Ok(Self::Kubernetes),
            "bash" => Ok(Self::Bash),
            _ => Err(format!("'{text}' is not one of slurm, k8s, bash")),
        }
    }
}

impl JobParts {
    fn new(request: &JobRequest<'_>, scheduler: JobScheduler) -> Result<Self, TunerError> {
        let JobRequest { file, path, out, .. } = request;
        if let Some(shards) = request.shards.filter(|shards| !(1..=LARGEST).contains(shards)) {
            return Err(TunerError::Configuration(format!("--shards {shards}: expected 1 to {LARGEST}")));
        }
        let device = match request.device {
            Some(device) => device,
            None => file.engine.device.parse()?,
        };
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        // In a cluster's pod the file is in the mounted folder.
        let local = scheduler != JobScheduler::Kubernetes;
        let sweep = if local { absolute(path)? } else { path.file_name().map_or_else(|| path.into(), PathBuf::from) };
        Ok(Self {
            name: name(&stem),
            sweep: plain(&sweep)?,
            out: plain(&if local { absolute(out)? } else { out.to_path_buf() })?,
            program: plain(request.program)?,
            device,
            gpus: file.system.gpus().max(file.engine.tp_size),
            starts_servers: !file.system.is_in_process() && file.system.url.is_none(),
            requested: request.shards,
            most: configurations(file, path),
            inputs: inputs(file),
        })
    }

    /// The first line of each file's comment.
    fn title(&self, what: &str) -> String {
        format!("# Sweep {}: {what}. Written by spectune {}.", self.name, env!("CARGO_PKG_VERSION"))
    }

    /// The `--device` of the job. A job that requests a GPU must fail if it finds none, instead of
    /// measuring the CPU.
    fn device_flag(&self) -> &'static str {
        match self.device {
            DeviceChoice::Auto | DeviceChoice::Cuda(_) => "cuda",
            DeviceChoice::Cpu => "cpu",
            DeviceChoice::Emulator => "emulator",
        }
    }

    /// Servers of other engines run on GPUs, regardless of where acceptance is replayed.
    fn needs_gpu(&self) -> bool {
        self.starts_servers || self.device_flag() == "cuda"
    }
}

/// Quotes a text as one word for a shell.
fn quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Number of candidates of a sweep, at least 1: further shards would have nothing to measure.
fn configurations(file: &SweepFile, path: &Path) -> usize {
    // If the target is not on this machine, its default shape is unknown; it may equal one
    // candidate of the space.
    let target = schemas::paths::folder_of(path).join(&file.models.target);
    let default = default_shape(&target, &file.models.algorithm).unwrap_or(TreeShape::OFF);
    let of_one = |file: &SweepFile| {
        let nodes = NodeSource::named(&file.models.algorithm);
        let entrants = expand(&file.space, &file.knobs, &[], nodes, default).entrants;
        let candidates = entrants.iter().filter(|one| one.role == CandidateRole::Candidate).count();
        candidates.saturating_add(file.space.tables.len())
    };
    file.each_draft().iter().fold(0_usize, |sum, one| sum.saturating_add(of_one(&one.file))).max(1)
}

/// The files and folders that the sweep file names, each with its role.
fn inputs(file: &SweepFile) -> Vec<(&'static str, String)> {
    let SweepFile { models, workload, space, .. } = file;
    let one = |name, path: Option<&String>| path.filter(|path| !path.is_empty()).map(|path| (name, path.clone()));
    let named = [
        one("target", Some(&models.target)),
        one("draft", Some(&models.draft)),
        one("acceptance", models.acceptance.as_ref().map(|acceptance| &acceptance.file)),
        one("prompts", workload.prompts.as_ref()),
        one("input_ids", workload.input_ids.as_ref()),
        one("trace", workload.trace.as_ref()),
    ];
    let drafts = file.drafts.iter().filter_map(|draft| one("draft", Some(&draft.path)));
    let prompts = workload.prompt_files.iter().map(|path| ("prompts", path.clone()));
    let own_tables = file.drafts.iter().filter_map(|draft| draft.space.as_ref()).flat_map(|space| &space.tables);
    let tables = space.tables.iter().chain(own_tables).map(|path| ("table", path.clone()));
    named.into_iter().flatten().chain(drafts).chain(prompts).chain(tables).collect()
}

/// A name that is valid for SLURM, Kubernetes and every file system: lower-case letters, digits and
/// hyphens, at most 40 characters.
fn name(stem: &str) -> String {
    let kept = |character: char| if character.is_ascii_alphanumeric() { character.to_ascii_lowercase() } else { '-' };
    let name: String = stem.chars().map(kept).collect();
    // Kubernetes limits names to 63 characters, and adds its own suffixes for pods.
    let name: String = name.trim_matches('-').chars().take(40).collect();
    let name = name.trim_matches('-');
    if name.is_empty() { "sweep".into() } else { name.into() }
}

fn absolute(path: &Path) -> Result<PathBuf, TunerError> {
    std::path::absolute(path).map_err(|source| TunerError::Read { path: path.to_owned(), source })
}

/// A path as text without control characters.
fn plain(path: &Path) -> Result<String, TunerError> {
    let text = path.to_str().filter(|text| !text.chars().any(char::is_control));
    text.map(ToOwned::to_owned).ok_or_else(|| {
        let reason = "the name cannot be used in a script: it is not UTF-8, or contains a control character".into();
        TunerError::Malformed { path: path.to_owned(), reason }
    })
}
