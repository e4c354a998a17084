//! The expected number of accepted drafts, from the target's probabilities of the tokens that a
//! tree offers along the text.
//!
//! Given the text up to a node, the target's next token is one of the node's children with the sum
//! of their probabilities. Summed over the nodes that the text visits, this is the expected number
//! of accepted drafts.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::{
    backend::{Pool, ProbabilityQuery, Replay, ReplayPlace, RequiredTree, Slot},
    error::EngineError,
};

/// Known probabilities of tokens after positions of slots' texts.
#[derive(Debug, Default)]
pub struct Chances(HashMap<(Slot, usize), HashMap<u32, f64>>);

impl Chances {
    /// Computes the missing target probabilities of everything that shapes offer at some positions.
    /// `offers` lists, for each shape, the tokens after each position of its path.
    ///
    /// # Errors
    /// When the device fails.
    pub fn ask(
        &mut self,
        backend: &mut dyn Replay,
        places: &[ReplayPlace<'_>],
        pools: &[Pool],
        offers: impl Fn(&ReplayPlace<'_>, &Pool) -> Vec<Vec<Vec<u32>>>,
    ) -> Result<(), EngineError> {
        let mut unknown: BTreeMap<(Slot, usize), BTreeSet<u32>> = BTreeMap::new();
        for (place, pool) in places.iter().zip(pools).filter(|(place, _)| place.wanted != RequiredTree::Accepted) {
            for offers in offers(place, pool) {
                for (position, tokens) in (place.position..).zip(offers) {
                    let at = (place.slot, position);
                    let known = self.0.get(&at);
                    let new = tokens.into_iter().filter(|token| known.is_none_or(|known| !known.contains_key(token)));
                    unknown.entry(at).or_default().extend(new);
                }
            }
        }
        let requested: Vec<ProbabilityQuery> = (unknown.into_iter())
            .filter(|(_, tokens)| !tokens.is_empty())
            .map(|((slot, position), tokens)| ProbabilityQuery { slot, position, tokens: tokens.into_iter().collect() })
            .collect();
        for (requested, chances) in requested.iter().zip(backend.probabilities(&requested)?) {
            let known = self.0.entry((requested.slot, requested.position)).or_default();
            known.extend(requested.tokens.iter().copied().zip(chances));
        }
        Ok(())
    }

    /// The target's probability of a token at a position of a slot's text, if it is known.
    pub fn probability(&self, slot: Slot, position: usize, token: u32) -> Option<f64> {
        self.0.get(&(slot, position))?.get(&token).copied()
    }

    /// The expected number of accepted drafts in a round that offers these tokens, depth by depth.
    pub fn sum(&self, place: &ReplayPlace<'_>, offers: &[Vec<u32>]) -> f64 {
        let chance = |position: usize, token: &u32| self.probability(place.slot, position, *token);
        (place.position..)
            .zip(offers)
            .flat_map(|(position, tokens)| tokens.iter().filter_map(move |token| chance(position, token)))
            .sum()
    }
}
