//! Autotuning of GEMM kernels inside whole rounds.
//!
//! Kernels that are equally fast alone differ within a round: our own start before the previous
//! kernel ends, those of the library do not, and the memory traffic of one kernel delays the next.
//! So the kernels that a search found about equally fast are each captured in the round that needs
//! them, and rounds are timed alternately.

use std::time::Duration;

use kernels::device::{
    DeviceEvent, Graph,
    matmul::{Fastest, Matmul},
};

use super::{CudaBackend, GraphKey};
use crate::{backend::PageId, error::EngineError, request::SamplingParams};

/// Maximum context length of the synthetic requests in timed rounds.
const CONTEXT: usize = 512;
/// Number of rounds timed together, back to back as in serving.
const TOGETHER: u32 = 4;
/// Minimum and maximum number of alternating timings of two graphs.
const LEAST_TURNS: usize = 2;
const MOST_TURNS: usize = 6;
/// Maximum device time for comparing two graphs.
const BUDGET: Duration = Duration::from_millis(200);
/// Fraction by which a round must be shorter than the previous best; less is noise.
const GAIN: f64 = 0.002;
/// Fraction by which a round may be longer and still be timed again.
const BEHIND: f64 = 0.01;

/// One of two graphs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GraphCandidate {
    Known,
    New,
}

impl CudaBackend {
    /// Decides which kernels run a round's GEMMs, and returns its graph with them. Overwrites slots
    /// but writes to no page of a request. While requests are open, the kernel that is fastest
    /// alone is kept.
    pub(super) fn tune_in_graph(&mut self, key: GraphKey, graph: Graph) -> Result<Graph, EngineError> {
        let undecided = self.machine.gemm.undecided()?;
        // Synthetic requests overwrite slots and pages, so no real one may be open.
        let is_idle = self.flights.is_empty() && self.slots.all_open().next().is_none();
        let races = is_idle && key.part.is_none() && !undecided.is_empty();
        let best = match races {
            true => self.with_synthetic_requests(key.batch, |backend| backend.compare(key, graph, undecided))?,
            false => graph,
        };
        self.machine.gemm.settle();
        Ok(best)
    }

    /// Compares kernels product by product, starting with the largest reads, on a synthetic batch.
    fn compare(
        &self,
        key: GraphKey,
        mut best: Graph,
        undecided: Vec<(Matmul, Vec<Fastest>)>,
    ) -> Result<Graph, EngineError> {
        let products = &self.machine.gemm;
        let mut chosen: Vec<Fastest> = undecided.iter().map(|(_, finalists)| finalists[0]).collect();
        // The gain from overlapping with a predecessor shows only if the neighbours overlap too, so
        // all of them are tried together first.
        let own: Vec<Fastest> = undecided.iter().map(|(_, finalists)| own_or_first(finalists)).collect();
        if own != chosen
            && undecided.iter().zip(&own).all(|((matmul, _), own)| products.choose(*matmul, *own))
            && let Some(graph) = self.faster(key, &best)?
        {
            (best, chosen) = (graph, own);
        }
        // The trial of all together leaves its kernels chosen, also if it lost.
        undecided.iter().zip(&chosen).for_each(|((matmul, _), chosen)| _ = products.choose(*matmul, *chosen));
        for ((matmul, finalists), chosen) in undecided.into_iter().zip(&mut chosen) {
            for finalist in finalists {
                if finalist == *chosen || !products.choose(matmul, finalist) {
                    continue;
                }
                if let Some(graph) = self.faster(key, &best)? {
                    (best, *chosen) = (graph, finalist);
                }
            }
            products.choose(matmul, *chosen);
        }
        Ok(best)
    }

    /// The graph of the round with the currently chosen kernels, if it is faster than `known`.
    fn faster(&self, key: GraphKey, known: &Graph) -> Result<Option<Graph>, EngineError> {
        // Loads kernels that have not run before.
        self.run_eagerly(key)?;
        // If memory is short, there may be no room for another graph, on any of the ranks.
        let recorded = self.recorded(key).ok();
        if self.machine.least(recorded.is_some().into())? == 0 {
            return Ok(None);
        }
        let Some(graph) = recorded else { return Ok(None) };
        let marks = [self.device.event()?, self.device.event()?];
        let is_faster = is_faster(|contender| match contender {
            GraphCandidate::Known => self.timed(key.batch, known, &marks),
            GraphCandidate::New => self.timed(key.batch, &graph, &marks),
        })?;
        Ok(is_faster.then_some(graph))
    }

    /// Runs `work` on a synthetic batch, while no request is open. The requests read from pages as
    /// real ones do; their writes go to the padding page.
    pub(super) fn with_synthetic_requests<R>(
        &mut self,
        batch: usize,
        work: impl FnOnce(&Self) -> Result<R, EngineError>,
    ) -> Result<R, EngineError> {
        self.make_up_requests(batch)?;
        // The slots are restored before an error is returned.
        let done = work(self);
        self.step_back()?;
        done
    }

    fn make_up_requests(&mut self, batch: usize) -> Result<(), EngineError> {
        let page_size = self.machine.capacity.page_size;
        let pages = self.context() / page_size;
        for at in 0..batch {
            // Requests may share pages if there are few: their outputs are not used, only the time.
            let page = |number| PageId(((at * pages + number) % self.machine.capacity.pages) as u32);
            let pages: Vec<PageId> = (0..pages).map(page).collect();
            self.write_slot(at, &SamplingParams::default(), &pages, pages.len() * page_size)?;
        }
        let slots: Vec<i32> = (0..batch as i32).collect();
        // The next real round sends its own slots.
        self.sent.clear();
        self.device.write(self.round.slot.slice(), &slots)?;
        if let Some(draft) = &self.machine.draft {
            // With the initial zeros all proposals would be equal.
            let bytes = batch * draft.state_width() * self.options.element.bytes();
            self.machine.kernels.fill_random(self.machine.slots.recurrent.range(0..bytes), 1.0, 0)?;
        }
        Ok(())
    }

    /// Context length of a synthetic request: whole pages, with free space after them.
    fn context(&self) -> usize {
        let page_size = self.machine.capacity.page_size;
        // Half of it, since the timed rounds lengthen the sequences.
        let room = self.machine.slots.table_width.min(self.machine.capacity.pages) * page_size / 2;
        CONTEXT.min(room) / page_size * page_size
    }

    /// Average time of a graph over requests of that length.
    pub(super) fn timed(
        &self,
        batch: usize,
        graph: &Graph,
        [begin, end]: &[DeviceEvent; 2],
    ) -> Result<Duration, EngineError> {
        // Rounds lengthen the sequences; every timing starts from the same context.
        self.device.write(self.machine.slots.length.slice(), &vec![self.context() as i32; batch])?;
        self.device.record(begin)?;
        (0..TOGETHER).try_for_each(|_| self.device.run(graph))?;
        self.device.record(end)?;
        end.wait()?;
        // Rank 0's time, so that all ranks come to the same decision.
        Ok(self.machine.agree(end.since(begin)? / TOGETHER)?)
    }
}

/// Our own kernel, if it is among the finalists; else the first.
fn own_or_first(finalists: &[Fastest]) -> Fastest {
    finalists.iter().copied().find(|one| matches!(one, Fastest::Own(_))).unwrap_or(finalists[0])
}

/// Whether a new graph is faster than a known one, timing both alternately.
fn is_faster<E>(mut time: impl FnMut(GraphCandidate) -> Result<Duration, E>) -> Result<bool, E> {
    // The first rounds load the graph.
    time(GraphCandidate::New)?;
    let (mut known, mut new) = (Vec::new(), Vec::new());
    let mut spent = Duration::ZERO;
    let mut lead = 0.0;
    while known.len() < MOST_TURNS {
        // The order alternates, since a device slows down as it warms up.
        let mut pair = [(GraphCandidate::Known, &mut known), (GraphCandidate::New, &mut new)];
        let is_odd = !pair[0].1.len().is_multiple_of(2);
        pair.rotate_left(usize::from(is_odd));
        for (contender, times) in pair {
            let round = time(contender)?;
            spent += round * TOGETHER;
            times.push(round);
        }
        lead = 1.0 - shorter_half(&mut new) / shorter_half(&mut known);
        if known.len() >= LEAST_TURNS && (lead < -BEHIND || spent >= BUDGET) {
            break;
        }
    }
    Ok(lead > GAIN)
}

/// The average of the shorter half of the times: disturbances only make rounds longer.
fn shorter_half(times: &mut [Duration]) -> f64 {
    times.sort_unstable();
    let half = &times[..times.len().div_ceil(2)];
    half.iter().map(Duration::as_secs_f64).sum::<f64>() / half.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether the new graph is faster, and the number of timings, for graphs whose runs take these
    /// microseconds; the last value repeats.
    fn check(known: &[u64], new: &[u64]) -> (bool, usize) {
        let mut runs = [0, 0];
        let found = is_faster(|contender| {
            let (times, at) = match contender {
                GraphCandidate::Known => (known, 0),
                GraphCandidate::New => (new, 1),
            };
            let time = times[runs[at].min(times.len() - 1)];
            runs[at] += 1;
            Ok::<_, ()>(Duration::from_micros(time))
        });
        (found.expect("times do not fail"), runs.iter().sum())
    }

    #[test]
    fn a_shorter_round_is_faster() {
        assert_eq!(check(&[1000], &[990]), (true, 13));
        assert_eq!(check(&[1000], &[999]), (false, 13));
        assert_eq!(check(&[1000], &[1001]), (false, 13));
    }

    #[test]
    fn one_that_is_far_behind_does_not_run_for_long() {
        assert_eq!(check(&[1000], &[1020]), (false, 5));
    }

    #[test]
    fn runs_that_were_disturbed_do_not_decide() {
        assert!(check(&[1000, 990], &[2000, 2000, 970]).0);
        assert!(!check(&[2000, 2000, 970], &[1000]).0);
    }

    #[test]
    fn long_rounds_run_less_often() {
        assert_eq!(check(&[60_000], &[59_000]), (true, 5));
    }
}
