//! A `python3` on the path for which `-m sglang.launch_server` is `spectune serve`, and a `docker`
//! that runs commands here: so the commands that users write for SGLang start real servers in
//! tests.

use std::{env, path::Path, process::Command};

/// What starts SGLang, as a user writes it.
pub const LAUNCH: &str = "python3 -m sglang.launch_server";

/// Puts the `python3` of the tests first on the path of a command and of all that it starts.
pub fn with_python(command: &mut Command) -> &mut Command {
    let bin = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/support/bin");
    let bin = bin.canonicalize().expect("the folder of the tests' python3");
    let inherited = env::var_os("PATH").unwrap_or_default();
    let path = env::join_paths(std::iter::once(bin).chain(env::split_paths(&inherited)));
    let program = env!("CARGO_BIN_EXE_spectune");
    command.env("PATH", path.expect("no colon in the path of the repository")).env("SPECTUNE_UNDER_TEST", program)
}
