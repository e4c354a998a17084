//! How often verdicts are wrong in simulated races without a difference, whose results are looked
//! at after every repeat: the part of a race that only needs scores, so that ten thousand races
//! take seconds.

use rand::{RngExt, SeedableRng, rngs::StdRng};

use super::{
    Looks, SpeculationVerdict,
    choice::{Judge, decided},
    scores::Scores,
};

/// No speculation and three others.
const ROWS: usize = 4;
/// Repeats before the first look and after the last one, as in [`strategy`](crate::strategy).
const REPEATS: std::ops::RangeInclusive<usize> = 3..=super::MOST_REPEATS;
/// Deviation of a score.
const NOISE: f64 = 0.02;

fn normal(random: &mut StdRng) -> f64 {
    let (radius, angle) = (1.0 - random.random::<f64>(), random.random::<f64>());
    (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
}

/// How races end.
#[derive(Debug, Default)]
struct Ends {
    pays: usize,
    does_not_pay: usize,
    ties: usize,
    open: usize,
    repeats: usize,
}

impl Ends {
    /// Verdicts with either sign.
    fn wrong(&self) -> usize {
        self.pays + self.does_not_pay
    }
}

/// The verdict on some rows, the first without speculation.
fn verdict(rows: &[Vec<Option<f64>>], looks: Looks) -> Option<SpeculationVerdict> {
    let scores = Scores::new(rows.iter().cloned(), Some(0), looks);
    let judge = Judge { scores: &scores, off: Some(0), via: vec![0] };
    let standings = judge.standings(rows.len());
    let comparisons = judge.contenders(&standings);
    let ends = |standing: &super::choice::Standing| standing.over_off.and_then(|lead| lead.ends(comparisons));
    let leads: Vec<Option<(f64, f64)>> = standings[1..].iter().map(ends).collect();
    decided(&leads)
}

/// Races in which each configuration keeps a share of its noise from repeat to repeat, until the
/// first verdict; with [`Looks::Planned`] until this number of repeats.
fn races(count: u64, correlation: f64, leads: [f64; ROWS - 1], planned: Option<usize>) -> Ends {
    let mut ends = Ends::default();
    let fresh = (1.0 - correlation * correlation).sqrt();
    for seed in 0..count {
        let mut random = StdRng::seed_from_u64(seed);
        let mut noise: [f64; ROWS] = std::array::from_fn(|_| normal(&mut random));
        let mut rows = vec![Vec::new(); ROWS];
        let mut found = None;
        for repeat in 1..=planned.unwrap_or(*REPEATS.end()) {
            for (at, (row, noise)) in rows.iter_mut().zip(&mut noise).enumerate() {
                let lead = if at == 0 { 0.0 } else { leads[at - 1] };
                row.push(Some((lead + NOISE * *noise).exp()));
                *noise = correlation * *noise + fresh * normal(&mut random);
            }
            ends.repeats += 1;
            found = match planned {
                Some(last) => (repeat == last).then(|| verdict(&rows, Looks::Planned)).flatten(),
                None => REPEATS.contains(&repeat).then(|| verdict(&rows, Looks::Every)).flatten(),
            };
            if found.is_some() {
                break;
            }
        }
        match found {
            Some(SpeculationVerdict::Pays) => ends.pays += 1,
            Some(SpeculationVerdict::DoesNotPay) => ends.does_not_pay += 1,
            Some(_) => ends.ties += 1,
            None => ends.open += 1,
        }
    }
    ends
}

#[test]
fn at_most_two_in_a_hundred_of_ten_thousand_races_are_wrong_at_any_look() {
    let ends = races(10_000, 0.0, [0.0; 3], None);
    assert!(ends.wrong() <= 200, "{ends:?}");
    // Measuring on is worth it: nearly all of them end with a verdict.
    assert!(ends.open <= 100, "{ends:?}");
}

#[test]
fn nor_where_a_configuration_keeps_its_noise_from_repeat_to_repeat() {
    for correlation in [0.3, 0.5, 0.7, 0.9] {
        let ends = races(400, correlation, [0.0; 3], None);
        assert!(ends.wrong() <= 8, "{correlation}: {ends:?}");
    }
}

#[test]
fn a_difference_is_found_all_the_same() {
    let check = |correlation: f64, leads: [f64; 3], least: usize, verdict: fn(&Ends) -> usize| {
        let ends = races(100, correlation, leads, None);
        assert!(verdict(&ends) >= least, "{correlation} {leads:?}: {ends:?}");
    };
    check(0.0, [0.1, 0.05, -0.1], 99, |ends| ends.pays);
    check(0.5, [0.2, 0.05, -0.1], 95, |ends| ends.pays);
    // A gain above 5% is excluded before a loss is shown.
    check(0.0, [-0.1, -0.15, -0.2], 99, |ends| ends.does_not_pay + ends.ties);
}

#[test]
#[ignore = "prints the table of docs/notes/tuner.md, which takes minutes"]
fn rates_by_correlation() {
    let percent = |part: usize, races: u64| format!("{:.2}%", 100.0 * part as f64 / races as f64);
    println!("| correlation | until decided: pays | does not pay | open | repeats | planned, 3: wrong | 6 | 12 | 24 |");
    println!("|---|---|---|---|---|---|---|---|---|");
    for correlation in [0.0, 0.15, 0.3, 0.5, 0.7, 0.8, 0.9] {
        const RACES: u64 = 10_000;
        let ends = races(RACES, correlation, [0.0; 3], None);
        let planned = [3, 6, 12, 24].map(|repeats| races(RACES, correlation, [0.0; 3], Some(repeats)));
        println!(
            "| {correlation} | {} | {} | {} | {:.1} | {} |",
            percent(ends.pays, RACES),
            percent(ends.does_not_pay, RACES),
            percent(ends.open, RACES),
            ends.repeats as f64 / RACES as f64,
            planned.map(|ends| percent(ends.wrong(), RACES)).join(" | ")
        );
    }
    println!("| correlation | gain | pays | other verdicts | open | repeats |");
    println!("|---|---|---|---|---|---|");
    for correlation in [0.0, 0.3, 0.5, 0.7] {
        for (gain, leads) in [("+20%", [0.182, 0.1, -0.1]), ("+10%", [0.095, 0.05, -0.1]), ("+5%", [0.049, 0.02, -0.1])]
        {
            const RACES: u64 = 1000;
            let ends = races(RACES, correlation, leads, None);
            println!(
                "| {correlation} | {gain} | {} | {} | {} | {:.1} |",
                percent(ends.pays, RACES),
                percent(ends.does_not_pay + ends.ties, RACES),
                percent(ends.open, RACES),
                ends.repeats as f64 / RACES as f64
            );
        }
    }
}
