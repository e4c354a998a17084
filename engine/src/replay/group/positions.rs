//! Every position of the texts, for traces.

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
    /// family. Returns `[list][text]`; `None` if it was cancelled.
    ///
    /// # Errors
    /// When the device fails.
    pub fn positions(
        &mut self,
        lists: &[Vec<TreeShape>],
        reported: &mut ReplayReport<'_>,
    ) -> Result<Option<Vec<Vec<TextTrace>>>, EngineError> {
        if self.read(None, reported)?.is_break() {
            return Ok(None);
        }
        let places: Vec<(usize, usize)> = (self.texts.iter().enumerate())
            .flat_map(|(at, text)| (text.prompt_tokens..text.tokens.len() - 1).map(move |position| (at, position)))
            .collect();
        let mut done = 0;
        let mut traces = Vec::with_capacity(lists.len());
        for shapes in lists {
            let mut of_texts: Vec<TextTrace> = self.texts.iter().map(TextTrace::new).collect();
            for places in places.chunks(TOGETHER) {
                for ((text, _), nodes) in places.iter().zip(self.nodes(shapes, places)?) {
                    of_texts[*text].positions.push(nodes);
                }
                done += places.len();
                if reported.tell(done).is_break() {
                    return Ok(None);
                }
            }
            traces.push(of_texts);
        }
        reported.done += done;
        Ok(Some(traces))
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
