//! `spectune selftest`: checks the engine's invariants and its kernels on this machine.

use engine::selftest::{self, Check, Scope};

use crate::{exit::Exit, terminal};

const EXAMPLES: &str = "\
Examples:
  spectune selftest
  spectune selftest --device cuda:0
  spectune selftest --tp-size 2
  spectune selftest --tp-size 2 --draft qwen3_5
  spectune selftest --device cuda:0 --draft DFLASH --draft texts
  compute-sanitizer --tool memcheck spectune selftest --device cuda:0 --quick
  compute-sanitizer --tool racecheck spectune selftest --device cuda:0 --kernel top_k";

/// Check the engine's invariants and kernels on this machine's device.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Device to run on: auto, cpu, cuda or cuda:N
    #[arg(long, default_value = "auto")]
    device: engine::DeviceChoice,
    /// Check a model split over this many GPUs, starting at the device, and the communication
    /// between them
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=8), conflicts_with = "kernel")]
    tp_size: u8,
    /// Run all kernel checks and a few engine checks
    #[arg(long)]
    quick: bool,
    /// Run only kernel checks whose name contains this; may be given several times
    #[arg(long, value_name = "TEXT", conflicts_with = "quick")]
    kernel: Vec<String>,
    /// Run only engine checks of drafts and targets whose name contains this, such as DFLASH, or
    /// texts; may be given several times
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["quick", "kernel"])]
    draft: Vec<String>,
}

impl Arguments {
    fn scope(&self) -> Scope<'_> {
        match (&self.kernel[..], &self.draft[..]) {
            ([], []) if self.quick => Scope::Quick,
            ([], []) => Scope::Whole,
            ([], names) => Scope::Engines(names),
            (names, _) => Scope::Kernels(names),
        }
    }
}

/// Runs the command.
pub fn run(arguments: Arguments) -> anyhow::Result<Exit> {
    let (mut failed, mut all) = (0, 0);
    let mut show = |check: &Check| {
        let (word, why) = match &check.failure {
            None => ("ok", String::new()),
            Some(reason) => ("FAILED", format!(": {reason}")),
        };
        failed += usize::from(check.failure.is_some());
        all += 1;
        terminal::print(&format!("{word:6} {}{why}\n", check.name))
    };
    let mut shown = Ok(());
    selftest::run(arguments.device, arguments.tp_size.into(), arguments.scope(), &mut |check| {
        if shown.is_ok() {
            shown = show(&check);
        }
    })?;
    shown?;
    terminal::print(&match failed {
        0 => format!("all {all} checks passed\n"),
        _ => format!("{failed} of {all} checks FAILED\n"),
    })?;
    Ok(if failed == 0 { Exit::Fine } else { Exit::Failure })
}
