//! Trials that are far slower than the other repeats of their configuration: something slowed all
//! of their steps alike, so it cannot be detected within the trial.
//!
//! A busy machine makes trials slower and never faster. So the speed of a configuration is what its
//! fastest repeats agree on, and trials far below it are excluded. If the fastest is an outlier, if
//! half of the repeats or more are slow, or if too many trials would be excluded, it is unknown
//! which of them are right: all stay, and intervals become wider.

use crate::statistics::median;

/// Passes that remove medians of rows and columns.
const PASSES: usize = 4;
/// The row's two fastest must agree within this many deviations…
const AGREE: f64 = 4.0;
/// …and a trial is slow if it is this many deviations below them…
const SLOW: f64 = 5.0;
/// …and by at least this much, in logarithms.
const FELT: f64 = 0.05;
/// Lower bound of the deviation: no machine is assumed to be steadier.
const STEADIEST: f64 = 0.01;
/// Maximum share of trials that may be excluded.
const MOST: f64 = 0.15;

/// Rows and columns of the slow cells of a race. The scores are logarithms.
pub fn cells(rows: &[Vec<Option<f64>>]) -> Vec<(usize, usize)> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or_default();
    let mut residuals = rows.to_vec();
    for _ in 0..PASSES {
        residuals.iter_mut().for_each(|row| center(row.iter_mut().flatten()));
        (0..columns).for_each(|at| center(residuals.iter_mut().filter_map(|row| row.get_mut(at)?.as_mut())));
    }
    let count = residuals.iter().flatten().flatten().count();
    let freedom = (count + 1).saturating_sub(rows.len() + columns);
    let sizes = residuals.iter().flatten().flatten().map(|residual| residual.abs()).collect();
    // Medians throughout: the trials that are looked for would distort means.
    let Some(size) = median(sizes).filter(|_| freedom > 0) else { return Vec::new() };
    // Scaled to the standard deviation of normal residuals, and corrected for the degrees of
    // freedom that the medians used up.
    let deviation = (1.4826 * size * (count as f64 / freedom as f64).sqrt()).max(STEADIEST);
    let by_row: Vec<Vec<usize>> = residuals.iter().map(|residuals| slow_of_row(residuals, deviation)).collect();
    // This many slow trials are not exceptions; the scatter has to show them.
    if by_row.iter().map(Vec::len).sum::<usize>() as f64 > MOST * count as f64 {
        return Vec::new();
    }
    // Half of the repeats of a configuration are no exceptions either: its speed may be theirs.
    let are_few = |(row, columns): &(usize, Vec<usize>)| 2 * columns.len() < residuals[*row].iter().flatten().count();
    let few = by_row.into_iter().enumerate().filter(are_few);
    few.flat_map(|(row, columns)| columns.into_iter().map(move |column| (row, column))).collect()
}

/// The columns of a row that are far below its two fastest.
fn slow_of_row(residuals: &[Option<f64>], deviation: f64) -> Vec<usize> {
    let mut sorted: Vec<f64> = residuals.iter().copied().flatten().collect();
    sorted.sort_unstable_by(|a, b| b.total_cmp(a));
    let [first, second, _, ..] = sorted[..] else { return Vec::new() };
    // If the two fastest disagree, it is not known what is normal for this configuration.
    if first - second > AGREE * deviation {
        return Vec::new();
    }
    let least = (first + second) / 2.0 - (SLOW * deviation).max(FELT);
    let is_slow = |residual: &Option<f64>| residual.is_some_and(|residual| residual < least);
    residuals.iter().enumerate().filter(|(_, residual)| is_slow(residual)).map(|(column, _)| column).collect()
}

/// Subtracts the median.
fn center<'a>(values: impl Iterator<Item = &'a mut f64>) {
    let values: Vec<&mut f64> = values.collect();
    let Some(middle) = median(values.iter().map(|value| **value).collect()) else { return };
    values.into_iter().for_each(|value| *value -= middle);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(scores: &[&[f64]]) -> Vec<Vec<Option<f64>>> {
        scores.iter().map(|row| row.iter().map(|score| Some(score.ln())).collect()).collect()
    }

    #[test]
    fn a_slow_repeat_is_left_out_where_the_others_agree() {
        let calm: &[f64] = &[100.0, 101.0, 99.0];
        let check = |row: &[f64], expected: &[(usize, usize)]| {
            assert_eq!(cells(&rows(&[row, calm, calm, &[200.0, 198.0, 203.0], calm])), expected, "{row:?}");
        };
        check(&[90.0, 60.0, 91.0], &[(0, 1)]);
        check(&[90.0, 89.0, 91.0], &[]);
        // The fastest is an outlier: two may have been slowed, or one may be too fast.
        check(&[90.0, 60.0, 61.0], &[]);
        check(&[90.0, 70.0, 50.0], &[]);
    }

    /// Found in a race on a busy machine: three of five repeats were excluded, and a verdict was
    /// computed from the two fastest.
    #[test]
    fn half_of_the_repeats_or_more_are_never_left_out() {
        let calm: &[f64] = &[100.0, 101.0, 99.0, 100.0, 100.5];
        let check = |row: &[f64], expected: &[(usize, usize)]| {
            let calm = &calm[..row.len()];
            assert_eq!(cells(&rows(&[row, calm, calm, calm, calm, calm])), expected, "{row:?}");
        };
        check(&[9138.0, 7129.0, 9099.0, 7815.0, 7348.0], &[]);
        check(&[9138.0, 7129.0, 9099.0, 9120.0, 7348.0], &[(0, 1), (0, 4)]);
        check(&[91.0, 60.0, 90.0, 61.0], &[]);
        check(&[91.0, 60.0, 90.0, 90.5], &[(0, 1)]);
    }

    #[test]
    fn where_many_are_slow_none_is_left_out() {
        assert_eq!(cells(&rows(&[&[90.0, 60.0, 91.0], &[100.0, 99.0, 50.0], &[70.0, 101.0, 99.0]])), []);
        assert_eq!(cells(&rows(&[&[90.0], &[50.0]])), []);
        assert_eq!(cells(&[]), []);
    }
}
