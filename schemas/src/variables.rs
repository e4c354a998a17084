//! The environment variables that the engines read, by version.
//!
//! The tables were read from wheels on PyPI by `schemas/scripts/read_variables.py`; the first line
//! of each names the versions. They have every name that a version's Python files contain: other
//! languages, plugins and forks have more.

use std::sync::OnceLock;

use crate::{engines::Engine, text::distance, version::EngineVersion};

/// An environment variable that some version of an engine reads.
#[derive(Clone, Copy, Debug)]
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// First version that reads it, if an older wheel does not.
    pub since: Option<EngineVersion>,
    /// First version that no longer reads it.
    pub until: Option<EngineVersion>,
    /// The variable or flag that replaced it, if the engine names one.
    pub now: Option<&'static str>,
}

/// Maximum edit distance at which a name counts as a typo of a variable.
const SLIP: usize = 2;

/// The fewest characters that a name has for each edit, so that short names of the user's own do
/// not count as typos.
const PER_EDIT: usize = 10;

/// The variables that an engine reads, sorted by name. slime starts SGLang, and spectune's engine
/// reads none of these.
pub fn variables(engine: Engine) -> &'static [Variable] {
    static SGLANG: OnceLock<Vec<Variable>> = OnceLock::new();
    static VLLM: OnceLock<Vec<Variable>> = OnceLock::new();
    match engine {
        Engine::Sglang | Engine::Slime => SGLANG.get_or_init(|| read(include_str!("variables/sglang.tsv"))),
        Engine::Vllm => VLLM.get_or_init(|| read(include_str!("variables/vllm.tsv"))),
        Engine::Spectune => &[],
    }
}

/// The variable of exactly this name, in any version.
pub fn variable(engine: Engine, name: &str) -> Option<&'static Variable> {
    let all = variables(engine);
    all.get(all.binary_search_by(|one| one.name.cmp(name)).ok()?)
}

/// The variable of which an unknown name is a typo.
pub fn nearest(engine: Engine, name: &str) -> Option<&'static Variable> {
    let near = variables(engine).iter().filter(|one| one.name.len().abs_diff(name.len()) <= SLIP);
    let near = near.map(|one| (distance(one.name, name), one)).min_by_key(|(far, one)| (*far, one.name));
    let slip = near.filter(|(far, one)| *far <= SLIP && far * PER_EDIT < one.name.len()).map(|(_, one)| one);
    slip.or_else(|| variables(engine).iter().find(|one| is_written_out(one.name, name)))
}

/// Whether two names of several words differ in one, which one of them shortens: `…_CONTEXT_LEN`
/// and `…_CONTEXT_LENGTH`.
fn is_written_out(known: &str, name: &str) -> bool {
    let (own, other): (Vec<&str>, Vec<&str>) = (known.split('_').collect(), name.split('_').collect());
    let mut differ = own.iter().zip(&other).filter(|(one, other)| one != other);
    let one = differ.next();
    let shortens = |(one, other): (&&str, &&str)| {
        one.len().min(other.len()) > 2 && (one.starts_with(*other) || other.starts_with(*one))
    };
    own.len() == other.len() && own.len() > 3 && one.is_some_and(shortens) && differ.next().is_none()
}

fn read(table: &'static str) -> Vec<Variable> {
    table.lines().filter(|line| !line.starts_with('#')).filter_map(row).collect()
}

fn row(line: &'static str) -> Option<Variable> {
    let mut columns = line.split('\t');
    let name = columns.next().filter(|name| !name.is_empty())?;
    let since = columns.next()?.parse().ok();
    let until = columns.next()?.parse().ok();
    let now = columns.next().filter(|now| *now != "-");
    Some(Variable { name, since, until, now })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_read_and_sorted() {
        let tables = [
            (Engine::Sglang, include_str!("variables/sglang.tsv")),
            (Engine::Vllm, include_str!("variables/vllm.tsv")),
        ];
        for (engine, table) in tables {
            let all = variables(engine);
            assert_eq!(all.len(), table.lines().filter(|line| !line.starts_with('#')).count());
            assert!(all.windows(2).all(|pair| pair[0].name < pair[1].name));
            assert!(all.iter().all(|one| one.until.is_none_or(|until| one.since.is_none_or(|since| since < until))));
        }
    }

    #[test]
    fn names_with_a_slip_are_found() {
        let near = |engine: Engine, name: &str| nearest(engine, name).map(|one| one.name);
        assert_eq!(near(Engine::Vllm, "VLLM_USE_V2_MODEL_RUNER"), Some("VLLM_USE_V2_MODEL_RUNNER"));
        assert_eq!(near(Engine::Slime, "SGLANG_RAGGED_VERFIY_MODE"), Some("SGLANG_RAGGED_VERIFY_MODE"));
        assert_eq!(near(Engine::Vllm, "VLLM_PORTS"), None);
        assert_eq!(near(Engine::Sglang, "SGLANG_RAGGED"), None);
        assert_eq!(near(Engine::Spectune, "SGLANG_RAGGED_VERFIY_MODE"), None);
    }
}
