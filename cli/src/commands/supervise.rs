//! `spectune supervise`, hidden: ends servers if the process that started it is killed. Only other
//! commands start it.

use std::{
    io::{stdin, stdout},
    path::PathBuf,
};

use external::supervisor::{SupervisorProgram, detach, supervise};

use crate::{exit::Exit, interrupt};

/// The command's name.
pub const NAME: &str = "supervise";

/// How it is started; `None` if this program's file is unknown.
pub fn program() -> Option<SupervisorProgram> {
    // By this name the system does not list it as `spectune`, so a kill of all processes of that
    // name leaves it. It also works if the program's file has been replaced meanwhile.
    let own = PathBuf::from("/proc/self/exe");
    let path = if own.exists() { own } else { std::env::current_exe().ok()? };
    Some(SupervisorProgram { path, name: "spectune-supervisor".into(), args: vec![NAME.into()], env: Vec::new() })
}

/// Runs the command.
pub fn run() -> anyhow::Result<Exit> {
    detach();
    // It ends with the process that it watches, and no signal but SIGKILL ends it before.
    interrupt::leave();
    interrupt::listen()?;
    supervise(stdin().lock(), stdout())?;
    Ok(Exit::Fine)
}
