//! The verdict on a load, in a sentence or two.

use tuner::results::selection::{
    self, Disturbance, ExcludedTrial, Interval, IntervalBasis, MOST_REPEATS, RangeKind, SpeculationVerdict,
    Uncertainty, UnevenStalls, WallRival,
};

use crate::{
    columns, figures, names,
    race::{Race, RaceEntry},
    uneven,
};

/// Share of stalled time above which it is mentioned next to the answer.
const FELT_STALLS: f64 = 0.05;

/// Maximum number of configurations whose excluded trials are named, each with its reasons.
const NAMED: usize = 4;

/// The verdict and its category: `pays`, `same`, `loses` or `unknown`.
pub fn verdict(race: &Race) -> (String, &'static str) {
    let (mut words, mood) = match race.verdict {
        SpeculationVerdict::Pays => (format!("Speculation pays here.{}", ties(race)), "pays"),
        SpeculationVerdict::DoesNotPay => (format!("Speculation does not pay here{}.", best(race)), "loses"),
        SpeculationVerdict::Tie => (
            format!(
                "Speculation gains at most 5% here, if anything{}.{} No speculation is chosen as the simpler option.",
                best(race),
                at_most(race)
            ),
            "same",
        ),
        SpeculationVerdict::CannotTell(doubt) => (cannot_tell(race, doubt), "unknown"),
        SpeculationVerdict::AllFailed if race.measured().next().is_some() => (all_failed(race), "unknown"),
        SpeculationVerdict::AllFailed | SpeculationVerdict::NotCompared => (not_compared(race), "unknown"),
    };
    if race.keeps_up {
        words = format!(
            "Every configuration keeps up with this load, so they do not differ in throughput and are compared by \
             latency. {words} For throughput, raise the rate."
        );
    }
    words.extend(no_difference_from_default(race));
    words.extend(correlated(race));
    words.extend(started(race));
    if race.simulated() {
        words.push_str(" Acceptance was simulated: times are real, texts are not.");
    }
    (words, mood)
}

/// Disturbances of a load's trials, if significant enough to be shown next to the answer.
pub fn disturbance(race: &Race) -> Option<String> {
    let Disturbance { trials, marked, left_out, stalled_share, wall_speedup, uneven } = race.disturbance;
    let stalled = stalled_share.filter(|share| *share > FELT_STALLS);
    let rival = wall_rival(race);
    if stalled.is_none() && left_out == 0 && wall_speedup.is_none() && uneven.is_none() && rival.is_none() {
        return None;
    }
    // An undecided verdict names this reason itself.
    let named = race.verdict == SpeculationVerdict::CannotTell(Uncertainty::BusyMachine);
    let mut words: Vec<String> = Vec::new();
    // Slow trials alone may also be work that a server does only once, such as compiling kernels.
    words.extend((!named).then(|| match stalled {
        Some(_) => "The machine was busy with other things.".to_owned(),
        None => "Some trials were disturbed.".to_owned(),
    }));
    words.extend(stalled.map(|share| {
        let what = match race.load.batch_size() {
            Some(_) => "which are separated from the engine's work and not counted",
            // A stall changes which requests wait for which, so it cannot be removed.
            None => "which are part of all figures here, since an open loop is measured by the wall clock",
        };
        format!("{} of the time was stalls (median over trials), {what}.", figures::share(share))
    }));
    if left_out > 0 {
        words.push(format!(
            "{} of {} trials {} excluded from the comparison.",
            left_out,
            figures::count(trials as u64),
            if left_out == 1 { "was" } else { "were" }
        ));
        words.push(excluded(race));
    } else if stalled.is_none() && marked > 0 {
        words.push(format!("{marked} of {} trials are marked.", figures::count(trials as u64)));
    }
    words.extend(uneven.map(|uneven| uneven_stalls(race, uneven)));
    // The warning about uneven stalls contains it.
    words.extend(wall_speedup.filter(|_| uneven.is_none()).map(|ratio| {
        format!(
            "By wall-clock time, stalls included, the best speculating configuration is at {}.",
            figures::ratio(ratio)
        )
    }));
    words.extend(rival);
    Some(words.join(" "))
}

/// Warnings about the figures of a load, for programs.
pub fn notes(race: &Race) -> Vec<String> {
    let stalls = race.disturbance.uneven.map(|uneven| uneven_stalls(race, uneven));
    stalls.into_iter().chain(wall_rival(race)).chain(uneven::warnings(race)).collect()
}

/// A warning that the choice among speculating configurations rests on removing more stalls of one
/// of them.
fn wall_rival(race: &Race) -> Option<String> {
    let (rival, WallRival { stalled, chosen_stalled, over_chosen }) =
        selection::wall_rival(race.entries.iter().map(|entry| &entry.ranked))?;
    let (chosen, rival) = (names::short(&race.winner()?.ranked.configuration), names::short(&rival.configuration));
    Some(format!(
        "Warning: whether {chosen} or {rival} is faster is not known. Stalls were {} of the time of {chosen} and {} of \
         that of {rival} (means over trials), unevenly in nearly every repeat, and by wall-clock time, stalls included, \
         {rival} is at {} of {chosen}.",
        figures::share(chosen_stalled),
        figures::share(stalled),
        figures::ratio(over_chosen)
    ))
}

/// A warning that both sides of the verdict stalled for different shares of their time.
fn uneven_stalls(race: &Race, uneven: UnevenStalls) -> String {
    let UnevenStalls { speculating, no_speculation, wall_speedup } = uneven;
    let name = race.best_speculating().map_or_else(|| "speculation".to_owned(), columns::name);
    format!(
        "Warning: stalls were {} of the time of {name} and {} of that of no speculation (means over trials). Stalls are \
         easier to find in short rounds, so removing them favours configurations with short rounds. By wall-clock \
         time, stalls included, {name} is at {} of no speculation.",
        figures::share(speculating),
        figures::share(no_speculation),
        figures::ratio(wall_speedup)
    )
}

/// The excluded trials with their reasons.
fn excluded(race: &Race) -> String {
    let mut groups: Vec<(&ExcludedTrial, Vec<String>)> = Vec::new();
    for one in &race.excluded {
        let repeat = (one.trial.repeat + 1).to_string();
        let is_like = |of: &ExcludedTrial| of.trial.configuration == one.trial.configuration && of.reason == one.reason;
        match groups.iter_mut().find(|(of, _)| is_like(of)) {
            Some((_, repeats)) => repeats.push(repeat),
            None => groups.push((one, vec![repeat])),
        }
    }
    let named = |(one, repeats): &(&ExcludedTrial, Vec<String>)| {
        let word = if repeats.len() == 1 { "repeat" } else { "repeats" };
        format!("{}, {word} {} ({})", one.trial.configuration, repeats.join(", "), one.reason.words())
    };
    let all: Vec<String> = groups.iter().take(NAMED).map(named).collect();
    let more: usize = groups.iter().skip(NAMED).map(|(_, repeats)| repeats.len()).sum();
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    format!("Excluded: {}{more}.", all.join("; "))
}

/// Explains why the chosen configuration may not be the first of the ranking.
fn ties(race: &Race) -> String {
    let complexity = |entry: &RaceEntry| entry.ranked.configuration.complexity();
    let tied = || race.measured().filter(|entry| entry.ranked.tied_with_best && !entry.chosen && !entry.is_off());
    let simpler = race.winner().is_some_and(|winner| tied().any(|entry| complexity(entry) < complexity(winner)));
    let why = if simpler { "less simple, or measured more than 2% slower" } else { "less simple" };
    match tied().count() {
        0 => String::new(),
        1 => format!(" One other configuration is not significantly different from the best but is {why}."),
        others => format!(" {others} others are not significantly different from the best and are {why}."),
    }
}

/// The best speculating configuration, with its figure.
fn best(race: &Race) -> String {
    let Some((best, speedup)) = best_speedup(race) else { return String::new() };
    format!(
        ": the best speculating configuration, {}, is at {} of no speculation{}",
        columns::name(best),
        figures::ratio(speedup.median),
        ends(speedup, best.ranked.repeats)
    )
}

fn best_speedup(race: &Race) -> Option<(&RaceEntry, Interval)> {
    let best = race.best_speculating()?;
    Some((best, best.ranked.speedup?))
}

fn ends(interval: Interval, repeats: usize) -> String {
    match interval.kind {
        RangeKind::Single => String::new(),
        _ if interval.high > LARGEST_END => ", but repeats do not bound it yet".to_owned(),
        _ => format!(" ({} {})", figures::interval_name(interval, repeats), figures::range(interval, figures::ratio)),
    }
}

fn cannot_tell(race: &Race, doubt: Uncertainty) -> String {
    let why = match doubt {
        Uncertainty::OneRepeat => "with one repeat the noise is unknown",
        Uncertainty::FewRepeats => "there are too few repeats for a difference of this size",
        Uncertainty::BusyMachine => "the machine was busy with other things",
        Uncertainty::UnevenStalls => {
            "one side stalled for more of its time in nearly every repeat, and by the wall clock, stalls included, the \
             answer is another"
        }
        Uncertainty::Noise => "the repeats vary too much",
        Uncertainty::StartsDiffer => "what differs from start to start of a server may explain the difference",
        Uncertainty::Dependent => "the repeats depend on each other, so more of them say little",
        Uncertainty::NoPair => {
            "the speculating configurations share no repeat (host, shard and hour) with no speculation"
        }
    };
    let so_far = best_speedup(race).map_or_else(String::new, |(best, speedup)| {
        format!(
            " So far {} is at {} of no speculation{}.",
            columns::name(best),
            figures::ratio(speedup.median),
            ends(speedup, best.ranked.repeats)
        )
    });
    let kept = " No speculation is kept until something is shown to be faster.";
    let exhausted = race.looks.are_unlimited() && race.measured().any(|entry| entry.ranked.repeats >= MOST_REPEATS);
    let what = match (doubt, race.looks.are_unlimited()) {
        (Uncertainty::NoPair, _) => " Measure no speculation and the candidates in one run.",
        (Uncertainty::StartsDiffer, _) => {
            " Measure over more starts with --until decided --resume, while nothing else runs on the host."
        }
        (Uncertainty::Dependent, _) => {
            " Something that lasts from repeat to repeat affects configurations differently, such as clocks, temperature \
             or other work: end it, raise workload.requests (tune: --requests) in a new folder, or continue later with --resume."
        }
        (Uncertainty::BusyMachine | Uncertainty::UnevenStalls, _) if exhausted => {
            " The greatest number of repeats is reached: measure again in a new folder while nothing else runs."
        }
        (_, _) if exhausted => {
            " The greatest number of repeats is reached. Longer trials vary less: raise workload.requests (tune: --requests) in a new folder."
        }
        (Uncertainty::OneRepeat | Uncertainty::FewRepeats, false) => {
            " To measure on, add --until decided --resume, or raise search.repeats (tune: --repeats) and continue with --resume."
        }
        (Uncertainty::OneRepeat | Uncertainty::FewRepeats, true) => {
            " To measure on, raise search.seconds (tune: --max-time) or search.trials and continue with --resume."
        }
        (Uncertainty::Noise, _) => {
            " Longer trials vary less: raise workload.requests (tune: --requests) in a new folder; or measure on with --until decided --resume."
        }
        (Uncertainty::BusyMachine | Uncertainty::UnevenStalls, _) => {
            " While nothing else runs, measure on with --until decided --resume."
        }
    };
    format!("It is unknown whether speculation pays: {why}.{so_far}{}{kept}{what}", at_most(race))
}

/// An interval of a speed-up that ends above this says nothing.
pub const LARGEST_END: f64 = 20.0;
/// Largest bound of a speed-up that is reported.
const LARGEST_BOUND: f64 = 3.0;

/// The largest gain that the intervals of an undecided race leave possible, with the configuration
/// that it is of, unless that is the best; empty if one of the intervals is unknown.
fn at_most(race: &Race) -> String {
    let speculating = race.measured().filter(|entry| !entry.is_off());
    let highest = speculating.map(|entry| {
        let ends = entry.ranked.speedup.filter(|ends| ends.kind == RangeKind::Confidence)?;
        Some((entry, ends.high))
    });
    let highest: Option<Vec<(&RaceEntry, f64)>> = highest.collect();
    match highest.and_then(|all| all.into_iter().max_by(|(_, one), (_, other)| one.total_cmp(other))) {
        // A bound of several times the speed says nothing.
        Some((entry, high)) if high > 1.0 && high <= LARGEST_BOUND => {
            let best = race.best_speculating();
            let is_best = best.is_some_and(|best| best.ranked.configuration == entry.ranked.configuration);
            let of = if is_best { String::new() } else { format!(", that of {}", columns::name(entry)) };
            format!(" Any gain is at most {}{of}.", figures::gain(high))
        }
        _ => String::new(),
    }
}

/// How many starts a verdict rests on; nothing for one that is unknown for another reason.
fn started(race: &Race) -> Option<String> {
    let decides = matches!(
        race.verdict,
        SpeculationVerdict::Pays
            | SpeculationVerdict::DoesNotPay
            | SpeculationVerdict::Tie
            | SpeculationVerdict::CannotTell(Uncertainty::StartsDiffer)
    );
    let starts = race.starts.as_ref().filter(|_| decides)?;
    let count = |starts: usize| match starts {
        1 => "one start".to_owned(),
        2 => "two starts".to_owned(),
        more => format!("{more} starts"),
    };
    let (subject, baseline) = (count(starts.of_subject), count(starts.of_baseline));
    let of = if starts.of_subject == starts.of_baseline {
        format!("{subject} of each server")
    } else {
        format!("{subject} of {} and {baseline} of no speculation", names::short(&starts.subject))
    };
    let difference = match starts.largest_ratio {
        Some(ratio) => format!(
            "two starts of one configuration differed by {}, which intervals do not contain",
            figures::share(ratio - 1.0)
        ),
        None => "what differs from start to start is not known".to_owned(),
    };
    Some(format!(" This rests on {of}: {difference}."))
}

/// A correlation up to this is not mentioned.
const SLIGHT: f64 = 0.1;

/// What a correlation of consecutive repeats means for the intervals.
fn correlated(race: &Race) -> Option<String> {
    // One repeat has no interval to explain, and a bound near zero widens none.
    let serial = race.serial.filter(|serial| serial.blocks > 1 && serial.lag_one > SLIGHT)?;
    let why = match (serial.basis, serial.found) {
        (IntervalBasis::Assumed, _) => {
            "Repeats vary much and are too few to show whether consecutive ones resemble each other".to_owned()
        }
        (IntervalBasis::Bound, false) => {
            format!(
                "It is not excluded that consecutive repeats resemble each other (correlation up to {:.2})",
                serial.lag_one
            )
        }
        (IntervalBasis::Bound, true) => {
            format!("Consecutive repeats resemble each other (correlation up to {:.2})", serial.lag_one)
        }
        (IntervalBasis::Estimate, _) => {
            format!("Consecutive repeats resemble each other (correlation {:.2})", serial.lag_one)
        }
    };
    Some(match serial.effective() {
        few if few < 2.0 => format!(" {why}, so {} repeats say hardly more than one.", serial.blocks),
        effective => format!(
            " {why}, so intervals are as wide as those of {effective:.1} independent repeats instead of {}.",
            serial.blocks
        ),
    })
}

fn all_failed(race: &Race) -> String {
    let failed = race.entries.iter().filter(|entry| !entry.is_off());
    let why = failed.clone().find_map(|entry| entry.ranked.failure.as_deref());
    let why = why.map_or_else(String::new, |why| format!(" The first reason: {why}"));
    match failed.count() {
        1 => format!("It is unknown whether speculation pays: the speculating configuration failed.{why}"),
        count => format!("It is unknown whether speculation pays: all {count} speculating configurations failed.{why}"),
    }
}

fn not_compared(race: &Race) -> String {
    if race.measured().next().is_none() {
        return "No trial succeeded under this load.".into();
    }
    if race.baseline().is_none() {
        return "The baseline without speculation was not measured, so it is unknown whether speculation pays.".into();
    }
    "No speculating configuration was measured, so it is unknown whether speculation pays.".into()
}

/// A difference from the engine's default is called insignificant only if it is known to be below
/// this, in logarithms.
const SMALL: f64 = 0.15;

/// States that the default does equally well, if the interval of the winner against it includes 1
/// and is narrow.
fn no_difference_from_default(race: &Race) -> Option<String> {
    let default = race.engine_default().filter(|default| !default.chosen)?;
    let Interval { low, high, kind, .. } = race.over_default?;
    let includes_one = kind != RangeKind::Single && low <= 1.0 && 1.0 <= high;
    let is_narrow = low.ln() > -SMALL && high.ln() < SMALL;
    (race.winner().is_some() && includes_one && is_narrow).then(|| {
        format!(
            " No significant difference from the engine's default, {}.",
            names::short(&default.ranked.configuration)
        )
    })
}

#[cfg(test)]
mod tests {
    use tuner::trials::{
        configuration::{Real, TrialLoad},
        record::{Measurement, Record, Stalls, TrialSpread},
    };

    use super::*;
    use crate::fixtures;

    /// A trial; its figures are without stalls in a closed loop.
    fn record(load: TrialLoad, shape: &str, repeat: usize, rate: f64, stalled: f64) -> Record {
        let spread = |value| TrialSpread { min: value, median: value, p90: value, p99: value, max: value, count: 1 };
        let mut figures = Measurement {
            requests: 1,
            output_tokens: 100,
            elapsed_s: 100.0 / rate,
            output_tokens_per_s: rate,
            tokens_per_s_per_user: rate,
            accept_length: 2.0,
            accept_histogram: vec![1, 2],
            rounds: 50,
            round_ms: spread(1.0),
            running_batch: vec![50],
            time_to_first_token_ms: spread(1.0),
            latency_ms: spread(1e5 / rate),
            stalls: Some(Stalls { of_time: stalled, of_steps: 0.05 }),
            ..Measurement::default()
        };
        if load.batch_size().is_some() {
            figures.steady = Some(figures.by_wall_clock());
            figures.output_tokens_per_s *= 1.0 - stalled;
        }
        fixtures::measured(load, shape, repeat, figures)
    }

    /// A race of no speculation and two trees; the stalled shares are those of no speculation and
    /// of the trees.
    fn race(load: TrialLoad, stalled: [f64; 2]) -> Race {
        let mut records = Vec::new();
        for (repeat, noise) in [0.0, 0.5, -0.5].into_iter().enumerate() {
            records.push(record(load, "0,1,1", repeat, 100.0 + noise, stalled[0]));
            records.push(record(load, "3,1,4", repeat, 90.0 - noise, stalled[1]));
            records.push(record(load, "5,4,8", repeat, 80.0 + noise, stalled[1]));
        }
        fixtures::race(&records)
    }

    #[test]
    fn stalls_are_part_of_the_figures_of_an_open_loop_and_of_no_other() {
        let open = disturbance(&race(TrialLoad::RequestRate(Real(20.0)), [0.08; 2])).expect("stalls");
        let stalls = "8.0% of the time was stalls (median over trials), which are part of all figures";
        assert!(open.contains(stalls), "{open}");
        assert!(!open.contains("not counted") && !open.contains("By wall-clock"), "{open}");
        let closed = disturbance(&race(TrialLoad::BatchSize(1), [0.08; 2])).expect("stalls");
        assert!(closed.contains("not counted") && !closed.contains("Warning"), "{closed}");
        assert_eq!(disturbance(&race(TrialLoad::BatchSize(1), [0.01; 2])), None);
    }

    #[test]
    fn a_choice_that_the_wall_clock_contradicts_has_a_warning_with_both_configurations() {
        let mut records = Vec::new();
        for (repeat, noise) in [0.0, 0.5, -0.5].into_iter().enumerate() {
            let load = TrialLoad::BatchSize(1);
            records.push(record(load, "0,1,1", repeat, 100.0 + noise, 0.0));
            records.push(record(load, "3,1,4", repeat, 130.0 - noise, 0.0));
            records.push(record(load, "5,4,8", repeat, 160.0 + noise, 0.25));
        }
        let race = fixtures::race(&records);
        assert_eq!(race.verdict, SpeculationVerdict::Pays);
        let words = disturbance(&race).expect("stalls");
        assert!(words.contains("Warning: whether 5,4,8 or 3,1,4 is faster is not known."), "{words}");
        assert!(words.contains("25% of the time of 5,4,8 and 0% of that of 3,1,4"), "{words}");
        assert!(words.contains("3,1,4 is at 1.08× of 5,4,8"), "{words}");
        assert!(notes(&race).iter().any(|note| note.contains("is not known")));
    }

    #[test]
    fn stalls_of_one_side_are_a_warning_with_both_shares() {
        let race = race(TrialLoad::BatchSize(1), [0.4, 0.1]);
        let words = disturbance(&race).expect("stalls");
        let shares = "stalls were 10% of the time of 3,1,4 and 40% of that of no speculation (means over trials)";
        assert!(words.contains(shares), "{words}");
        assert_eq!(words.matches("By wall-clock time").count(), 1, "{words}");
        assert!(words.contains("3,1,4 is at 1.35×"), "{words}");
        assert_eq!(notes(&race).len(), 1);
        let (words, mood) = verdict(&race);
        assert!(words.contains("by the wall clock, stalls included, the answer is another"), "{words}");
        assert!(words.contains("While nothing else runs") && mood == "unknown", "{words}");
    }

    #[test]
    fn the_largest_gain_is_that_of_a_configuration() {
        let with = |highs: [f64; 2]| {
            let mut race = race(TrialLoad::BatchSize(1), [0.0; 2]);
            let speculating = race.entries.iter_mut().filter(|entry| !entry.is_off());
            for (entry, high) in speculating.zip(highs) {
                let (kind, coverage) = (RangeKind::Confidence, 0.985);
                entry.ranked.speedup = Some(Interval { median: 0.9, low: 0.8, high, kind, coverage });
            }
            at_most(&race)
        };
        assert_eq!(with([1.49, 1.02]), " Any gain is at most +49%.");
        assert_eq!(with([1.02, 1.49]), " Any gain is at most +49%, that of 5,4,8.");
    }
}
