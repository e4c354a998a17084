//! Signs that a text changes the engine, or runs someone else's.

use super::clones::engine_of_sources;
use crate::{Engine, Launch, forks, images::is_own_source};

/// Whether a text patches an engine, or takes it from a build of a pull request.
pub(super) fn speaks_of_changes(text: &str) -> bool {
    const WORDS: [&str; 5] = ["git apply", "patch -p", "patches/", "/whl/pr/", ":dev-pr-"];
    WORDS.iter().any(|word| text.contains(word))
}

/// Whether a text installs an engine from the sources of someone else:
/// `git clone https://github.com/me/sglang`.
pub(super) fn installs_copy(text: &str, engine: Engine) -> bool {
    let is_copy = |word: &str| {
        let address = word.trim_start_matches("git+").split(['@', '#']).next().unwrap_or_default();
        let address = address.trim_matches(['"', '\'', '`', ')', ',']);
        address.contains("github.com/") && engine_of_sources(address) == Some(engine) && !is_own_source(address)
    };
    let installs = |line: &&str| line.contains("clone ") || line.contains("git+http");
    text.contains("github.com/") && text.lines().filter(installs).any(|line| line.split_whitespace().any(is_copy))
}

/// Whether a launch has a flag that alone identifies a fork.
pub(super) fn has_flag_of_fork(launch: &Launch) -> bool {
    let mut names = launch.arguments.iter().filter_map(|argument| argument.flag.value.strip_prefix("--"));
    names.any(|name| forks::has_prefix(launch.engine, name))
}
