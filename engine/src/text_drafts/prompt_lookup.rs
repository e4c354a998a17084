//! vLLM's prompt lookup: the tokens after an earlier occurrence of the last n tokens, n as large as
//! possible.

use crate::spec::{Occurrence, PromptLookup};

/// At most `most` drafts after some tokens.
pub fn drafts(tokens: &[u32], rule: PromptLookup, most: usize) -> Vec<u32> {
    find(tokens, rule).1.iter().take(most).copied().collect()
}

/// The number of tokens that an earlier occurrence shares with the last ones, and what follows it;
/// nothing if there is none. The occurrence may overlap the looked up tokens.
pub fn find(tokens: &[u32], rule: PromptLookup) -> (usize, &[u32]) {
    // Tokens that end here equal the last ones: the place after them, and their number.
    let mut best = (0, 0);
    let ends: &mut dyn Iterator<Item = usize> = match rule.occurrence {
        Occurrence::Earliest => &mut (1..tokens.len()),
        Occurrence::Latest | Occurrence::LatestFilled => &mut (1..tokens.len()).rev(),
    };
    for end in ends {
        let equal = common(&tokens[..end], tokens, rule.max);
        if equal >= rule.min && equal > best.1 {
            best = (end, equal);
        }
        if best.1 == rule.max {
            break;
        }
    }
    match best {
        (_, 0) => (0, &[]),
        (end, equal) => (equal, &tokens[end..]),
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
        fn one_scan_finds_what_the_definition_says(
            tokens in prop::collection::vec(0_u32..4, 0..40), min in 1_usize..4, more in 0_usize..4, most in 0_usize..6,
            earliest: bool,
        ) {
            let occurrence = if earliest { Occurrence::Earliest } else { Occurrence::Latest };
            let rule = PromptLookup { min, max: min + more, occurrence };
            prop_assert_eq!(drafts(&tokens, rule, most), by_definition(&tokens, rule, most));
        }
    }
}
