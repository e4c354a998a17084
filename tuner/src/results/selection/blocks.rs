//! Groups trials that may be compared with each other: trials of one repeat, or of the repeats of
//! one start, that one host measured for one part of the sweep, without a long pause between them.

use std::collections::{BTreeMap, HashMap};

use crate::trials::record::{Record, TrialOrigin};

/// A pause longer than this, in seconds, separates the trials before it from those after it: the
/// machine may have changed.
const PAUSE: f64 = 3600.0;

/// Places of records by journal, in order of time.
pub type InOrder<'a> = BTreeMap<&'a TrialOrigin, Vec<usize>>;

/// The places of the records of each journal, in order of time.
pub fn in_order<'a>(records: &[&'a Record]) -> InOrder<'a> {
    let mut by_origin = InOrder::new();
    for (place, record) in records.iter().enumerate() {
        by_origin.entry(&record.origin).or_default().push(place);
    }
    // A stable sort: trials that ended in the same second keep the order of the journal.
    by_origin.values_mut().for_each(|places| places.sort_by_key(|place| records[*place].finished_at));
    by_origin
}

/// The block of each record, numbered from zero, where this many consecutive repeats form one.
pub fn blocks(records: &[&Record], in_order: &InOrder<'_>, repeats: usize) -> Vec<usize> {
    let mut blocks = vec![0; records.len()];
    let mut known = HashMap::new();
    for (origin, places) in in_order {
        let (mut stretch, mut last) = (0_usize, None);
        for place in places {
            let record = records[*place];
            let took = record.measurement().map_or(0.0, |figures| figures.elapsed_s);
            let begun = record.finished_at as f64 - took;
            // After a long pause the machine may be in another state, so its trials are not paired
            // with earlier ones.
            stretch += usize::from(last.is_some_and(|last| begun - last > PAUSE));
            last = Some(record.finished_at as f64);
            let next = known.len();
            blocks[*place] = *known.entry((origin, stretch, record.trial.repeat / repeats.max(1))).or_insert(next);
        }
    }
    blocks
}
