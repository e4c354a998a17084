//! Adjustments of the target's logits before a token is chosen: penalties, bias, a minimum length,
//! a grammar.
//!
//! An adjustment is a function of the request and of the tokens before the one that is chosen.
//! Acceptance asks the target for one token after the other along a path, so each token is drawn
//! from logits adjusted for exactly the tokens before it, and the output has the adjusted
//! distribution for any tree.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

/// How a request changes logits. Penalties are applied first, then the bias, then masks.
#[derive(Clone, Debug, PartialEq)]
pub struct Adjustments {
    /// Subtracted from the logit of each token that occurs in the output.
    pub presence_penalty: f32,
    /// Subtracted from the logit of each token, once per occurrence in the output.
    pub frequency_penalty: f32,
    /// Divides positive and multiplies negative logits of tokens that occur in the prompt or the
    /// output (Keskar et al. 2019, as in transformers and vLLM); 1 changes nothing.
    pub repetition_penalty: f32,
    /// Added to the logits of tokens.
    pub bias: Vec<(u32, f32)>,
    /// Minimum number of output tokens before one that ends the output, unless the grammar allows
    /// nothing else.
    pub min_new_tokens: usize,
    /// The grammar that the output must follow.
    pub grammar: Option<Grammar>,
}

/// A grammar that the output follows.
#[derive(Clone)]
pub struct Grammar(pub Arc<dyn Constraint>);

/// A grammar, independent of any output.
pub trait Constraint: fmt::Debug + Send + Sync {
    /// Starts to follow an output, from its first token on.
    fn start(&self) -> Box<dyn Follow>;
}

/// State of an output within its grammar.
pub trait Follow: fmt::Debug + Send + Sync {
    /// Sets the logits of all tokens that cannot come next to −∞. Tokens that end the output can
    /// come if it is complete.
    ///
    /// # Errors
    /// When the grammar cannot continue, for example because it exceeds a size limit. The output
    /// then ends.
    fn mask(&mut self, logits: &mut [f32]) -> Result<(), String>;

    /// Adds the chosen token, which may be one that ends the output.
    fn push(&mut self, token: u32);
}

/// State of the adjustments of a running request.
#[derive(Debug)]
pub struct Adjuster {
    adjustments: Adjustments,
    /// Tokens of the prompt; empty if they do not matter.
    prompt: BTreeSet<u32>,
    /// Tokens that end the output; empty if they may always come.
    ends: Vec<u32>,
    /// Number of occurrences of each token in the output.
    counts: BTreeMap<u32, u32>,
    produced: usize,
    grammar: Option<Box<dyn Follow>>,
    failure: Option<String>,
}

impl PartialEq for Grammar {
    /// Compares identity, not contents.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Debug for Grammar {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

impl Default for Adjustments {
    /// No adjustments.
    fn default() -> Self {
        Self {
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            repetition_penalty: 1.0,
            bias: Vec::new(),
            min_new_tokens: 0,
            grammar: None,
        }
    }
}

impl Adjustments {
    /// Whether they have no effect on an output that the tokens `ends` can end.
    pub fn change_nothing(&self, ends: &[u32]) -> bool {
        let least = if ends.is_empty() { 0 } else { self.min_new_tokens };
        Self { min_new_tokens: least, ..self.clone() } == Self::default()
    }
}

impl Adjuster {
    /// For an output that follows a prompt and that the tokens `ends` can end.
    pub fn new(adjustments: Adjustments, prompt: &[u32], ends: &[u32]) -> Self {
        // Only this penalty looks at the prompt; a set of a long one takes time and memory.
        let counts = adjustments.repetition_penalty != 1.0;
        Self {
            prompt: if counts { prompt.iter().copied().collect() } else { BTreeSet::new() },
            ends: if adjustments.min_new_tokens > 0 { ends.to_vec() } else { Vec::new() },
            counts: BTreeMap::new(),
            produced: 0,
            grammar: adjustments.grammar.as_ref().map(|grammar| grammar.0.start()),
            failure: None,
            adjustments,
        }
    }

    /// For a request that continues an output.
    pub fn after(adjustments: &Adjustments, prompt: &[u32], output: &[u32], ends: &[u32]) -> Self {
        let mut adjuster = Self::new(adjustments.clone(), prompt, ends);
        output.iter().for_each(|token| adjuster.push(*token));
        adjuster
    }

    /// The adjusted logits for the token after the output so far. None of them is finite if the
    /// grammar cannot continue.
    pub fn adjust(&mut self, logits: &[f32]) -> Vec<f32> {
        let Adjustments { presence_penalty, frequency_penalty, repetition_penalty, bias, .. } = &self.adjustments;
        let mut adjusted = logits.to_vec();
        if *repetition_penalty != 1.0 {
            // Each token once, however often it occurs and wherever.
            let seen = self.prompt.iter().chain(self.counts.keys().filter(|token| !self.prompt.contains(token)));
            for token in seen {
                if let Some(logit) = adjusted.get_mut(*token as usize) {
                    // Towards minus infinity for both signs, as in the models' own code.
                    *logit = if *logit > 0.0 { *logit / repetition_penalty } else { *logit * repetition_penalty };
                }
            }
        }
        for (token, count) in &self.counts {
            if let Some(logit) = adjusted.get_mut(*token as usize) {
                *logit -= presence_penalty + frequency_penalty * *count as f32;
            }
        }
        for (token, bias) in bias {
            if let Some(logit) = adjusted.get_mut(*token as usize) {
                *logit += bias;
            }
        }
        if let Some(grammar) = &mut self.grammar
            && let Err(reason) = grammar.mask(&mut adjusted)
        {
            self.failure.get_or_insert(reason);
            // No token is allowed, which the sampler reports as an end of the request.
            adjusted.fill(f32::NEG_INFINITY);
        }
        // Last, since an output that its grammar allows to do nothing else ends earlier.
        if self.produced < self.adjustments.min_new_tokens {
            forbid_unless_alone(&mut adjusted, &self.ends);
        }
        adjusted
    }

    /// Adds the chosen token.
    pub fn push(&mut self, token: u32) {
        self.produced += 1;
        *self.counts.entry(token).or_default() += 1;
        if let Some(grammar) = &mut self.grammar {
            grammar.push(token);
        }
    }

    /// Why no token can follow, if none can.
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }
}

/// Sets the logits of these tokens to −∞, unless no other token can come.
pub fn forbid_unless_alone(logits: &mut [f32], tokens: &[u32]) {
    let can_come = |(token, logit): (usize, &f32)| {
        *logit != f32::NEG_INFINITY && !tokens.iter().any(|forbidden| *forbidden as usize == token)
    };
    if !logits.iter().enumerate().any(can_come) {
        return;
    }
    for token in tokens {
        if let Some(logit) = logits.get_mut(*token as usize) {
            *logit = f32::NEG_INFINITY;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A grammar whose only output is the token 1, which token 0 ends.
    #[derive(Debug)]
    struct One;

    #[derive(Debug)]
    struct Rest(Vec<u32>);

    impl Constraint for One {
        fn start(&self) -> Box<dyn Follow> {
            Box::new(Rest(vec![0, 1]))
        }
    }

    impl Follow for Rest {
        fn mask(&mut self, logits: &mut [f32]) -> Result<(), String> {
            let next = self.0.last().map_or(0, |next| *next as usize);
            logits.iter_mut().enumerate().filter(|(token, _)| *token != next).for_each(|(_, logit)| {
                *logit = f32::NEG_INFINITY;
            });
            Ok(())
        }

        fn push(&mut self, _: u32) {
            self.0.pop();
        }
    }

    #[test]
    fn an_output_whose_grammar_is_finished_ends_before_the_minimum() {
        let adjustments =
            Adjustments { min_new_tokens: 9, grammar: Some(Grammar(Arc::new(One))), ..Adjustments::default() };
        let mut adjuster = Adjuster::new(adjustments, &[3], &[0]);
        assert_eq!(adjuster.adjust(&[1.0, 2.0]), [f32::NEG_INFINITY, 2.0]);
        adjuster.push(1);
        assert_eq!(adjuster.adjust(&[1.0, 2.0]), [1.0, f32::NEG_INFINITY]);
    }

    #[test]
    fn each_adjustment_does_what_it_says() {
        let check = |adjustments: Adjustments, output: &[u32], expected: [f32; 4]| {
            let mut adjuster = Adjuster::new(adjustments.clone(), &[3], &[0]);
            output.iter().for_each(|token| adjuster.push(*token));
            assert_eq!(adjuster.adjust(&[1.0, 2.0, -1.0, 4.0]), expected, "{adjustments:?}");
        };
        let none = Adjustments::default();
        check(none.clone(), &[1, 1], [1.0, 2.0, -1.0, 4.0]);
        check(Adjustments { presence_penalty: 0.5, ..none.clone() }, &[1, 1, 2], [1.0, 1.5, -1.5, 4.0]);
        check(Adjustments { frequency_penalty: 0.5, ..none.clone() }, &[1, 1, 2], [1.0, 1.0, -1.5, 4.0]);
        // Positive logits are divided, negative ones multiplied; the prompt's token counts too.
        check(Adjustments { repetition_penalty: 2.0, ..none.clone() }, &[1, 2, 3], [1.0, 1.0, -2.0, 2.0]);
        check(Adjustments { bias: vec![(2, 5.0), (9, 1.0)], ..none.clone() }, &[], [1.0, 2.0, 4.0, 4.0]);
        let least = Adjustments { min_new_tokens: 2, ..none };
        check(least.clone(), &[1], [f32::NEG_INFINITY, 2.0, -1.0, 4.0]);
        check(least.clone(), &[1, 1], [1.0, 2.0, -1.0, 4.0]);
        assert!(least.change_nothing(&[]) && !least.change_nothing(&[0]));
    }
}
