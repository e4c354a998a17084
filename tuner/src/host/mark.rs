//! Disturbances of trials.

use serde::{Deserialize, Serialize};

/// Something that disturbed a trial.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "mark")]
pub enum TrialMark {
    /// Some steps took far longer than others of their kind.
    Stalled {
        /// Stalled share of the wall time.
        of_time: f64,
        /// Stalled share of the steps.
        of_steps: f64,
        /// Whether too few steps ran without a stall; the trial is then excluded from comparisons.
        spoiled: bool,
    },
    /// The hypervisor ran other virtual machines.
    Stolen {
        /// Share of the processors' time.
        share: f64,
    },
    /// Threads of this process were ready but had to wait for a processor.
    WaitedForProcessor {
        /// Thread-seconds of waiting / seconds of the trial.
        share: f64,
    },
    /// Other processes kept the processors busy.
    BusyElsewhere {
        /// Share of the processors' time.
        share: f64,
    },
    /// The GPU throttled its clock because of heat, or for a reason other than the power limit
    /// under load.
    Throttled {
        /// Share of the wall time.
        share: f64,
    },
    /// Other processes used the same GPU.
    SharedGpu {
        /// Number of these processes.
        processes: u32,
    },
}

impl TrialMark {
    /// As a phrase.
    pub fn words(self) -> String {
        let percent = |share: f64| format!("{:.0}%", share * 100.0);
        match self {
            Self::Stalled { of_time, of_steps, spoiled } => format!(
                "{} of its steps stalled, {} of its time{}",
                percent(of_steps),
                percent(of_time),
                if spoiled { ": it is excluded" } else { "" }
            ),
            Self::Stolen { share } => {
                format!("{} of the processors' time was stolen by the hypervisor", percent(share))
            }
            Self::WaitedForProcessor { share } => {
                format!("its threads waited for a processor for {} of its time", percent(share))
            }
            Self::BusyElsewhere { share } => format!("other processes used {} of the processors", percent(share)),
            Self::Throttled { share } => format!("the GPU's clock was throttled for {} of its time", percent(share)),
            Self::SharedGpu { processes: 1 } => "another process used the GPU".into(),
            Self::SharedGpu { processes } => format!("{processes} other processes used the GPU"),
        }
    }
}
