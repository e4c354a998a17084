//! Runs rounds, and counts only those after the device's clocks have settled.
//!
//! A GPU under load soon reaches its power limit and lowers its clock: for a tenth of a second,
//! rounds of an idle card are up to 5% faster, which a server never experiences. The clock rises
//! again far more slowly: after heavier work (larger trees, a search for kernels) rounds are up to
//! 13% slower than they become within a second.

use std::time::{Duration, Instant};

use super::{RoundTimes, TimingPoint, WARM_UP, request};
use crate::{
    engine::Engine,
    error::EngineError,
    request::{Event, RequestId},
};

/// Time under load for which a device's clock must stay the same, and minimum time for which its
/// rounds are timed (H200, docs/notes/tuner.md).
const MOST_SETTLING: Duration = Duration::from_millis(150);

/// The same in seconds per byte of the target's weights, if that is less: small models leave a
/// device waiting for launches, draw little power, and are timed within a few ms.
const SETTLING_PER_BYTE: f64 = 10e-12;

/// After this multiple of the settling time, a device whose rounds still vary is used as it is.
const PATIENCE: u32 = 6;

/// Maximum relative difference between the rounds of the second half of that time and those of the
/// first.
const STEADY: f64 = 0.005;

/// A device's rounds of a point so far.
struct Settling {
    /// Time for which rounds must be steady.
    settling: Duration,
    /// The rounds until they were steady.
    before: Vec<Duration>,
    settled: bool,
}

impl Settling {
    fn new(settling: Duration) -> Self {
        Self { settling, before: Vec::new(), settled: settling.is_zero() }
    }

    /// Adds a round; returns whether the device had settled before it.
    fn ran(&mut self, round: Duration) -> bool {
        if self.settled {
            return true;
        }
        self.before.push(round);
        self.settled = is_settled(&self.before, self.settling);
        false
    }
}

/// Whether rounds are steady, or have run for so long that they will not become steady.
fn is_settled(rounds: &[Duration], settling: Duration) -> bool {
    if rounds.iter().sum::<Duration>() >= settling * PATIENCE {
        return true;
    }
    // The last rounds that together take half of the settling time.
    let last = |rounds: &[Duration]| {
        let mut together = Duration::ZERO;
        let until_half = rounds.iter().rev().take_while(|round| {
            let more = together < settling / 2;
            together += **round;
            more
        });
        until_half.count()
    };
    let (rest, second) = rounds.split_at(rounds.len() - last(rounds));
    let first = &rest[rest.len() - last(rest)..];
    let whole = |half: &[Duration]| half.iter().sum::<Duration>() >= settling / 2;
    let mean = |half: &[Duration]| half.iter().sum::<Duration>().as_secs_f64() / half.len() as f64;
    whole(first) && whole(second) && (mean(second) / mean(first) - 1.0).abs() <= STEADY
}

impl Engine {
    /// Times rounds of a settled device: runs `rounds` of them, and further ones until at least
    /// half as many have been timed, for at least the settling time.
    pub(super) fn time(
        &mut self,
        point: TimingPoint,
        prompts: &[Vec<u32>],
        rounds: usize,
    ) -> Result<RoundTimes, EngineError> {
        let mut times = RoundTimes { point, context: 0.0, device: Vec::new(), wall: Vec::new(), prefill: None };
        let mut load = Settling::new(self.settling());
        let least = load.settling;
        let enough = |timed: &[Duration]| timed.len() >= rounds.div_ceil(2) && timed.iter().sum::<Duration>() >= least;
        self.run_rounds(&mut times, prompts, rounds, &mut load, &|_| false)?;
        while !enough(&times.wall) {
            self.run_rounds(&mut times, prompts, rounds, &mut load, &enough)?;
        }
        times.context /= times.wall.len() as f64;
        Ok(times)
    }

    /// Time for which a device's rounds must be steady.
    fn settling(&self) -> Duration {
        Duration::from_secs_f64(self.cost().target.bytes(1) * SETTLING_PER_BYTE).min(MOST_SETTLING)
    }

    /// Runs at most `rounds` rounds after those for warm-up. Once the device has settled, adds
    /// their times to `times`, and their contexts to its sum, until the timed rounds are `enough`.
    fn run_rounds(
        &mut self,
        times: &mut RoundTimes,
        prompts: &[Vec<u32>],
        rounds: usize,
        load: &mut Settling,
        enough: &dyn Fn(&[Duration]) -> bool,
    ) -> Result<(), EngineError> {
        let point = times.point;
        let new = self.new_tokens(point.batch, rounds);
        let ids: Vec<RequestId> =
            prompts.iter().map(|prompt| self.submit(request(prompt, new))).collect::<Result<_, _>>()?;
        let mut produced = vec![0; ids.len()];
        let mut skip = WARM_UP + self.capacity().rounds_in_flight;
        let mut last = None;
        let mut ran = 0;
        while ran < rounds && !enough(&times.wall) {
            let whole_batch = produced.iter().all(|count| *count > 0);
            let held: usize = prompts.iter().map(Vec::len).sum::<usize>() + produced.iter().sum::<usize>();
            let counted = self.statistics().rounds;
            let mut ended = false;
            self.step(&mut |event| match event {
                Event::Tokens { request, tokens, .. } => {
                    if let Some(at) = ids.iter().position(|id| *id == request) {
                        produced[at] += tokens.len();
                    }
                }
                Event::Finished { .. } => ended = true,
            })?;
            if ended || self.statistics().waiting > 0 {
                return Err(self.no_room(point));
            }
            // The step only prefilled, or launched rounds that are not collected yet.
            if self.statistics().rounds == counted {
                continue;
            }
            let now = Instant::now();
            let since = last.replace(now).map(|last| now - last);
            if !whole_batch {
                continue;
            }
            let settled = since.is_some_and(|since| load.ran(since));
            if skip > 0 {
                skip -= 1;
                continue;
            }
            // Rounds before the device has settled count too, so that one that never settles ends.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_settle_when_they_are_steady_or_never_will_be() {
        fn check(rounds_ms: &[f64], expected: Option<usize>) {
            let rounds: Vec<Duration> = rounds_ms.iter().map(|ms| Duration::from_secs_f64(ms / 1e3)).collect();
            let settling = Duration::from_millis(40);
            let found = (1..=rounds.len()).find(|ran| is_settled(&rounds[..*ran], settling));
            assert_eq!(found, expected, "{rounds_ms:?}");
        }
        // Steady rounds for 40 ms.
        check(&[10.0; 6], Some(4));
        check(&[10.0; 3], None);
        // After rounds that become faster.
        check(&[14.0, 13.0, 12.0, 11.0, 10.0, 10.0, 10.0, 10.0, 10.0], Some(8));
        // Each long round makes up a half by itself.
        check(&[50.0, 50.0], Some(2));
        check(&[30.0, 33.0, 33.1], Some(3));
        // Rounds that never become steady are used after 240 ms.
        check(&[20.5, 22.0, 20.5, 22.0, 20.5, 22.0, 20.5, 22.0, 20.5, 22.0, 20.5, 22.0, 20.5], Some(12));
    }
}
