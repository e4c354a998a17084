//! Asks the driver's `nvidia-smi` about GPUs and the processes on them.

use std::process::{Command, Stdio};

/// The lines for a query such as `--query-gpu=index,memory.free`: one for each GPU or process,
/// fields separated by commas, without units. `None` without a GPU or without the program.
pub fn query(what: &str) -> Option<String> {
    let mut command = Command::new("nvidia-smi");
    command.args([what, "--format=csv,noheader,nounits"]).stdin(Stdio::null());
    let output = command.output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}
