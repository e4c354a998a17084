//! Describes a section in words for headings: machine, models, workload, dates.

use std::collections::BTreeSet;

use tuner::files::date;

use super::Section;
use crate::{figures, race::Race, uneven};

/// What random prompts do not say.
const RANDOM_PROMPTS: &str =
    "the prompts are random tokens: accept lengths on them, and so the speed-ups, say nothing about text";

impl Section<'_> {
    /// Processor or GPU, with the hosts if known.
    pub fn machine(&self) -> String {
        let hosts: BTreeSet<&str> = self
            .records
            .iter()
            .map(|(_, record)| record.origin.host.as_str())
            .filter(|host| !host.is_empty())
            .collect();
        let device = &self.fingerprint.device_name;
        match hosts.len() {
            0 => device.clone(),
            1..=3 => format!("{device} ({})", hosts.into_iter().collect::<Vec<_>>().join(", ")),
            more => format!("{device} ({more} hosts)"),
        }
    }

    /// Target and draft; their hashes if no sweep file names them.
    pub fn models(&self) -> String {
        let named = self.sweeps.iter().find_map(|sweep| sweep.models());
        named.unwrap_or_else(|| {
            let draft = if self.fingerprint.draft.is_empty() { "no draft" } else { &self.fingerprint.draft };
            format!("target {} with {draft}", self.fingerprint.target)
        })
    }

    /// Description of the workload.
    pub fn workload(&self) -> String {
        let named = self.sweeps.iter().find_map(|sweep| sweep.workload());
        named.unwrap_or_else(|| format!("workload {}", self.fingerprint.workload))
    }

    /// The name of the prompts: their file's; the workload's hash if no sweep file names it.
    pub fn prompts(&self) -> String {
        let named = self.sweeps.iter().find_map(|sweep| sweep.prompts());
        named.unwrap_or_else(|| format!("workload {}", self.fingerprint.workload))
    }

    /// Dates of the first and last trial, in UTC.
    pub fn dates(&self) -> String {
        let times = || self.records.iter().map(|(_, record)| record.finished_at).filter(|time| *time > 0);
        let (Some(first), Some(last)) = (times().min(), times().max()) else { return "no trial yet".into() };
        let (first, last) = (date::utc(first), date::utc(last));
        let day = |date: &str| date.split(' ').next().unwrap_or_default().to_owned();
        if first == last {
            format!("{first} UTC")
        } else if day(&first) == day(&last) {
            format!("{first} to {} UTC", last.rsplit(' ').next().unwrap_or_default())
        } else {
            format!("{first} to {last} UTC")
        }
    }

    /// What limits the meaning of the answers under all loads, in a sentence each: warnings of the
    /// tuned files that are not about a single load, and what the workload says about itself.
    pub fn cautions(&self) -> Vec<String> {
        let loads: Vec<String> = self.races.iter().map(|race| format!("{}: ", race.load)).collect();
        let of_load = |warning: &str| loads.iter().any(|load| warning.starts_with(load.as_str()));
        let warnings = self.sweeps.iter().filter_map(|sweep| sweep.tuned.as_ref()).flat_map(|tuned| &tuned.warnings);
        let mut cautions: Vec<String> = warnings.filter(|warning| !of_load(warning)).cloned().collect();
        let random = self.sweeps.iter().any(|sweep| sweep.has_random_prompts());
        if random && !cautions.iter().any(|caution| caution.contains("random")) {
            cautions.push(RANDOM_PROMPTS.to_owned());
        }
        cautions.extend(self.races.iter().filter_map(retractions));
        cautions.extend(self.races.iter().flat_map(uneven::warnings));
        let mut known = BTreeSet::new();
        cautions.retain(|caution| known.insert(caution.clone()));
        cautions
    }

    /// The unambiguous name of the measured engine.
    pub fn engine(&self) -> String {
        match self.fingerprint.engine.strip_prefix("spectune ") {
            Some(version) => format!("spectune's own engine {version}"),
            None => self.fingerprint.engine.clone(),
        }
    }
}

/// A caution if requests of a load were retracted.
fn retractions(race: &Race) -> Option<String> {
    let most = race.measured().filter_map(|entry| entry.retractions).max_by(f64::total_cmp)?;
    Some(format!(
        "{}: the KV cache was full, so requests were put back and prefilled again, up to {} times a trial: the batch was \
         smaller then; lower it, or raise engine.mem_fraction_static",
        race.load,
        figures::quantity(most)
    ))
}

/// Labels that distinguish sections: the differing ones of machine, models, workload and engine,
/// and if these do not suffice, other parts of the fingerprint.
pub fn labels(sections: &[Section<'_>]) -> Vec<String> {
    let mut labels: Vec<Vec<String>> = vec![Vec::new(); sections.len()];
    let all_differ = |labels: &[Vec<String>]| labels.iter().collect::<BTreeSet<_>>().len() == labels.len();
    let says: [fn(&Section<'_>) -> String; 9] = [
        |section| section.machine(),
        |section| section.models(),
        |section| section.workload(),
        |section| section.engine(),
        |section| format!("driver {}", section.fingerprint.driver),
        |section| section.fingerprint.settings.clone(),
        |section| format!("target {}", section.fingerprint.target),
        |section| format!("draft {}", section.fingerprint.draft),
        |section| format!("workload {}", section.fingerprint.workload),
    ];
    for (place, say) in says.into_iter().enumerate() {
        let words: Vec<String> = sections.iter().map(say).collect();
        let same = words.windows(2).all(|pair| pair[0] == pair[1]);
        // A section always names its machine, and hashes only if nothing else distinguishes it.
        if place == 0 || (!same && (place < 4 || !all_differ(&labels))) {
            labels.iter_mut().zip(words).for_each(|(label, words)| label.push(words));
        }
    }
    labels.into_iter().map(|label| label.join(", ")).collect()
}
