//! Scatter and drift of the trials: deviations from the mean of their configuration, in the order
//! in which they ran.

use std::collections::HashMap;

use schemas::sweep::Metric;
use tuner::trials::{configuration::TrialLoad, record::Record};

use crate::statistics;

/// Minimum number of deviations for detecting a drift.
const FEWEST: usize = 9;

/// Deviations of all configurations that ran more than once.
pub struct Drift<'a> {
    /// In the order in which the trials ran.
    pub deviations: Vec<Deviation<'a>>,
    /// Half of the trials deviate from their configuration's mean by less than this share.
    pub half: f64,
    /// Nine of ten trials deviate by less than this share.
    pub most: f64,
    /// The median of the last third relative to that of the first third; `None` with too few
    /// trials.
    pub trend: Option<f64>,
}

/// The deviation of one trial from the mean of its configuration.
pub struct Deviation<'a> {
    /// The trial.
    pub record: &'a Record,
    /// Its position in the order, from one, including failed trials.
    pub place: usize,
    /// Its objective relative to the geometric mean of its configuration under its load: 1.02 is 2%
    /// better.
    pub ratio: f64,
}

/// The deviations of some trials; `None` if nothing ran twice.
pub fn compute<'a>(records: impl IntoIterator<Item = &'a Record>, metric: Metric) -> Option<Drift<'a>> {
    let mut order: Vec<&Record> = records.into_iter().collect();
    // A stable sort: trials that ended in the same second keep the journal's order.
    order.sort_by_key(|record| record.finished_at);
    let score = |record: &Record| record.measurement()?.score(metric).map(f64::ln).filter(|score| score.is_finite());
    let mut groups: HashMap<(TrialLoad, String), Vec<f64>> = HashMap::new();
    let key = |record: &Record| (record.trial.load, record.trial.configuration.to_string());
    for record in &order {
        if let Some(score) = score(record) {
            groups.entry(key(record)).or_default().push(score);
        }
    }
    let deviations: Vec<Deviation<'a>> = order
        .iter()
        .enumerate()
        .filter_map(|(place, record)| {
            let group = groups.get(&key(record)).filter(|group| group.len() > 1)?;
            let mean = group.iter().sum::<f64>() / group.len() as f64;
            Some(Deviation { record, place: place + 1, ratio: (score(record)? - mean).exp() })
        })
        .collect();
    let mut sizes: Vec<f64> = deviations.iter().map(|one| (one.ratio - 1.0).abs()).collect();
    sizes.sort_by(f64::total_cmp);
    let at = |share: f64| sizes.get(((sizes.len() as f64 * share).ceil() as usize).saturating_sub(1)).copied();
    Some(Drift { half: at(0.5)?, most: at(0.9)?, trend: trend(&deviations), deviations })
}

fn trend(deviations: &[Deviation<'_>]) -> Option<f64> {
    let third = deviations.len() / 3;
    let median = |part: &[Deviation<'_>]| statistics::median(part.iter().map(|one| one.ratio).collect());
    let (first, last) = (deviations.get(..third)?, deviations.get(deviations.len() - third..)?);
    (deviations.len() >= FEWEST).then(|| Some(median(last)? / median(first)?)).flatten()
}
