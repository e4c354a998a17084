//! The configuration to run at each load, if it depends on the load.

use super::part::{Cell, PartTable};
use crate::{columns, figures, race::Race, section::Section};

/// One row per load; `None` if all loads have the same winner, or fewer than two have one.
pub fn table(section: &Section<'_>) -> Option<PartTable> {
    let decided: Vec<&Race> = section.races.iter().filter(|race| race.winner().is_some()).collect();
    let differ = decided.windows(2).any(|pair| pair[0].chosen != pair[1].chosen);
    let row = |race: &&Race| {
        let winner = race.winner()?;
        Some(vec![
            Cell::text(race.load.to_string()),
            Cell::text(columns::name(winner)),
            Cell::text(race.verdict.words()),
            Cell::number(winner.ranked.speedup.map(|speedup| speedup.median), figures::ratio),
            Cell::number(race.over_default.map(|ratio| ratio.median), figures::ratio),
            Cell::number(winner.ranked.accept_length, figures::quantity),
        ])
    };
    differ.then(|| {
        PartTable::new(
            "The best configuration changes with the load",
            &["load", "run", "verdict", "#over no speculation", "#over the default", "#accept length"],
            decided.iter().filter_map(row).collect(),
        )
    })
}
