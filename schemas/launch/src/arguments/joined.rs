//! Two flags in one word.

use schemas::flags::{self, Lookup};

use super::super::{Argument, Engine};

impl Argument {
    /// Byte offset, within the flag as written, at which a second flag starts, if both are flags of
    /// the engine.
    pub fn second_flag(&self, engine: Engine) -> Option<usize> {
        let prefix = match engine {
            Engine::Slime => "--sglang-",
            Engine::Sglang | Engine::Spectune => "--",
            Engine::Vllm => return None,
        };
        let written = self.flag.value.as_str();
        let known = |flag: &str| {
            let name = flag.strip_prefix(prefix).filter(|name| !name.starts_with('-'));
            name.is_some_and(|name| matches!(flags::lookup(name, None), Lookup::Exact(_)))
        };
        // Both halves must be flags: a single name may well contain two dashes.
        let begins = written.match_indices("--").map(|(at, _)| at).filter(|at| *at > 0);
        begins
            .into_iter()
            .find(|at| written.split_at_checked(*at).is_some_and(|(first, second)| known(first) && known(second)))
    }
}
