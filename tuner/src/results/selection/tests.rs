use schemas::tree::TreeShape;

use super::*;
use crate::{
    fixtures::synthetic,
    trials::{
        configuration::{Real, TableRow},
        record::{ArrivalFigures, Outcome, Stalls, Steady, Trial, TrialOrigin},
    },
};

fn record(shape: &str, repeat: usize, rate: f64) -> Record {
    let shape: TreeShape = shape.parse().expect("a shape");
    let role = if shape.is_off() { CandidateRole::NoSpeculation } else { CandidateRole::Candidate };
    let trial = Trial { configuration: Configuration::from_shape(shape), load: TrialLoad::BatchSize(1), repeat };
    synthetic::record(trial, role, rate)
}

fn figures(record: &mut Record) -> &mut Measurement {
    match &mut record.outcome {
        Outcome::Measured(figures) => figures,
        Outcome::Failed { reason, .. } => panic!("{reason}"),
    }
}

fn records(rates: &[(&str, &[f64])]) -> Vec<Record> {
    let of = |(shape, rates): &(&str, &[f64])| -> Vec<Record> {
        rates.iter().enumerate().map(|(repeat, rate)| record(shape, repeat, *rate)).collect()
    };
    rates.iter().flat_map(of).collect()
}

/// Ranks `(shape, rate of each repeat)`; checks the order, the choice and the verdict.
fn check(rates: &[(&str, &[f64])], order: &[&str], chosen: &str, verdict: SpeculationVerdict) {
    for metric in [Metric::Throughput, Metric::Latency] {
        let ranking = &rank(&records(rates), metric)[0];
        let found: Vec<String> = ranking.entries.iter().map(|entry| entry.configuration.shape.to_string()).collect();
        assert_eq!(found, order);
        assert_eq!(ranking.chosen.as_ref().map(|chosen| chosen.shape.to_string()).as_deref(), Some(chosen));
        assert_eq!(ranking.verdict, verdict);
    }
}

const OFF: (&str, &[f64]) = ("0,1,1", &[100.0, 101.0, 99.0]);

#[test]
fn the_best_wins_and_a_tie_goes_to_the_simpler() {
    check(&[OFF, ("3,1,4", &[200.0, 202.0, 197.0])], &["3,1,4", "0,1,1"], "3,1,4", SpeculationVerdict::Pays);
    // The bigger tree is better by half a percent, which is negligible.
    let trees: [(&str, &[f64]); 2] = [("3,4,8", &[201.0, 204.0, 199.0]), ("3,1,4", &[200.0, 202.0, 198.0])];
    check(&[OFF, trees[0], trees[1]], &["3,4,8", "3,1,4", "0,1,1"], "3,1,4", SpeculationVerdict::Pays);
    check(
        &[OFF, ("3,1,4", &[80.0, 82.0, 79.0]), ("2,1,3", &[70.0, 71.0, 70.0])],
        &["0,1,1", "3,1,4", "2,1,3"],
        "0,1,1",
        SpeculationVerdict::DoesNotPay,
    );
}

#[test]
fn what_is_not_shown_is_not_claimed() {
    // Better in the median, but not in every pair.
    let wild: (&str, &[f64]) = ("3,1,4", &[110.0, 95.0, 120.0]);
    check(&[OFF, wild], &["3,1,4", "0,1,1"], "0,1,1", SpeculationVerdict::CannotTell(Uncertainty::Noise));
    let close: (&str, &[f64]) = ("3,1,4", &[103.0, 101.0, 104.0]);
    check(&[OFF, close], &["3,1,4", "0,1,1"], "0,1,1", SpeculationVerdict::CannotTell(Uncertainty::FewRepeats));
    let once: [(&str, &[f64]); 2] = [("0,1,1", &[100.0]), ("3,1,4", &[150.0])];
    check(&once, &["3,1,4", "0,1,1"], "0,1,1", SpeculationVerdict::CannotTell(Uncertainty::OneRepeat));
    // A negligible difference over many repeats.
    let (off, tree): (Vec<f64>, Vec<f64>) =
        (0..12).map(|at| (100.0 + f64::from(at % 3), 100.5 + f64::from((at + 1) % 3))).unzip();
    check(&[("0,1,1", &off), ("3,1,4", &tree)], &["3,1,4", "0,1,1"], "0,1,1", SpeculationVerdict::Tie);
}

/// Rates of a real server whose first repeats were slow: whether speculation pays is open, but the
/// large tree that runs now is far slower than both.
#[test]
fn what_runs_now_is_replaced_although_the_verdict_is_open() {
    let off: (&str, &[f64]) = ("0,1,1", &[3713.0, 3676.0, 3676.0]);
    let chains: [(&str, &[f64]); 2] = [("1,1,2", &[3790.0, 4551.0, 4560.0]), ("5,1,6", &[2490.0, 3307.0, 3330.0])];
    let trees: [(&str, &[f64]); 2] = [("5,4,8", &[1565.0, 3119.0, 3105.0]), ("5,8,32", &[905.0, 1438.0, 1450.0])];
    let records = records(&[off, chains[0], chains[1], trees[0], trees[1]]);
    let ranking = &rank(&records, Metric::Throughput)[0];
    assert_eq!(ranking.verdict, SpeculationVerdict::CannotTell(Uncertainty::Noise));
    let instead_of = |shape: &str| {
        let current = Configuration::from_shape(shape.parse().expect("a shape"));
        let found = replacement(&records, ranking, &current, Metric::Throughput);
        found.map(|one| (one.configuration.shape.to_string(), one.over_current.low > 1.0))
    };
    assert_eq!(instead_of("5,8,32"), Some(("0,1,1".to_owned(), true)));
    assert_eq!((instead_of("0,1,1"), instead_of("1,1,2"), instead_of("7,1,8")), (None, None, None));
}

#[test]
fn what_runs_now_gives_way_to_the_choice_and_stays_where_it_ties_with_it() {
    let rates: [(&str, &[f64]); 4] =
        [OFF, ("3,1,4", &[200.0, 202.0, 198.0]), ("3,4,8", &[201.0, 203.0, 199.0]), ("5,1,6", &[150.0, 151.0, 149.0])];
    let records = records(&rates);
    let ranking = &rank(&records, Metric::Throughput)[0];
    let instead_of = |shape: &str| {
        let current = Configuration::from_shape(shape.parse().expect("a shape"));
        replacement(&records, ranking, &current, Metric::Throughput).map(|one| one.configuration.shape.to_string())
    };
    assert_eq!(ranking.verdict, SpeculationVerdict::Pays);
    assert_eq!(instead_of("5,1,6").as_deref(), Some("3,1,4"), "the choice, which is simpler than the best");
    assert_eq!((instead_of("3,4,8"), instead_of("3,1,4")), (None, None));
}

/// Wall-clock figures of a sweep on a busy machine: two thirds of the baseline's time were stalls,
/// and 2,2,4 really runs at 0.87 of its speed. Through the chain "3,1,4 is far faster than none,
/// 2,2,4 ties with 3,1,4" it was once chosen as 65% faster.
#[test]
fn a_tie_is_not_carried_on_and_a_busy_machine_is_not_believed() {
    let rates: [(&str, &[f64]); 4] = [
        ("3,1,4", &[1017.0, 2694.0, 2862.0]),
        ("2,1,3", &[1564.0, 1896.0, 2915.0]),
        ("2,2,4", &[1624.0, 1692.0, 2490.0]),
        ("0,1,1", &[1026.0, 1061.0, 1295.0]),
    ];
    let ranking = &rank(&records(&rates), Metric::Throughput)[0];
    assert!(matches!(ranking.verdict, SpeculationVerdict::CannotTell(_)), "{:?}", ranking.verdict);
    assert_eq!(ranking.chosen, Some(Configuration::from_shape(TreeShape::OFF)));
}

/// Sets the rate of a trial without its stalls.
fn steady(record: &mut Record, rate: f64) {
    let figures = figures(record);
    figures.stalls = Some(Stalls { of_time: 1.0 - figures.output_tokens_per_s / rate, of_steps: 0.2 });
    figures.steady = Some(Steady {
        elapsed_s: 1.0,
        output_tokens_per_s: rate,
        tokens_per_s_per_user: rate,
        goodput_tokens_per_s: None,
        inter_token_ms: None,
        time_to_first_token_ms: figures.time_to_first_token_ms,
        latency_ms: figures.latency_ms,
    });
}

#[test]
fn stalls_that_steps_tell_neither_win_nor_lose() {
    // No speculation stalls for two thirds of its time in every repeat, the tree for a tenth;
    // without stalls the tree runs at 0.87.
    let mut records = records(&[("0,1,1", &[33.0, 35.0, 32.0]), ("2,2,4", &[79.0, 77.0, 78.0])]);
    for record in &mut records {
        let rate = if record.trial.configuration.is_off() { 100.0 } else { 87.0 } + record.trial.repeat as f64;
        steady(record, rate);
    }
    let ranking = &rank(&records, Metric::Throughput)[0];
    assert_eq!(ranking.verdict, SpeculationVerdict::CannotTell(Uncertainty::UnevenStalls));
    let wall = ranking.disturbance.wall_speedup.expect("the wall clock says something else");
    assert!(wall > 2.0 && ranking.disturbance.marked == 6, "{:?}", ranking.disturbance);
    let uneven = ranking.disturbance.uneven.expect("the baseline stalled for longer");
    assert!(uneven.no_speculation > 0.6 && uneven.speculating < 0.2 && uneven.wall_speedup == wall, "{uneven:?}");
    let mut even = records.clone();
    for record in &mut even {
        figures(record).stalls = Some(Stalls { of_time: 0.3, of_steps: 0.2 });
    }
    let even = &rank(&even, Metric::Throughput)[0];
    assert_eq!((even.disturbance.uneven, even.verdict), (None, SpeculationVerdict::DoesNotPay));
    // A trial in which nearly every step stalls is omitted.
    for record in records.iter_mut().filter(|record| record.trial.configuration.is_off()) {
        figures(record).stalls = Some(Stalls { of_time: 0.9, of_steps: 0.9 });
    }
    let ranking = &rank(&records, Metric::Throughput)[0];
    assert_eq!(ranking.verdict, SpeculationVerdict::CannotTell(Uncertainty::BusyMachine));
    let off = ranking.entries.iter().find(|entry| entry.configuration.is_off()).expect("it ran");
    assert_eq!((ranking.disturbance.left_out, off.left_out), (3, 3));
    let reasons: Vec<Option<Exclusion>> = records.iter().map(|record| ranking.exclusion(record)).collect();
    assert_eq!(reasons[..3], [Some(Exclusion::Stalled); 3]);
    assert_eq!(reasons[3..], [None; 3]);
}

/// Rates by the wall clock and without stalls, of no speculation and of a chain.
fn removed(off: [[f64; 5]; 2], chain: [[f64; 5]; 2]) -> LoadRanking {
    let mut all = records(&[("0,1,1", &off[0]), ("3,1,4", &chain[0])]);
    let rates = off[1].into_iter().chain(chain[1]);
    all.iter_mut().zip(rates).for_each(|(record, rate)| steady(record, rate));
    rank(&all, Metric::Throughput).remove(0)
}

#[test]
fn speculation_does_not_pay_by_what_is_removed_from_its_side_alone() {
    let off = [100.0, 101.0, 99.0, 100.5, 99.5];
    let of = |ratio: f64| off.map(|rate| rate * ratio);
    let quiet = [off, off];
    // A third of the chain's time is removed in every repeat, and less than nothing is left of its
    // gain by the wall clock.
    let ranking = removed(quiet, [of(0.9), of(1.35)]);
    assert_eq!(ranking.verdict, SpeculationVerdict::CannotTell(Uncertainty::UnevenStalls));
    assert_eq!(ranking.chosen, Some(Configuration::from_shape(TreeShape::OFF)));
    // In one repeat of five less is removed.
    let [mut most, mut without] = [of(0.9), of(1.35)];
    (most[2], without[2]) = (134.0, 134.0);
    assert_eq!(removed(quiet, [most, without]).verdict, SpeculationVerdict::CannotTell(Uncertainty::UnevenStalls));
    // Both say that it pays.
    let ranking = removed(quiet, [of(1.2), of(1.5)]);
    assert!(ranking.disturbance.uneven.is_some() && ranking.verdict == SpeculationVerdict::Pays);
    // In the same way no speculation is not better by what is removed from its side.
    let ranking = removed([of(0.8), off], [of(0.9), of(0.9)]);
    assert_eq!(ranking.verdict, SpeculationVerdict::CannotTell(Uncertainty::UnevenStalls));
    let ranking = removed([of(0.93), of(1.01)], [of(0.999), off]);
    assert_eq!(ranking.verdict, SpeculationVerdict::CannotTell(Uncertainty::UnevenStalls), "gains of 5% are open");
    // Two trials of the chain were disturbed, which is chance; the others confirm it.
    let mut disturbed = of(1.2);
    (disturbed[1], disturbed[3]) = (60.0, 70.0);
    let ranking = removed(quiet, [disturbed, of(1.2)]);
    assert!(ranking.disturbance.uneven.is_some() && ranking.verdict == SpeculationVerdict::Pays);
}

/// Ranks shapes, each with its rates by the wall clock and without stalls.
fn raced(all: &[(&str, [[f64; 5]; 2])]) -> (Vec<Record>, LoadRanking) {
    let walls: Vec<(&str, &[f64])> = all.iter().map(|(shape, [wall, _])| (*shape, wall.as_slice())).collect();
    let mut records = records(&walls);
    let rates = all.iter().flat_map(|(_, [_, without])| without);
    records.iter_mut().zip(rates).for_each(|(record, rate)| steady(record, *rate));
    let ranking = rank(&records, Metric::Throughput).remove(0);
    (records, ranking)
}

#[test]
fn a_choice_among_shapes_that_the_wall_clock_contradicts_is_named() {
    let of = |ratio: f64| [100.0, 101.0, 99.0, 100.5, 99.5].map(|rate| rate * ratio);
    let found = |chain: [[f64; 5]; 2], other: [[f64; 5]; 2]| {
        let (_, ranking) = raced(&[("0,1,1", [of(1.0); 2]), ("3,1,4", chain), ("5,1,6", other)]);
        assert_eq!(ranking.verdict, SpeculationVerdict::Pays, "by both clocks");
        let chosen = ranking.chosen.as_ref().map(|one| one.shape.to_string());
        (chosen, ranking.wall_rival().map(|(entry, rival)| (entry.configuration.shape.to_string(), rival)))
    };
    // A quarter of the time of the longer chain is removed in every repeat.
    let (chosen, rival) = found([of(1.3); 2], [of(1.2), of(1.6)]);
    let (shape, rival) = rival.expect("by the wall clock the shorter chain is faster");
    assert_eq!((chosen.as_deref(), shape.as_str()), (Some("5,1,6"), "3,1,4"));
    assert!((rival.over_chosen - 1.3 / 1.2).abs() < 1e-9 && rival.stalled < 1e-9, "{rival:?}");
    assert!((rival.chosen_stalled - 0.25).abs() < 1e-9, "{rival:?}");
    // A tie: the simpler one is chosen, and by the wall clock the other one is 20% faster.
    let (chosen, rival) = found([of(1.2), of(1.5)], [of(1.45), of(1.5)]);
    assert_eq!((chosen.as_deref(), rival.map(|(shape, _)| shape).as_deref()), (Some("3,1,4"), Some("5,1,6")));
    // Both clocks agree, or both sides stalled alike, or one repeat in two, by chance.
    assert_eq!(found([of(1.3); 2], [of(1.4), of(1.6)]).1, None);
    assert_eq!(found([of(1.1), of(1.3)], [of(1.35), of(1.6)]).1, None);
    let [mut wall, without] = [of(1.28), of(1.6)];
    (wall[0], wall[2], wall[4]) = (without[0], without[2], without[4]);
    assert_eq!(found([of(1.3); 2], [wall, without]).1, None);
}

#[test]
fn a_shape_whose_gain_the_wall_clock_contradicts_is_no_part_of_a_table_and_replaces_nothing() {
    let of = |ratio: f64| [100.0, 101.0, 99.0, 100.5, 99.5].map(|rate| rate * ratio);
    let (records, ranking) =
        raced(&[("0,1,1", [of(1.0); 2]), ("3,1,4", [of(1.5), of(1.6)]), ("5,1,6", [of(0.95), of(1.4)])]);
    let entry = |shape: &str| {
        ranking.entries.iter().find(|entry| entry.configuration.shape.to_string() == shape).expect("it ran")
    };
    assert!(entry("3,1,4").may_be_chosen() && !entry("3,1,4").refuted);
    assert!(entry("5,1,6").speedup.is_some_and(|speedup| speedup.low > 1.0), "without stalls it is faster");
    assert!(entry("5,1,6").refuted && !entry("5,1,6").may_be_chosen());

    let instead = replacement(&records, &ranking, &Configuration::from_shape(TreeShape::OFF), Metric::Throughput);
    assert_eq!(instead.map(|one| one.configuration.shape.to_string()).as_deref(), Some("3,1,4"));
    let (records, ranking) = raced(&[("0,1,1", [of(1.0); 2]), ("5,1,6", [of(0.95), of(1.4)])]);
    let now = Configuration::from_shape(TreeShape::OFF);
    assert_eq!(replacement(&records, &ranking, &now, Metric::Throughput), None);
}

#[test]
fn a_slow_trial_is_named_with_its_reason() {
    let records = records(&[OFF, ("3,1,4", &[200.0, 90.0, 201.0]), ("2,1,3", &[150.0, 151.0, 149.0])]);
    let ranking = &rank(&records, Metric::Throughput)[0];
    let slow: Vec<&Record> = records.iter().filter(|record| ranking.exclusion(record).is_some()).collect();
    assert_eq!(slow, [&records[4]]);
    assert_eq!(ranking.exclusion(slow[0]), Some(Exclusion::Slow));
    assert_eq!(ranking.disturbance.left_out, ranking.excluded.len());
}

/// Rates of a race on a busy machine: the verdict was once that of the two fastest repeats of five.
#[test]
fn a_slow_majority_stays_in_the_figures() {
    let off: (&str, &[f64]) = ("0,1,1", &[5341.0, 5350.0, 5330.0, 5345.0, 5338.0]);
    let found: (&str, &[f64]) = ("8,1,9", &[9138.0, 7129.0, 9099.0, 7815.0, 7348.0]);
    let calm: (&str, &[f64]) = ("2,1,3", &[4397.0, 4404.0, 4389.0, 4400.0, 4395.0]);
    let other: (&str, &[f64]) = ("4,1,5", &[3551.0, 3557.0, 3544.0, 3554.0, 3549.0]);
    let ranking = &rank(&records(&[off, found, calm, other]), Metric::Throughput)[0];
    assert_eq!((ranking.excluded.len(), ranking.disturbance.left_out), (0, 0));
    let entry = ranking.entries.iter().find(|entry| entry.configuration.shape.to_string() == "8,1,9");
    let speedup = entry.and_then(|entry| entry.speedup).expect("compared");
    assert!(speedup.median < 1.5 && speedup.low < 1.5, "all repeats count: {speedup:?}");
}

/// As slow repeats are: with half of them gone, the others may be the exceptions.
#[test]
fn a_configuration_whose_repeats_mostly_stalled_is_not_compared() {
    let fast: (&str, &[f64]) = ("3,1,4", &[300.0, 301.0, 299.0, 302.0, 298.0]);
    let off: (&str, &[f64]) = ("0,1,1", &[100.0, 101.0, 99.0, 100.5, 99.5]);
    let calm: (&str, &[f64]) = ("2,1,3", &[150.0, 151.0, 149.0, 150.5, 149.5]);
    let mut records = records(&[off, fast, calm]);
    let mut stalled = |repeats: &[usize]| {
        for record in records.iter_mut().filter(|record| record.trial.configuration.shape.num_steps == 3) {
            let of_steps = if repeats.contains(&record.trial.repeat) { 0.9 } else { 0.0 };
            figures(record).stalls = Some(Stalls { of_time: of_steps, of_steps });
            let compared = figures(record).compared();
            figures(record).steady = Some(compared);
        }
        let ranking = rank(&records, Metric::Throughput).remove(0);
        let entry = ranking.entries.iter().find(|entry| entry.configuration.shape.num_steps == 3);
        let (left_out, speedup) = entry.map(|entry| (entry.left_out, entry.speedup)).expect("it was measured");
        (left_out, speedup.map(|ratio| ratio.median), ranking.chosen.map(|chosen| chosen.shape.num_steps))
    };
    // Three of five: the two that are left would make it the fastest.
    assert_eq!(stalled(&[2, 3, 4]), (3, None, Some(2)));
    let (left_out, speedup, _) = stalled(&[3, 4]);
    assert!(left_out == 2 && speedup.is_some_and(|ratio| ratio > 2.9), "{speedup:?}");
}

#[test]
fn no_speculation_has_an_accept_length_of_one() {
    let mut records = records(&[OFF, ("3,1,4", &[200.0, 202.0, 197.0])]);
    for record in &mut records {
        // With the first token of each request, as journals of earlier versions have it.
        figures(record).accept_length = if record.trial.configuration.is_off() { 1.03 } else { 2.5 };
    }
    let ranking = &rank(&records, Metric::Throughput)[0];
    let lengths: Vec<Option<f64>> = ranking.entries.iter().map(|entry| entry.accept_length).collect();
    assert_eq!(lengths, [Some(2.5), Some(1.0)]);
    let of = |record: &Record| record.measurement().cloned().map(|figures| figures.of(&record.trial.configuration));
    assert_eq!(records.iter().filter_map(of).filter(|figures| figures.accept_length == 1.0).count(), 3);
}

#[test]
fn a_configuration_whose_repeats_disagree_is_not_chosen() {
    let noisy: (&str, &[f64]) = ("5,4,8", &[60.0, 205.0, 260.0]);
    let ranking = &rank(&records(&[OFF, noisy, ("3,1,4", &[150.0, 151.0, 152.0])]), Metric::Throughput)[0];
    assert_eq!(ranking.chosen, Some(Configuration::from_shape(TreeShape::OFF)));
    assert_eq!(ranking.verdict, SpeculationVerdict::CannotTell(Uncertainty::Noise));
}

#[test]
fn what_every_pair_speaks_for_is_no_tie() {
    let off: (&str, &[f64]) = ("0,1,1", &[100.0, 90.0, 110.0, 80.0, 120.0]);
    // A gain of three percent in every pair, while the machine drifts by far more than that.
    let (plain, better): (Vec<f64>, Vec<f64>) =
        [200.0, 180.5, 221.0, 160.2, 240.0].map(|rate| (rate, rate * 1.03)).into_iter().unzip();
    check(
        &[off, ("3,4,8", &better), ("3,1,4", &plain)],
        &["3,4,8", "3,1,4", "0,1,1"],
        "3,4,8",
        SpeculationVerdict::Pays,
    );
}

/// The records of two shards, the second on a host of half the speed.
fn two_shards() -> Vec<Record> {
    let mut all = Vec::new();
    for (index, (speed, candidate, gain)) in [(1.0, "3,1,4", 1.5), (0.5, "2,1,3", 1.3)].into_iter().enumerate() {
        let origin = TrialOrigin { journal: format!("j{index}"), host: format!("h{index}"), shard: None };
        for (shape, worth) in [("0,1,1", 1.0), (candidate, gain)] {
            for (repeat, noise) in [1.0, 1.02, 0.99].into_iter().enumerate() {
                let rate = 100.0 * speed * worth * if shape == candidate { 1.0 + (noise - 1.0) * 0.4 } else { noise };
                all.push(Record { origin: origin.clone(), ..record(shape, repeat, rate) });
            }
        }
    }
    all
}

#[test]
fn shapes_are_compared_with_the_baseline_of_their_own_shard() {
    let ranking = &rank(&two_shards(), Metric::Throughput)[0];
    let speedup = |shape: &str| {
        let entry = ranking.entries.iter().find(|entry| entry.configuration.shape.to_string() == shape);
        entry.and_then(|entry| entry.speedup).expect("a speed-up")
    };
    for (shape, gain) in [("3,1,4", 1.5), ("2,1,3", 1.3)] {
        let found = speedup(shape);
        assert!(
            (found.median / gain - 1.0).abs() < 0.02 && found.low < gain && gain < found.high,
            "{shape}: {found:?}"
        );
    }
    // The shard on the slower host does not lose because of the host: both are compared through the
    // baselines.
    let other = ranking.entries.iter().find(|entry| entry.configuration.shape.to_string() == "2,1,3").expect("it ran");
    let against = other.against_best.expect("compared");
    assert!((against.median - 1.3 / 1.5).abs() < 0.02, "{against:?}");
    assert_eq!(ranking.chosen.as_ref().map(|one| one.shape.to_string()).as_deref(), Some("3,1,4"));
}

#[test]
fn what_is_measured_after_a_long_pause_is_not_paired_with_what_came_before() {
    let mut records = records(&[("0,1,1", &[100.0, 101.0]), ("3,1,4", &[150.0, 300.0])]);
    records.iter_mut().enumerate().for_each(|(at, record)| record.finished_at = 1000 + at as u64);
    let both = relative(
        &records,
        TrialLoad::BatchSize(1),
        &Configuration::from_shape("3,1,4".parse().expect("a shape")),
        &Configuration::from_shape(TreeShape::OFF),
        Metric::Throughput,
    );
    assert!(both.expect("two pairs").median > 2.0);
    // The last trial runs two hours later, on a machine that has changed.
    records[3].finished_at += 7200;
    let ranking = &rank(&records, Metric::Throughput)[0];
    assert!((ranking.entries[0].speedup.expect("one pair").median - 1.5).abs() < 1e-9, "{ranking:?}");
}

#[test]
fn a_load_with_which_all_keep_up_is_judged_by_latency() {
    let mut records = records(&[("0,1,1", &[256.0, 256.1, 255.9]), ("1,1,2", &[256.0, 256.2, 255.8])]);
    for record in &mut records {
        record.trial.load = TrialLoad::RequestRate(Real(4.0));
        let latency = if record.trial.configuration.is_off() { 72.0 } else { 37.0 } + 0.2 * record.trial.repeat as f64;
        let figures = figures(record);
        (figures.requests, figures.elapsed_s) = (48, 11.8);
        figures.latency_ms =
            TrialSpread { min: latency, median: latency, p90: latency, p99: latency, max: latency, count: 48 };
        figures.arrivals =
            Some(ArrivalFigures { offered_per_s: 4.0, offered_tokens_per_s: 256.0, unserved_at_last: 1 });
    }
    let ranking = &rank(&records, Metric::Throughput)[0];
    assert!(ranking.keeps_up && ranking.metric == Metric::Latency);
    assert_eq!(ranking.disturbance.wall_speedup, None, "the wall clock is what is compared");
    assert_eq!(ranking.verdict, SpeculationVerdict::Pays, "in latency");
    assert_eq!(ranking.entries[0].request_rate.expect("rates").offered, 4.0);
    // If one configuration does not keep up, throughput distinguishes them.
    figures(&mut records[0]).elapsed_s = 20.0;
    assert!(!rank(&records, Metric::Throughput)[0].keeps_up);
}

#[test]
fn runs_that_are_not_paired_are_distinguished_or_are_too_noisy() {
    let key = (TrialLoad::BatchSize(1), Configuration::from_shape("3,1,4".parse().expect("a shape")));
    let check = |first: &[f64], second: &[f64], expected: Change| {
        let (first, second) = (records(&[("3,1,4", first)]), records(&[("3,1,4", second)]));
        let found = across(&first, &second, Metric::Throughput);
        assert_eq!(found[&key].change, expected, "{found:?}");
    };
    check(&[100.0, 101.0, 99.0], &[150.0, 152.0, 149.0], Change::Better);
    check(&[100.0, 101.0, 99.0, 100.0], &[80.0, 79.0, 81.0, 80.0], Change::Worse);
    check(&[100.0, 101.0, 99.0, 100.0, 100.5], &[100.2, 100.8, 99.5, 99.9, 100.0], Change::None);
    check(&[100.0, 60.0, 80.0, 75.0, 90.0], &[50.0, 45.0, 35.0, 60.0, 90.0], Change::TooNoisy);
    check(&[100.0], &[150.0], Change::NoiseUnknown);
    // With half of its repeats stalled, a run says nothing about the configuration.
    let first = records(&[("3,1,4", &[100.0, 101.0, 99.0, 100.0])]);
    let mut second = records(&[("3,1,4", &[150.0, 151.0, 149.0, 150.0])]);
    for (stalled, is_compared) in [(1, true), (2, false)] {
        for record in &mut second[..stalled] {
            figures(record).stalls = Some(Stalls { of_time: 0.9, of_steps: 0.9 });
        }
        assert_eq!(across(&first, &second, Metric::Throughput).contains_key(&key), is_compared, "{stalled}");
    }
}

#[test]
fn a_table_is_not_mistaken_for_no_speculation() {
    let off = Configuration::from_shape(TreeShape::OFF);
    let row = TableRow::for_any_context(8, "3,1,4".parse().expect("a shape"));
    let table = Configuration { table: vec![row], ..off.clone() };
    let measured = |configuration: &Configuration, role: CandidateRole, rate: f64| {
        let trial = Trial { configuration: configuration.clone(), load: TrialLoad::BatchSize(1), repeat: 0 };
        synthetic::record(trial, role, rate)
    };
    let records =
        [measured(&table, CandidateRole::Candidate, 200.0), measured(&off, CandidateRole::NoSpeculation, 100.0)];
    let ranking = &rank(&records, Metric::Throughput)[0];
    assert!((ranking.score(&table).expect("measured") - 2.0).abs() < 1e-9);
    assert_eq!(ranking.score(&off), Some(1.0));
    assert_eq!(ranking.score(&Configuration::from_shape(TreeShape::chain(3))), None);
}

#[test]
fn the_front_is_what_nothing_beats_in_both_figures() {
    let mut records = vec![record("3,1,4", 0, 150.0), record("5,4,8", 0, 200.0), record("0,1,1", 0, 100.0)];
    for (record, user) in records.iter_mut().zip([60.0, 50.0, 40.0]) {
        figures(record).tokens_per_s_per_user = user;
    }
    let ranking = &rank(&records, Metric::Pareto)[0];
    let front = |shape: &str| {
        ranking.entries.iter().any(|entry| entry.configuration.shape.to_string() == shape && entry.on_front)
    };
    assert_eq!([front("3,1,4"), front("5,4,8"), front("0,1,1")], [true, true, false]);
}

#[test]
fn failures_come_last_with_their_reason() {
    let mut failed = record("3,1,4", 0, 1.0);
    failed.outcome = Outcome::Failed { reason: "why".into(), failure: None };
    let ranking = &rank(&[failed, record("0,1,1", 0, 100.0)], Metric::Throughput)[0];
    assert_eq!(ranking.entries[1].failure.as_deref(), Some("why"));
    assert_eq!(ranking.chosen, Some(Configuration::from_shape(TreeShape::OFF)));
    assert_eq!((ranking.entries[1].speedup, ranking.verdict), (None, SpeculationVerdict::AllFailed));
    let alone = &rank(&[record("0,1,1", 0, 100.0)], Metric::Throughput)[0];
    assert_eq!(alone.verdict, SpeculationVerdict::NotCompared, "nothing was tried");
}
