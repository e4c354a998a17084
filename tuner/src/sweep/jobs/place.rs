//! Reads the shard from the environment: the task of a SLURM array, or the pod of a Kubernetes
//! Indexed Job.

use std::path::{Path, PathBuf};

use crate::{TunerError, trials::shard::Shard};

/// Set by our Kubernetes template, since Kubernetes gives a pod its index but not the number of
/// completions.
pub const KUBERNETES_COUNT: &str = "SPECTUNE_SHARDS";

const SLURM_INDEX: &str = "SLURM_ARRAY_TASK_ID";
const SLURM_COUNT: &str = "SLURM_ARRAY_TASK_COUNT";
const SLURM_MIN: &str = "SLURM_ARRAY_TASK_MIN";
const SLURM_STEP: &str = "SLURM_ARRAY_TASK_STEP";
const KUBERNETES_INDEX: &str = "JOB_COMPLETION_INDEX";

/// A shard and the variables that define it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// The shard.
    pub shard: Shard,
    /// The variables with their values, for the user.
    pub because: String,
}

/// The shard given by the environment variables; `None` outside of such jobs.
///
/// # Errors
/// When variables contradict each other or are not numbers; the message names the variable.
pub fn shard(variable: impl Fn(&str) -> Option<String>) -> Result<Option<Placed>, TunerError> {
    let number = |name| number(name, variable(name));
    if let Some(task) = number(SLURM_INDEX)? {
        let (count, least) = (count(SLURM_COUNT, SLURM_INDEX, number(SLURM_COUNT)?)?, number(SLURM_MIN)?.unwrap_or(1));
        let step = number(SLURM_STEP)?.unwrap_or(1);
        if step == 0 {
            return Err(wrong(SLURM_STEP, "is 0"));
        }
        let Some(offset) = task.checked_sub(least) else {
            return Err(wrong(SLURM_INDEX, &format!("is {task}, less than the {least} of {SLURM_MIN}")));
        };
        // With gaps, the number of tasks is known, but not which place a task has among them.
        if offset % step != 0 || offset / step >= count {
            let reason = format!(
                "is {task}, which is not one of {count} tasks from {least} on in steps of {step}; an array with gaps \
                 cannot be split into shards"
            );
            return Err(wrong(SLURM_INDEX, &reason));
        }
        let because = format!("{SLURM_INDEX}={task} and {SLURM_COUNT}={count}");
        return Ok(Some(Placed { shard: Shard { index: offset / step + 1, count }, because }));
    }
    if let Some(index) = number(KUBERNETES_INDEX)? {
        let count = count(KUBERNETES_COUNT, KUBERNETES_INDEX, number(KUBERNETES_COUNT)?)?;
        if index >= count {
            return Err(wrong(KUBERNETES_INDEX, &format!("is {index}, and {KUBERNETES_COUNT} says {count}")));
        }
        let because = format!("{KUBERNETES_INDEX}={index} and {KUBERNETES_COUNT}={count}");
        return Ok(Some(Placed { shard: Shard { index: index + 1, count }, because }));
    }
    Ok(None)
}

/// The folder of a shard, next to the folder of the whole sweep.
pub fn folder(out: &Path, shard: Shard) -> PathBuf {
    let mut name = out.as_os_str().to_owned();
    name.push(format!("-shard-{}-of-{}", shard.index, shard.count));
    name.into()
}

fn number(name: &str, value: Option<String>) -> Result<Option<usize>, TunerError> {
    let Some(value) = value.filter(|value| !value.is_empty()) else { return Ok(None) };
    value.parse().map(Some).map_err(|_| wrong(name, &format!("is {value:?}, not a number")))
}

fn count(name: &str, index: &str, count: Option<usize>) -> Result<usize, TunerError> {
    match count {
        Some(0) => Err(wrong(name, "is 0")),
        Some(count) => Ok(count),
        None => Err(wrong(name, &format!("is not set, but {index} is: the number of shards is unknown"))),
    }
}

fn wrong(name: &str, reason: &str) -> TunerError {
    TunerError::Configuration(format!("{name} {reason}; give --shard I/N, or --shard 1/1 for the whole sweep"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placed(variables: &[(&str, &str)]) -> Result<Option<String>, String> {
        let get = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        shard(get).map(|placed| placed.map(|placed| placed.shard.to_string())).map_err(|error| error.to_string())
    }

    #[test]
    fn a_task_of_an_array_is_a_shard() {
        assert_eq!(placed(&[]), Ok(None));
        assert_eq!(placed(&[(SLURM_COUNT, "4"), (KUBERNETES_COUNT, "x")]), Ok(None));
        assert_eq!(placed(&[(SLURM_INDEX, "3"), (SLURM_COUNT, "4")]), Ok(Some("3/4".into())));
        let array = |task| [(SLURM_INDEX, task), (SLURM_COUNT, "3"), (SLURM_MIN, "0"), (SLURM_STEP, "5")];
        assert_eq!(placed(&array("0")), Ok(Some("1/3".into())));
        assert_eq!(placed(&array("10")), Ok(Some("3/3".into())));
        let pod = |index| [(KUBERNETES_INDEX, index), (KUBERNETES_COUNT, "2")];
        assert_eq!(placed(&pod("0")), Ok(Some("1/2".into())));
        assert_eq!(placed(&pod("1")), Ok(Some("2/2".into())));
    }

    #[test]
    fn nonsense_is_an_error_that_names_the_variable() {
        let huge = usize::MAX.to_string();
        for (variables, name) in [
            (&[(SLURM_INDEX, "3")][..], SLURM_COUNT),
            (&[(SLURM_INDEX, "x"), (SLURM_COUNT, "4")], SLURM_INDEX),
            (&[(SLURM_INDEX, "-1"), (SLURM_COUNT, "4")], SLURM_INDEX),
            (&[(SLURM_INDEX, "5"), (SLURM_COUNT, "4")], SLURM_INDEX),
            (&[(SLURM_INDEX, "0"), (SLURM_COUNT, "4")], SLURM_INDEX),
            (&[(SLURM_INDEX, &huge), (SLURM_COUNT, &huge), (SLURM_MIN, "0")], SLURM_INDEX),
            (&[(SLURM_INDEX, "2"), (SLURM_COUNT, "4"), (SLURM_STEP, "2")], SLURM_INDEX),
            (&[(SLURM_INDEX, "1"), (SLURM_COUNT, "0")], SLURM_COUNT),
            (&[(SLURM_INDEX, "1"), (SLURM_COUNT, "1"), (SLURM_STEP, "0")], SLURM_STEP),
            (&[(SLURM_INDEX, "1"), (SLURM_COUNT, "1"), (SLURM_MIN, "one")], SLURM_MIN),
            (&[(KUBERNETES_INDEX, "1")], KUBERNETES_COUNT),
            (&[(KUBERNETES_INDEX, "2"), (KUBERNETES_COUNT, "2")], KUBERNETES_INDEX),
            (&[(KUBERNETES_INDEX, "0"), (KUBERNETES_COUNT, "two")], KUBERNETES_COUNT),
        ] {
            let error = placed(variables).expect_err(name);
            assert!(error.starts_with(name) && error.contains("--shard 1/1"), "{error}");
        }
    }

    #[test]
    fn the_folder_of_a_shard_lies_next_to_the_whole() {
        let folder = folder(Path::new("results/demo"), Shard { index: 2, count: 8 });
        assert_eq!(folder, Path::new("results/demo-shard-2-of-8"));
    }
}
