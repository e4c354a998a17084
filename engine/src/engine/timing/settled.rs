//! Runs rounds, and counts those of a device that has settled.
//!
//! A GPU under load soon draws all the power that it may, and lowers its clock: the rounds of an idle card are up to 5%
//! faster for a tenth of a second, which is no time that a server sees.

use std::time::{Duration, Instant};

use super::{RoundTimes, TimingPoint, WARM_UP, request};
use crate::{
    engine::Engine,
    error::EngineError,
    request::{Event, RequestId},
};

/// Time under load after which a device's clock is what it stays on average (H200, docs/notes/tuner.md).
const MOST_SETTLING: Duration = Duration::from_millis(150);

/// The same in s for each byte of the target's weights, where that is less: small models leave a device waiting for
/// launches, draw little power, and are timed in a few ms.
const SETTLING_PER_BYTE: f64 = 10e-12;

impl Engine {
    /// Times rounds of a settled device: `rounds` of them run, and where more than half run before, others until half have
    /// been timed.
    pub(super) fn time(
        &mut self,
        point: TimingPoint,
        prompts: &[Vec<u32>],
        rounds: usize,
    ) -> Result<RoundTimes, EngineError> {
        let mut times = RoundTimes { point, context: 0.0, device: Vec::new(), wall: Vec::new(), prefill: None };
        let mut unsettled = self.settling();
        self.run_rounds(&mut times, prompts, rounds, &mut unsettled, rounds)?;
        let half = rounds.div_ceil(2);
        while times.wall.len() < half {
            self.run_rounds(&mut times, prompts, rounds, &mut unsettled, half)?;
        }
        times.context /= times.wall.len() as f64;
        Ok(times)
    }

    /// How long a device is under load until its clock is what it stays.
    fn settling(&self) -> Duration {
        Duration::from_secs_f64(self.traffic().target as f64 * SETTLING_PER_BYTE).min(MOST_SETTLING)
    }

    /// Runs at most `rounds` rounds, besides those that warm up, and adds their times, and their contexts to the sum there,
    /// once the device has been under load for what is `unsettled`; until `enough` have been timed.
    fn run_rounds(
        &mut self,
        times: &mut RoundTimes,
        prompts: &[Vec<u32>],
        rounds: usize,
        unsettled: &mut Duration,
        enough: usize,
    ) -> Result<(), EngineError> {
        let point = times.point;
        let new = self.new_tokens(point.batch, rounds);
        let ids: Vec<RequestId> =
            prompts.iter().map(|prompt| self.submit(request(prompt, new))).collect::<Result<_, _>>()?;
        let mut produced = vec![0; ids.len()];
        let mut skip = WARM_UP + self.capacity().rounds_in_flight;
        let mut last = None;
        let mut ran = 0;
        while ran < rounds && times.wall.len() < enough {
            let whole_batch = produced.iter().all(|count| *count > 0);
            let held: usize = prompts.iter().map(Vec::len).sum::<usize>() + produced.iter().sum::<usize>();
            let counted = self.statistics().rounds;
            for event in self.step()? {
                match event {
                    Event::Tokens { request, tokens, .. } => {
                        if let Some(at) = ids.iter().position(|id| *id == request) {
                            produced[at] += tokens.len();
                        }
                    }
                    Event::Finished { .. } => return Err(self.no_room(point)),
                }
            }
            if self.statistics().waiting > 0 {
                return Err(self.no_room(point));
            }
            if self.statistics().rounds == counted {
                continue;
            }
            let now = Instant::now();
            let since = last.replace(now).map(|last| now - last);
            if !whole_batch {
                continue;
            }
            let settled = unsettled.is_zero();
            *unsettled = unsettled.saturating_sub(since.unwrap_or_default());
            if skip > 0 {
                skip -= 1;
                continue;
            }
            ran += 1;
            if settled && let (Some(wall), Some(device)) = (since, self.statistics().last_round) {
                times.wall.push(wall);
                times.device.push(device);
                times.context += held as f64 / ids.len() as f64;
            }
        }
        self.end_all()
    }
}
