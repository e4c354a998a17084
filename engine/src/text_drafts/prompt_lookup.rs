//! vLLM's prompt lookup: the tokens after an earlier occurrence of the last n tokens, n as large as
//! possible.
//!
//! A text of a hundred thousand tokens is too long to be scanned before every round. So all places
//! where it has the same few tokens are linked, from the last to the first, as in compressors of
//! the LZ77 family.

use std::collections::HashMap;

use crate::spec::{Occurrence, PromptLookup};

/// Most tokens by which places are linked. More would be rarer, but shorter runs would not be
/// found.
const LINKED: usize = 2;

/// The places where runs of tokens end in a text, which only grows.
#[derive(Debug)]
pub struct Occurrences {
    rule: PromptLookup,
    /// The last place after the same tokens.
    latest: HashMap<[u32; LINKED], u32>,
    /// For each place, the last one before it after the same tokens; 0 for none.
    before: Vec<u32>,
}

impl Occurrences {
    /// The occurrences in an empty text.
    pub fn new(rule: PromptLookup) -> Self {
        Self { rule, latest: HashMap::new(), before: vec![0] }
    }

    /// Reads the tokens that are new since the last time.
    pub fn read(&mut self, tokens: &[u32]) {
        let linked = self.rule.min.clamp(1, LINKED);
        for end in self.before.len()..=tokens.len() {
            let mut run = [0; LINKED];
            let before = match tokens[..end].last_chunk() {
                Some(last) if linked == LINKED => self.latest.insert(*last, end as u32),
                _ if linked < LINKED => {
                    run[0] = tokens[end - 1];
                    self.latest.insert(run, end as u32)
                }
                _ => None,
            };
            self.before.push(before.unwrap_or_default());
        }
    }

    /// The number of tokens that an earlier occurrence shares with the last ones of the text that
    /// was read, and what follows it; nothing if there is none. The occurrence may overlap the
    /// looked up tokens.
    pub fn find<'t>(&self, tokens: &'t [u32]) -> (usize, &'t [u32]) {
        let PromptLookup { min, max, occurrence } = self.rule;
        // The place after the longest run so far, and its length. Places are visited from the last
        // to the first.
        let mut best = (0, 0);
        let mut end = self.before.get(tokens.len()).copied().unwrap_or_default() as usize;
        while end > 0 {
            let equal = common(&tokens[..end], tokens, max);
            let is_better = equal > best.1 || (equal == best.1 && occurrence == Occurrence::Earliest);
            if equal >= min && is_better {
                best = (end, equal);
            }
            if best.1 == max && occurrence != Occurrence::Earliest {
                break;
            }
            end = self.before[end] as usize;
        }
        match best {
            (_, 0) => (0, &[]),
            (end, equal) => (equal, &tokens[end..]),
        }
    }
}

/// Number of equal tokens at the end, up to `most`.
fn common(one: &[u32], other: &[u32], most: usize) -> usize {
    one.iter().rev().zip(other.iter().rev()).take(most).take_while(|(one, other)| one == other).count()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The rule as it is worded: for n from the longest, all places where the last n tokens occur.
    fn by_definition(tokens: &[u32], rule: PromptLookup, most: usize) -> Vec<u32> {
        for n in (rule.min..=rule.max.min(tokens.len().saturating_sub(1))).rev() {
            let last = &tokens[tokens.len() - n..];
            let mut starts = (0..tokens.len() - n).filter(|start| &tokens[*start..start + n] == last);
            let start = if rule.occurrence == Occurrence::Earliest { starts.next() } else { starts.next_back() };
            if let Some(start) = start {
                return tokens[start + n..].iter().take(most).copied().collect();
            }
        }
        Vec::new()
    }

    fn drafts(tokens: &[u32], rule: PromptLookup, most: usize) -> Vec<u32> {
        let mut occurrences = Occurrences::new(rule);
        occurrences.read(tokens);
        occurrences.find(tokens).1.iter().take(most).copied().collect()
    }

    #[test]
    fn the_earliest_or_the_latest_of_the_longest_occurrences_is_continued() {
        let rule = |min, max, occurrence| PromptLookup { min, max, occurrence };
        let tokens = [1, 2, 3, 9, 1, 2, 4, 1, 2];
        assert_eq!(drafts(&tokens, rule(1, 3, Occurrence::Earliest), 2), [3, 9]);
        assert_eq!(drafts(&tokens, rule(1, 3, Occurrence::Latest), 9), [4, 1, 2]);
        assert_eq!(drafts(&tokens, rule(3, 3, Occurrence::Latest), 9), [0; 0]);
        assert_eq!(drafts(&[7, 7, 7], rule(1, 5, Occurrence::Earliest), 9), [7]);
        assert_eq!(drafts(&[], rule(1, 5, Occurrence::Earliest), 9), [0; 0]);
    }

    proptest! {
        #[test]
        fn linked_places_find_what_the_definition_says(
            tokens in prop::collection::vec(0_u32..4, 0..40), min in 1_usize..4, more in 0_usize..4, most in 0_usize..6,
            earliest: bool,
        ) {
            let occurrence = if earliest { Occurrence::Earliest } else { Occurrence::Latest };
            let rule = PromptLookup { min, max: min + more, occurrence };
            prop_assert_eq!(drafts(&tokens, rule, most), by_definition(&tokens, rule, most));
        }

        #[test]
        fn text_that_is_read_in_pieces_is_found_in_as_one_that_is_read_at_once(
            tokens in prop::collection::vec(0_u32..3, 0..40), piece in 1_usize..9, min in 1_usize..4,
        ) {
            let rule = PromptLookup { min, max: min + 2, occurrence: Occurrence::Latest };
            let (mut pieces, mut once) = (Occurrences::new(rule), Occurrences::new(rule));
            for end in (0..tokens.len()).step_by(piece) {
                pieces.read(&tokens[..end]);
                pieces.read(&tokens[..end]);
            }
            pieces.read(&tokens);
            once.read(&tokens);
            prop_assert_eq!(pieces.find(&tokens), once.find(&tokens));
        }
    }
}
