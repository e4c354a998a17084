//! `spectune supervise`, hidden: ends servers if the process that started it is killed. Only other commands start it.

use std::io::{stdin, stdout};

use external::supervisor::{Program, detach, supervise};

use crate::exit::Exit;

/// The command's name.
const NAME: &str = "supervise";

/// How it is started; `None` if this program's file is unknown.
pub fn program() -> Option<Program> {
    let path = std::env::current_exe().ok()?;
    Some(Program { path, name: "spectune-supervisor".into(), args: vec![NAME.into()], env: Vec::new() })
}

/// Runs the command.
pub fn run() -> anyhow::Result<Exit> {
    detach();
    supervise(stdin().lock(), stdout())?;
    Ok(Exit::Fine)
}
