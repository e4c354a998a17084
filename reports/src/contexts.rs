//! What a batch gains by a table that follows the context: for each batch that was measured in
//! buckets of contexts, the best configuration of each bucket against the best single one.

use std::collections::BTreeMap;

use tuner::trials::configuration::{Configuration, ContextRange};

use crate::{
    figures, names,
    race::{Race, RaceEntry},
    section::Section,
    statistics,
};

/// The buckets of a batch.
pub struct BatchContexts<'a> {
    /// The batch size.
    pub batch: usize,
    /// The race of each bucket, shortest contexts first.
    pub races: Vec<(ContextRange, &'a Race)>,
    /// The gain of following the context; `None` if a bucket has no choice, or no configuration was
    /// measured in all of them.
    pub gain: Option<ContextGain>,
}

/// The choices of all buckets against the best single configuration, which has the least time over
/// all buckets.
pub struct ContextGain {
    /// The best single configuration of those that were measured in every bucket.
    pub single: Configuration,
    /// How many were.
    pub of: usize,
    /// Output tokens per second over the requests of all buckets, relative to it.
    pub ratio: f64,
}

/// All batches of a section that were measured in more than one bucket.
pub fn compute<'a>(section: &'a Section<'_>) -> Vec<BatchContexts<'a>> {
    let mut batches: BTreeMap<usize, Vec<(ContextRange, &Race)>> = BTreeMap::new();
    for race in &section.races {
        if let (Some(batch), Some(contexts)) = (race.load.batch_size(), race.load.contexts()) {
            batches.entry(batch).or_default().push((contexts, race));
        }
    }
    batches.retain(|_, races| races.len() > 1);
    let of = |(batch, races): (usize, Vec<(ContextRange, &'a Race)>)| {
        let gain = gain(section, &races);
        BatchContexts { batch, races, gain }
    };
    batches.into_iter().map(of).collect()
}

fn gain(section: &Section<'_>, races: &[(ContextRange, &Race)]) -> Option<ContextGain> {
    let tokens: Vec<f64> = races.iter().map(|(_, race)| tokens(section, race)).collect::<Option<_>>()?;
    let seconds = |entry: &RaceEntry, tokens: f64| Some(tokens / entry.ranked.output_tokens_per_s?.median);
    let chosen: f64 =
        races.iter().zip(&tokens).map(|((_, race), tokens)| seconds(race.winner()?, *tokens)).sum::<Option<f64>>()?;
    let whole = |configuration: &Configuration| -> Option<f64> {
        let of = |((_, race), tokens): (&(ContextRange, &Race), &f64)| seconds(entry(race, configuration)?, *tokens);
        races.iter().zip(&tokens).map(of).sum()
    };
    let all = races[0].1.measured().map(|entry| &entry.ranked.configuration);
    let singles: Vec<(&Configuration, f64)> = all.filter_map(|one| Some((one, whole(one)?))).collect();
    let (single, least) = singles.iter().copied().min_by(|a, b| a.1.total_cmp(&b.1))?;
    Some(ContextGain { single: single.clone(), of: singles.len(), ratio: least / chosen })
}

/// The measured entry of a configuration.
pub fn entry<'a>(race: &'a Race, configuration: &Configuration) -> Option<&'a RaceEntry> {
    race.measured().find(|entry| entry.ranked.configuration == *configuration)
}

/// Output tokens of a trial of a race: the median over its trials.
fn tokens(section: &Section<'_>, race: &Race) -> Option<f64> {
    let own = section.records.iter().filter(|(_, record)| record.trial.load == race.load);
    statistics::median(own.filter_map(|(_, record)| Some(record.measurement()?.output_tokens as f64)).collect())
}

impl BatchContexts<'_> {
    /// What following the context is worth, in a sentence; `None` if that is not known.
    pub fn sentence(&self) -> Option<String> {
        let ContextGain { single, of, ratio } = self.gain.as_ref()?;
        let choice = |(contexts, race): &(ContextRange, &Race)| {
            Some(format!("{} for {contexts}", names::short(&race.winner()?.ranked.configuration)))
        };
        let choices: Vec<String> = self.races.iter().filter_map(choice).collect();
        let first = self.races.first()?.1.chosen.as_ref()?;
        let differ = self.races.iter().any(|(_, race)| race.chosen.as_ref() != Some(first));
        let batch = self.batch;
        let measured = figures::counted(*of, "configuration", "configurations");
        if !differ {
            return Some(format!(
                "Batch {batch}: {} is the choice in every bucket of contexts, so a table by context gains nothing.",
                names::short(first)
            ));
        }
        Some(format!(
            "Batch {batch}: {} together are {} over {} everywhere, the fastest single one of {measured} that ran in every \
             bucket (output tokens per second over all buckets, on the trials that chose them).",
            choices.join(", "),
            figures::gain(*ratio),
            names::short(single),
        ))
    }
}
