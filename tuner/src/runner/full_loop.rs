//! The part of a closed loop that throughput counts.
//!
//! At the end of a closed loop no request is left to start, so fewer run together. With equal
//! output lengths, requests without speculation end together and those with it one after the
//! other, so the end costs the side with speculation more, the more so the shorter the trial. It
//! says nothing about a constant batch, so what arrives after the loop is no longer full does not
//! count, for no configuration and on no engine. Prompts that are prefilled count in full, also
//! those of requests whose output is cut off.

use std::time::Duration;

use crate::trials::record::FullLoop;

/// A completed request, as a client sees it.
#[derive(Clone, Copy, Debug)]
pub struct RequestSpan<'a> {
    /// Time from the start of the trial to its submission.
    pub submitted: Duration,
    /// Time from its submission to its end.
    pub took: Duration,
    /// How many tokens it had by when, ascending, since the submission.
    pub arrivals: &'a [(Duration, usize)],
}

impl RequestSpan<'_> {
    fn ended(&self) -> Duration {
        self.submitted.saturating_add(self.took)
    }

    /// Its tokens by a time since the start of the trial. Between two arrivals they grow steadily:
    /// the tokens of a round reach the streams of its requests one after the other, and a time
    /// between them counts nearly all of the round for all of them.
    pub fn tokens_by(&self, time: Duration) -> f64 {
        let Some(since) = time.checked_sub(self.submitted) else { return 0.0 };
        let next = self.arrivals.partition_point(|(at, _)| *at <= since);
        let Some((from, before)) = next.checked_sub(1).map(|last| self.arrivals[last]) else { return 0.0 };
        let Some((to, after)) = self.arrivals.get(next) else { return before as f64 };
        let share = (since - from).as_secs_f64() / (*to - from).as_secs_f64();
        before as f64 + share * (after - before) as f64
    }
}

/// The part of a closed loop in which `together` requests are in the engine; `None` if it holds
/// less than half of the tokens, or if it is not known when tokens arrived.
pub fn full_loop(requests: &[RequestSpan<'_>], together: usize) -> Option<FullLoop> {
    let tokens = requests.iter().map(|one| one.arrivals.last().map(|(_, tokens)| *tokens as u64));
    let tokens: u64 = tokens.sum::<Option<u64>>()?;
    let mut ends: Vec<Duration> = requests.iter().map(RequestSpan::ended).collect();
    ends.sort_unstable();
    // Each end but the last ones of the loop is followed by the start of another request.
    let until = *ends.get(ends.len().checked_sub(together.clamp(1, ends.len().max(1)))?)?;
    let output_tokens = requests.iter().map(|one| one.tokens_by(until)).sum();
    FullLoop { seconds: until.as_secs_f64(), output_tokens }.of(tokens)
}

/// Mean number of requests in the engine over the first seconds of a trial.
pub fn mean_batch(requests: &[RequestSpan<'_>], seconds: f64) -> Option<f64> {
    let within = |one: &RequestSpan<'_>| {
        let until = one.ended().as_secs_f64().min(seconds);
        (until - one.submitted.as_secs_f64()).max(0.0)
    };
    (seconds > 0.0).then(|| requests.iter().map(within).sum::<f64>() / seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// When a request is submitted, in ms, and the end of each of its rounds, with the tokens of
    /// one.
    struct Sent {
        submitted: u64,
        rounds: Vec<(Duration, usize)>,
    }

    fn sent(submitted: u64, rounds: u64, each: usize) -> Sent {
        let round = |at: u64| (Duration::from_millis(10 * at), each * at as usize);
        Sent { submitted, rounds: (1..=rounds).map(round).collect() }
    }

    fn spans(sent: &[Sent]) -> Vec<RequestSpan<'_>> {
        let span = |one| {
            let Sent { submitted, rounds }: &Sent = one;
            RequestSpan {
                submitted: Duration::from_millis(*submitted),
                took: rounds.last().expect("a round").0,
                arrivals: rounds,
            }
        };
        sent.iter().map(span).collect()
    }

    /// Rounds of two requests take 10 ms and yield one token without speculation and two with it.
    /// Both sides send four requests of 40 tokens; with speculation their rounds differ, since
    /// acceptance does.
    #[test]
    fn the_end_of_a_loop_does_not_count() {
        let plain = [sent(0, 40, 1), sent(0, 40, 1), sent(400, 40, 1), sent(400, 40, 1)];
        let full = full_loop(&spans(&plain), 2).expect("it is full to the end");
        assert_eq!((full.seconds, full.output_tokens), (0.8, 160.0));
        // The first pair ends at 150 and 250 ms, the second one at 300 and 500 ms: for 200 ms one
        // request runs alone.
        let drafted = [sent(0, 15, 2), sent(0, 25, 2), sent(150, 15, 2), sent(250, 25, 2)];
        let spans = spans(&drafted);
        let full = full_loop(&spans, 2).expect("most of it is full");
        assert_eq!((full.seconds, full.output_tokens), (0.3, 30.0 + 50.0 + 30.0 + 10.0));
        assert!((full.rate() - 400.0).abs() < 1e-9, "two requests of two tokens in each 10 ms");
        assert!((mean_batch(&spans, full.seconds).expect("a batch") - 2.0).abs() < 1e-9);
        assert!((mean_batch(&spans, 0.5).expect("a batch") - 1.6).abs() < 1e-9);
    }

    #[test]
    fn a_loop_that_is_hardly_ever_full_counts_as_a_whole() {
        // The second request is ten times as long as the first.
        assert_eq!(full_loop(&spans(&[sent(0, 10, 1), sent(0, 100, 1)]), 2), None);
        let one_wave = [sent(0, 30, 1), sent(0, 40, 1)];
        assert_eq!(full_loop(&spans(&one_wave), 2).map(|full| full.output_tokens), Some(60.0));
        assert_eq!(full_loop(&spans(&one_wave), 1).map(|full| full.output_tokens), Some(70.0));
        assert_eq!(full_loop(&[], 2), None);
        let untimed = RequestSpan { submitted: Duration::ZERO, took: Duration::from_millis(9), arrivals: &[] };
        assert_eq!(full_loop(&[untimed], 1), None);
    }

    #[test]
    fn tokens_of_a_round_that_arrive_a_moment_later_count() {
        let (first, second) = (Duration::from_millis(100), Duration::from_micros(110_001));
        let span = RequestSpan { submitted: Duration::ZERO, took: second, arrivals: &[(first, 3), (second, 6)] };
        assert!((span.tokens_by(Duration::from_millis(110)) - 6.0).abs() < 1e-3);
        assert_eq!(span.tokens_by(Duration::from_millis(99)), 0.0);
    }
}
