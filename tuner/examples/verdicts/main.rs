//! How often verdicts are right, on a simulated machine: `cargo run --release -p tuner --example
//! verdicts [RACES [WORD]]`. WORD selects the settings whose line contains it.
//!
//! Prints a line per setting of stalls and drift, with three columns of repeats. Each cell shows
//! the truth with the most wrong claims, how often a true gain of 5% is found, and how often the
//! intervals contain the truth.

mod simulated;

use simulated::{Drift, EQUAL, Setting, Stalls, TRUTHS, Tally, run};

const REPEATS: [usize; 3] = [3, 5, 9];

fn main() {
    let races = std::env::args().nth(1).and_then(|races| races.parse().ok()).unwrap_or(1000);
    let word = std::env::args().nth(2).unwrap_or_default();
    println!("{races} races per truth and setting; 8 configurations; noise 2%; stalls of 10 to 300% of a trial's time");
    println!(
        "wrong: wrong-sign claims per 1,000 races, for the truth with the most (its name); none: gains claimed where all are"
    );
    println!("equal, per 1,000 races; 5%: a true gain of 5% is found; 20%: of 20%;");
    println!("held: intervals that contain the truth; tell: races that end in a verdict\n");
    println!("| stalls | of the trials | drift |{}", REPEATS.map(|repeats| format!(" {repeats} repeats |")).join(""));
    println!("|---|---|---|{}", "---|".repeat(REPEATS.len()));
    let kinds = [Stalls::Bursts, Stalls::Slices, Stalls::Throughout, Stalls::Episodes];
    let mut worst: f64 = 0.0;
    for drift in [Drift::None, Drift::Linear, Drift::Walk] {
        for stalls in kinds {
            for share in [0.0, 0.05, 0.1, 0.2, 0.3, 0.45, 0.6] {
                // Without stalls all kinds are the same.
                if share == 0.0 && stalls != Stalls::Bursts {
                    continue;
                }
                if drift != Drift::None && ![0.0, 0.1, 0.3, 0.6].contains(&share) {
                    continue;
                }
                let mut line = format!("| {stalls:?} | {:.0}% | {drift:?} |", share * 100.0);
                if !line.contains(&word) {
                    continue;
                }
                for repeats in REPEATS {
                    let (cell, wrong) = cell(Setting { repeats, stalls, share, drift }, races);
                    worst = worst.max(wrong);
                    line += &format!(" {cell} |");
                }
                println!("{line}");
            }
        }
    }
    println!("\nmost wrong claims for any truth and setting: {:.1} per 1,000", worst * 1e3);
}

fn cell(setting: Setting, races: usize) -> (String, f64) {
    let tallies: Vec<(&str, Tally)> =
        TRUTHS.iter().zip(1..).map(|(truth, seed)| (truth.name, run(truth, setting, races, seed))).collect();
    let wrong = |tally: &Tally| tally.wrong as f64 / tally.races.max(1) as f64;
    let signed = || tallies.iter().filter(|(name, _)| *name != EQUAL);
    let worst = signed().max_by(|a, b| wrong(&a.1).total_cmp(&wrong(&b.1))).expect("truths");
    let of = |name: &str| tallies.iter().find(|(of, _)| *of == name).expect("a truth").1;
    let percent = |part: usize, whole: usize| 100.0 * part as f64 / whole.max(1) as f64;
    let all = tallies.iter().fold(Tally::default(), |sum, (_, tally)| sum.and(*tally));
    let text = format!(
        "wrong {:.1} ({}), none {:.1}, 5% {:.0}%, 20% {:.0}%, held {:.1}%, tell {:.0}%",
        wrong(&worst.1) * 1e3,
        worst.0,
        wrong(&of(EQUAL)) * 1e3,
        percent(of("+5%").pays, races),
        percent(of("+20%").pays, races),
        percent(all.held, all.intervals),
        percent(all.pays + all.does_not_pay + all.ties, all.races)
    );
    (text, wrong(&worst.1))
}
