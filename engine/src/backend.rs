//! The interface of a device to the scheduler, at the granularity of a round.
//!
//! The interface carries no tensors: slots, pages and tokens go in, tokens come out. So a GPU
//! backend can keep all state on the device, hold a whole round (draft, verify, accept, extend) in
//! one graph, and let the host launch round n + 1 before it reads round n. The target's states that
//! replay keeps on disk ([`TargetStates`]) are bytes in a format that only the backend knows.

mod choice;
pub(crate) mod confidence;
pub mod cpu;
pub mod cuda;
mod decode;
mod describe;
pub(crate) mod expert_reads;
mod measure;
mod prefill;
mod replay;
mod slot_table;
mod slots;
pub(crate) mod state_places;
mod states;
pub(crate) mod windows;

pub(crate) use self::prefill::{expect_finite, first_token};
pub use self::{
    decode::{Decode, Drafted, MAX_PENDING_DRAFT, Round, RoundOutput, RoundTiming, Ticket, Yield},
    describe::{Capacity, Describe, DeviceInfo, WindowPages},
    expert_reads::{ExpertReads, LayerReads},
    measure::Measure,
    prefill::{Prefill, PrefillChunk},
    replay::{ProbabilityQuery, Replay, ReplayPlace},
    slots::{PageId, Slot, Slots, Snapshot, WindowChange, WindowPage},
    states::{StateRow, TargetStates},
};
use crate::{error::EngineError, options::EngineOptions};
pub use crate::{
    token::{ProducedToken, TokenLogprobs},
    tree::{DraftTree, LookedUp, Pool, RequiredTree},
    verify_plan::{VerifyPlan, check_budget, inner_rows, target_passes},
};
pub use kernels::device::GpuState;

/// Which weights are replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exchange {
    /// Only the draft's.
    Draft,
    /// The target's and the draft's, since they may share some.
    All,
}

/// A device that holds a target, a draft and their caches. Each use of one is a trait of its own.
pub trait Backend: Prefill + Decode + Replay + Measure {
    /// Commits the memory of the caches now if it is only reserved, so that it neither grows nor
    /// runs out later. Only while no slot is open.
    fn commit_memory(&mut self) {}

    /// Replaces the loaded weights with those of the options' folders; the models must have the
    /// same description. Open slots continue with their caches as the old weights computed them.
    /// Returns false, with nothing changed, if this backend cannot do it.
    ///
    /// # Errors
    /// When the weights cannot be read or their description differs; the loaded ones stay.
    fn exchange(&mut self, _options: &EngineOptions, _which: Exchange) -> Result<bool, EngineError> {
        Ok(false)
    }

    /// Ends the thread of one rank of a group as if it had crashed, for tests. No effect on a
    /// single device.
    fn kill_rank(&mut self, _rank: usize) {}
}
