//! Every position of the texts, for traces.

use std::ops::ControlFlow;

use schemas::tree::TreeShape;

use super::{TextGroup, place};
use crate::{
    backend::RequiredTree,
    error::EngineError,
    replay::{
        ReplayReport,
        trace::{Marked, Nodes, TextTrace},
    },
};

/// Maximum number of positions that are expanded together.
const TOGETHER: usize = 256;

impl TextGroup<'_> {
    /// Prefills the texts and expands each of their positions, for each list of shapes of one
    /// family. Returns `[list][text]`, if it was cancelled without the texts that are not finished,
    /// and whether it goes on.
    ///
    /// # Errors
    /// When the device fails.
    pub fn positions(
        &mut self,
        lists: &[Vec<TreeShape>],
        reported: &mut ReplayReport<'_>,
    ) -> Result<(Vec<Vec<TextTrace>>, ControlFlow<()>), EngineError> {
        if self.read(None, reported)?.is_break() {
            return Ok((vec![Vec::new(); lists.len()], ControlFlow::Break(())));
        }
        let places: Vec<(usize, usize)> = (self.texts.iter().enumerate())
            .flat_map(|(at, text)| (text.prompt_tokens..text.tokens.len() - 1).map(move |position| (at, position)))
            .collect();
        let of_texts: Vec<TextTrace> = self.texts.iter().map(TextTrace::new).collect();
        let mut traces = vec![of_texts; lists.len()];
        let (mut done, mut expanded) = (0, 0);
        // All shapes of some places before the next ones, so that texts are finished one by one.
        for places_together in places.chunks(TOGETHER) {
            for (shapes, of_texts) in lists.iter().zip(&mut traces) {
                for ((text, _), nodes) in places_together.iter().zip(self.nodes(shapes, places_together)?) {
                    of_texts[*text].positions.push(nodes);
                }
                done += places_together.len();
            }
            expanded += places_together.len();
            if reported.tell(done).is_break() {
                let finished = places.get(expanded).map_or(self.texts.len(), |(text, _)| *text);
                traces.iter_mut().for_each(|of_texts| of_texts.truncate(finished));
                return Ok((traces, ControlFlow::Break(())));
            }
        }
        reported.done += done;
        Ok((traces, ControlFlow::Continue(())))
    }

    /// The nodes at some positions.
    fn nodes(&mut self, shapes: &[TreeShape], places: &[(usize, usize)]) -> Result<Vec<Nodes>, EngineError> {
        let requested: Vec<_> =
            places.iter().map(|(text, at)| place(*text, &self.texts[*text], *at, RequiredTree::Whole)).collect();
        let pools = self.backend.pools(&requested, shapes)?;
        let marked: Vec<Marked<'_>> =
            pools.iter().zip(&requested).map(|(pool, place)| Marked::new(pool, shapes, place.text)).collect();
        // A greedy target takes the text's token for certain: only of sampled texts it is asked.
        let sampled: Vec<bool> = places.iter().map(|(text, _)| !self.texts[*text].sampling.is_greedy()).collect();
        let of_sampled = |at: &usize| sampled[*at];
        let indices: Vec<usize> = (0..requested.len()).filter(of_sampled).collect();
        let offers: std::collections::HashMap<(u32, usize), Vec<Vec<u32>>> = indices
            .iter()
            .map(|at| {
                ((requested[*at].slot.0, requested[*at].position), marked[*at].offered(requested[*at].text.len()))
            })
            .collect();
        let (some, some_pools): (Vec<_>, Vec<_>) =
            indices.iter().map(|at| (requested[*at], pools[*at].clone())).unzip();
        self.chances.ask(self.backend, &some, &some_pools, |place, _| {
            offers.get(&(place.slot.0, place.position)).cloned().into_iter().collect()
        })?;
        let chances = &self.chances;
        Ok((marked.iter().zip(&requested).zip(&sampled))
            .map(|((marked, place), sampled)| {
                marked.nodes(place.text, |depth, token| {
                    sampled.then(|| chances.probability(place.slot, place.position + depth, token))?
                })
            })
            .collect())
    }
}
