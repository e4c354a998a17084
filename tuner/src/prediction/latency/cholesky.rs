//! Solves systems of a few dozen equations with a symmetric positive definite matrix.

use serde::{Deserialize, Serialize};

/// The lower triangle L of a matrix L·Lᵀ, row by row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cholesky {
    rows: Vec<Vec<f64>>,
}

impl Cholesky {
    /// Factors the matrix with these elements; `None` if it is not positive definite.
    pub fn new(size: usize, element: impl Fn(usize, usize) -> f64) -> Option<Self> {
        let mut rows: Vec<Vec<f64>> = Vec::with_capacity(size);
        for at in 0..size {
            let mut row: Vec<f64> = Vec::with_capacity(at + 1);
            for (column, above) in rows.iter().enumerate() {
                let sum = element(at, column) - dot(&row, above);
                row.push(sum / above[column]);
            }
            let square = element(at, at) - dot(&row, &row);
            // Written so that NaN fails too.
            if !(square.is_finite() && square > 0.0) {
                return None;
            }
            row.push(square.sqrt());
            rows.push(row);
        }
        Some(Self { rows })
    }

    /// Number of equations.
    pub fn size(&self) -> usize {
        self.rows.len()
    }

    /// Whether it is a lower triangle of finite numbers with a positive diagonal; needed for values
    /// read from a file.
    pub fn is_sound(&self) -> bool {
        let triangle = |(at, row): (usize, &Vec<f64>)| row.len() == at + 1 && row.iter().all(|value| value.is_finite());
        self.rows.iter().enumerate().all(triangle)
            && self.rows.iter().all(|row| row.last().is_some_and(|last| *last > 0.0))
    }

    /// The y of L·y = b.
    pub fn forward(&self, right: &[f64]) -> Vec<f64> {
        let mut solution: Vec<f64> = Vec::with_capacity(right.len());
        for (row, value) in self.rows.iter().zip(right) {
            let sum = value - dot(&solution, row);
            solution.push(sum / row[solution.len()]);
        }
        solution
    }

    /// The x of L·Lᵀ·x = b.
    pub fn solve(&self, right: &[f64]) -> Vec<f64> {
        let mut solution = self.forward(right);
        for at in (0..solution.len()).rev() {
            let below: f64 = (at + 1..solution.len()).map(|row| self.rows[row][at] * solution[row]).sum();
            solution[at] = (solution[at] - below) / self.rows[at][at];
        }
        solution
    }

    /// The diagonal of the inverse matrix.
    pub fn inverse_diagonal(&self) -> Vec<f64> {
        let mut diagonal = vec![0.0; self.size()];
        for (at, sum) in diagonal.iter_mut().enumerate() {
            // Column `at` of the inverse of L: zero above its diagonal.
            let mut column: Vec<f64> = Vec::with_capacity(self.size() - at);
            for (row, values) in self.rows.iter().enumerate().skip(at) {
                let unit = if row == at { 1.0 } else { 0.0 };
                column.push((unit - dot(&column, &values[at..])) / values[row]);
            }
            *sum = dot(&column, &column);
        }
        diagonal
    }
}

/// Dot product over the length of the shorter one.
fn dot(one: &[f64], other: &[f64]) -> f64 {
    one.iter().zip(other).map(|(one, other)| one * other).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn solutions_solve() {
        let matrix = [[4.0, 2.0, -1.0], [2.0, 5.0, 0.5], [-1.0, 0.5, 3.0]];
        let factor = Cholesky::new(3, |row, column| matrix[row][column]).expect("it is positive definite");
        let right = [1.0, -2.0, 7.0];
        let solution = factor.solve(&right);
        for (row, value) in matrix.iter().zip(right) {
            assert!((dot(row, &solution) - value).abs() < 1e-12);
        }
        for (at, value) in factor.inverse_diagonal().into_iter().enumerate() {
            let unit: Vec<f64> = (0..3).map(|row| if row == at { 1.0 } else { 0.0 }).collect();
            assert!((value - factor.solve(&unit)[at]).abs() < 1e-12);
        }
        assert!(factor.is_sound());
        assert_eq!(Cholesky::new(2, |row, column| if row == column { 1.0 } else { 2.0 }), None);
    }
}
