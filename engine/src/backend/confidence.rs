//! The confidence head of DSPARK: estimates how likely the target takes the best draft of a row,
//! given that it takes those before it.
//!
//! Drafts do not depend on it, so only traces ask for it, and the host computes it for every
//! backend.

use kernels::reference::{Matrix, linear};

use super::Pool;

/// A confidence head.
#[derive(Clone, Debug)]
pub struct ConfidenceHead {
    /// `[1, hidden]`, or with the Markov head's rank more inputs.
    pub weight: Matrix,
    /// One value.
    pub bias: Option<Vec<f32>>,
    /// Whether it reads the Markov head's row of the token before too.
    pub with_markov: bool,
}

impl ConfidenceHead {
    /// The log-odds that the best draft of each row is taken, from its hidden row and the Markov
    /// head's row of the token before it.
    pub fn log_odds<'a>(&self, rows: impl Iterator<Item = (&'a [f32], &'a [f32])>) -> Vec<f32> {
        let of_markov = |row: &'a [f32]| if self.with_markov { row } else { &[] };
        let inputs: Vec<f32> =
            rows.flat_map(|(hidden, before)| hidden.iter().chain(of_markov(before))).copied().collect();
        linear(&inputs, &self.weight, self.bias.as_deref())
    }
}

/// The token before each draft of a pool's best chain.
pub fn before_drafts(pool: &Pool, root: u32) -> Vec<u32> {
    let chain = pool.best_chain();
    let drafts = chain.iter().map(|place| pool.all()[*place].token);
    std::iter::once(root).chain(drafts).take(chain.len()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Proposal;

    #[test]
    fn the_row_of_the_token_before_is_read_where_the_head_was_trained_with_it() {
        let head = |with_markov: bool, weights: &[f32], bias: Option<f32>| ConfidenceHead {
            weight: Matrix::new(1, weights.len(), weights.to_vec()),
            bias: bias.map(|bias| vec![bias]),
            with_markov,
        };
        let rows: [(&[f32], &[f32]); 2] = [(&[1.0, 2.0], &[3.0]), (&[0.0, 1.0], &[-1.0])];
        assert_eq!(head(true, &[1.0, 0.5, 2.0], None).log_odds(rows.into_iter()), [8.0, -1.5]);
        assert_eq!(head(false, &[1.0, 0.5], Some(1.0)).log_odds(rows.into_iter()), [3.0, 1.5]);
    }

    #[test]
    fn the_best_chain_follows_the_best_child_of_each_draft() {
        let mut pool = Pool::default();
        pool.push_step(Proposal::children(None, 2, &[(7, -0.1), (8, -2.0)]));
        let of = |place: usize, score: f32, best: &[(u32, f32)]| {
            Proposal::children(Some((place, score)), 2, best).collect::<Vec<_>>()
        };
        pool.push_step([of(0, -0.1, &[(5, -0.3), (6, -1.0)]), of(1, -2.0, &[(4, -0.2), (3, -3.0)])].concat());
        pool.push_step(of(4, -2.2, &[(9, -0.1)]));
        assert_eq!((pool.best_chain(), before_drafts(&pool, 1)), (vec![0, 2], vec![1, 7]));
        assert!(before_drafts(&Pool::default(), 1).is_empty());
    }
}
