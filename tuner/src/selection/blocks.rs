//! Groups trials that may be compared with each other: trials of one repeat, or of the repeats of one start, that one host
//! measured for one part of the sweep, without a long pause between them.

use std::collections::{BTreeMap, HashMap};

use crate::record::{Origin, Record};

/// A pause longer than this, in seconds, separates the trials before it from those after it: the machine may have
/// changed.
const PAUSE: f64 = 3600.0;

/// The block of each record, numbered from zero, where this many consecutive repeats form one.
pub fn blocks(records: &[&Record], repeats: usize) -> Vec<usize> {
    let mut by_origin: BTreeMap<&Origin, Vec<usize>> = BTreeMap::new();
    for (place, record) in records.iter().enumerate() {
        by_origin.entry(&record.origin).or_default().push(place);
    }
    let mut blocks = vec![0; records.len()];
    let mut known = HashMap::new();
    for (origin, mut places) in by_origin {
        // A stable sort: trials that ended in the same second keep the order of the journal.
        places.sort_by_key(|place| records[*place].finished_at);
        let (mut stretch, mut last) = (0_usize, None);
        for place in places {
            let record = records[place];
            let took = record.measurement().map_or(0.0, |figures| figures.elapsed_s);
            let begun = record.finished_at as f64 - took;
            stretch += usize::from(last.is_some_and(|last| begun - last > PAUSE));
            last = Some(record.finished_at as f64);
            let next = known.len();
            blocks[place] = *known.entry((origin, stretch, record.trial.repeat / repeats.max(1))).or_insert(next);
        }
    }
    blocks
}
