//! Verdicts in races with a known truth: the fast part of the example of the same name.

#[path = "../examples/verdicts/simulated.rs"]
mod simulated;

use simulated::{Drift, EQUAL, Setting, Stalls, TRUTHS, Tally, run};

const RACES: usize = 60;

fn all(setting: Setting) -> Vec<(&'static str, Tally)> {
    TRUTHS.iter().zip(1..).map(|(truth, seed)| (truth.name, run(truth, setting, RACES, seed))).collect()
}

#[test]
fn claims_have_the_right_sign_whatever_the_machine_does() {
    for (stalls, share) in
        [(Stalls::Bursts, 0.0), (Stalls::Slices, 0.6), (Stalls::Throughout, 0.1), (Stalls::Episodes, 0.3)]
    {
        for repeats in [3, 5] {
            let tallies = all(Setting { repeats, stalls, share, drift: Drift::Linear });
            let signed = || tallies.iter().filter(|(name, _)| *name != EQUAL).map(|(_, tally)| tally);
            let races: usize = signed().map(|tally| tally.races).sum();
            let wrong: usize = signed().map(|tally| tally.wrong).sum();
            // One in 200.
            assert!(wrong * 200 <= races, "{stalls:?} {share} {repeats}: {wrong} of {races}");
        }
    }
}

#[test]
fn a_gain_of_five_percent_is_found_in_five_repeats_with_and_without_stalls_that_steps_tell() {
    for share in [0.0, 0.45] {
        let tallies = all(Setting { repeats: 5, stalls: Stalls::Slices, share, drift: Drift::None });
        let found = tallies.iter().find(|(name, _)| *name == "+5%").expect("a truth").1;
        // 80% of many more races; two standard errors below.
        assert!(found.pays * 100 >= found.races * 70, "{share}: {} of {}", found.pays, found.races);
    }
}
