//! Cases that can be computed by hand.

use super::*;

fn need(prompt_tokens: usize, output_tokens: usize, rounds: usize) -> Need {
    Need { prompt_tokens, output_tokens, rounds }
}

fn setup() -> Setup {
    Setup {
        capture_sizes: Vec::new(),
        max_running_requests: 8,
        prefill_budget: 1000,
        prefill_chunk: 1000,
        rounds_behind: 0,
    }
}

fn closed(batch_size: usize) -> Arrivals {
    Arrivals::Closed { batch_size }
}

/// A round takes 10 ms and one for each request; reading prompts 5 ms and one for each ten tokens.
fn play(needs: &[Need], arrivals: &Arrivals, setup: &Setup) -> Forecast {
    let prefill = |tokens: usize| 5.0 + tokens as f64 / 10.0;
    simulate(needs, arrivals, setup, |batch, _| Ok(10.0 + batch as f64), prefill).expect("it can be played")
}

fn close(one: f64, other: f64) {
    assert!((one - other).abs() < 1e-9, "{one}, expected {other}");
}

#[test]
fn one_request_is_its_prompt_and_its_rounds() {
    let forecast = play(&[need(100, 9, 4)], &closed(1), &setup());
    close(forecast.elapsed_s, (15.0 + 4.0 * 11.0) / 1e3);
    close(forecast.prefill_s, 0.015);
    close(forecast.output_tokens_per_s, 9.0 / 0.059);
    close(forecast.tokens_per_s_per_user.expect("it has a second token"), 8.0 / 0.044);
    close(forecast.time_to_first_token_ms.median, 15.0);
    close(forecast.mean_latency_ms, 59.0);
    assert_eq!((forecast.output_tokens, forecast.accept_length), (9, Some(2.25)));
    assert_eq!(forecast.batches, [0, 4]);
    let only_first = play(&[need(100, 1, 0)], &closed(1), &setup());
    close(only_first.elapsed_s, 0.015);
    assert_eq!((only_first.tokens_per_s_per_user, only_first.accept_length), (None, None));
    assert!(only_first.batches.is_empty());
}

#[test]
fn a_closed_loop_sends_the_next_request_when_one_ends() {
    let needs = [need(50, 3, 2), need(50, 5, 4), need(50, 3, 2)];
    let forecast = play(&needs, &closed(2), &setup());
    // Two prompts in a step 15; two rounds of two 24: the first has ended. Its successor's prompt 10, two rounds of two 24.
    close(forecast.elapsed_s, (15.0 + 24.0 + 10.0 + 24.0) / 1e3);
    assert_eq!(forecast.batches, [0, 0, 4]);
    close(forecast.latency_ms.min, 34.0);
    close(forecast.latency_ms.median, 39.0);
    close(forecast.latency_ms.max, 73.0);
    close(forecast.mean_latency_ms, (39.0 + 73.0 + 34.0) / 3.0);
    close(forecast.time_to_first_token_ms.min, 10.0);
    close(forecast.time_to_first_token_ms.max, 15.0);
}

#[test]
fn long_prompts_are_read_piece_by_piece_between_rounds() {
    let setup = Setup { prefill_budget: 100, prefill_chunk: 60, ..setup() };
    let forecast = play(&[need(60, 3, 2), need(90, 2, 1)], &closed(2), &setup);
    // 60 and 40 tokens in a step 15, a round of the first alone 11; 50 tokens 10, a round of both 12.
    close(forecast.elapsed_s, 0.048);
    assert_eq!(forecast.batches, [0, 1, 1]);
    close(forecast.time_to_first_token_ms.max, 36.0);
}

#[test]
fn rounds_are_padded_and_know_the_mean_context() {
    let setup = Setup { capture_sizes: vec![1, 4], ..setup() };
    let seen = std::cell::RefCell::new(Vec::new());
    let round = |batch, context| {
        seen.borrow_mut().push((batch, context));
        Ok(10.0)
    };
    simulate(&[need(100, 5, 2), need(200, 2, 1)], &closed(2), &setup, round, |_| 1.0).expect("it can be played");
    assert_eq!(*seen.borrow(), [(4, 75.0), (1, 102.0)]);
}

#[test]
fn with_rounds_in_flight_the_end_is_known_a_round_later() {
    assert_eq!((rounds_behind(2, true), rounds_behind(2, false), rounds_behind(1, true)), (1, 0, 0));
    let setup = Setup { rounds_behind: 1, ..setup() };
    let forecast = play(&[need(50, 3, 2), need(50, 3, 2)], &closed(1), &setup);
    // 10 and two rounds 22; one round in which the first runs along 11; the same again, and nobody waits for what runs
    // along behind the last.
    close(forecast.elapsed_s, (32.0 + 11.0 + 32.0) / 1e3);
    assert_eq!(forecast.batches, [0, 5]);
    close(forecast.latency_ms.max, 43.0);

    let forecast = play(&[need(50, 3, 2), need(50, 7, 6), need(50, 3, 2)], &closed(2), &setup);
    // Prompts 15, two rounds of two, one with the first running along, the third's prompt 10, two of two, and one with
    // the third running along.
    close(forecast.elapsed_s, (15.0 + 6.0 * 12.0 + 10.0) / 1e3);
    assert_eq!(forecast.batches, [0, 0, 6]);
}

#[test]
fn open_arrivals_wait_for_nobody() {
    let needs = [need(50, 3, 2), need(50, 3, 2), need(50, 2, 1)];
    let arrivals = Arrivals::Open { at_ms: vec![5.0, 20.0, 500.0] };
    let forecast = play(&needs, &arrivals, &setup());
    // From 5: prompt to 15, a round to 26; the second has come: its prompt to 36, a round of both to 48, one more to 59.
    // From 500: prompt and a round, to 521.
    close(forecast.elapsed_s, 0.521);
    assert_eq!(forecast.batches, [0, 3, 1]);
    close(forecast.latency_ms.max, 43.0);
    close(forecast.latency_ms.median, 39.0);
    close(forecast.latency_ms.min, 21.0);
    close(forecast.time_to_first_token_ms.max, 16.0);

    let narrow = Setup { max_running_requests: 1, ..setup() };
    let forecast = play(&needs[..2], &Arrivals::Open { at_ms: vec![0.0, 0.0] }, &narrow);
    close(forecast.elapsed_s, 2.0 * 32.0 / 1e3);
    close(forecast.time_to_first_token_ms.max, 42.0);
}

#[test]
fn what_cannot_be_played_is_an_error() {
    let refused = |needs: &[Need], arrivals: &Arrivals, setup: &Setup, expected: &str| {
        let error = simulate(needs, arrivals, setup, |_, _| Ok(1.0), |_| 1.0).expect_err("it is refused").to_string();
        assert!(error.contains(expected), "{error}");
    };
    let one = [need(5, 3, 2)];
    refused(&[], &closed(1), &setup(), "no request");
    refused(&[need(0, 3, 2)], &closed(1), &setup(), "prompt");
    refused(&[need(5, 2, 2)], &closed(1), &setup(), "at least one token");
    refused(&one, &closed(0), &setup(), "batch size 0");
    refused(&one, &closed(9), &setup(), "batch size 9");
    refused(&one, &closed(1), &Setup { prefill_budget: 0, ..setup() }, "prefill_budget");
    refused(&one, &closed(1), &Setup { capture_sizes: vec![4, 1], ..setup() }, "ascending");
    for at_ms in [vec![], vec![f64::NAN], vec![-1.0]] {
        refused(&one, &Arrivals::Open { at_ms }, &setup(), "arrival times");
    }
    refused(&[one[0]; 2], &Arrivals::Open { at_ms: vec![2.0, 1.0] }, &setup(), "ascending");
    let error = simulate(&one, &closed(1), &setup(), |_, _| Ok(f64::NAN), |_| 1.0).expect_err("no time");
    assert!(error.to_string().contains("NaN"), "{error}");
    let extrapolated = |_, _| Err(TunerError::Configuration("extrapolated".into()));
    assert!(simulate(&one, &closed(1), &setup(), extrapolated, |_| 1.0).is_err());
}
