//! Synthetic trials in folders, as written by sweeps.

use std::path::{Path, PathBuf};

use tuner::{
    strategy::Shard,
    trials::{
        journal::{Journal, JournalHeader},
        record::{CandidateRole, Record},
    },
};

use super::synthetic::{Synthetic, header};

/// Writes a journal with some records.
pub fn sweep(folder: &Path, header: &JournalHeader, records: &[Record]) {
    let mut journal = Journal::create(folder, header).expect("a journal");
    records.iter().for_each(|record| journal.append(record).expect("it is written"));
}

/// Writes the folders `shard-1` and `shard-2` of a sweep. Each has its own measurement of the
/// baselines; those of the second are earlier.
pub fn two_shards(folder: &Path, trials: &Synthetic) -> [PathBuf; 2] {
    let again = Synthetic { seed: trials.seed + 1, ..trials.clone() }.records();
    let (mut parts, mut candidates) = ([Vec::new(), Vec::new()], 0);
    for (record, again) in trials.records().into_iter().zip(again) {
        if record.role == CandidateRole::Candidate {
            parts[candidates % 2].push(record);
            candidates += 1;
        } else {
            parts[1].push(Record { finished_at: record.finished_at - 1, ..again });
            parts[0].push(record);
        }
    }
    [1, 2].map(|index| {
        let (folder, records) = (folder.join(format!("shard-{index}")), &parts[index - 1]);
        let mut header = JournalHeader { shard: Some(Shard { index, count: 2 }), planned: records.len(), ..header() };
        header.file.batch.sizes = Some(trials.batch_sizes.clone());
        header.file.search.repeats = trials.repeats;
        sweep(&folder, &header, records);
        folder
    })
}
