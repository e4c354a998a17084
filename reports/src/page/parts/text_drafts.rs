//! What drafts from texts would accept on the texts of the workload.

use tuner::prediction::text_drafts::TextDraftRow;

use crate::{
    definitions, figures,
    page::part::{Cell, PagePart, PartTable},
};

/// The figures; `None` if no texts were replayed.
pub fn part(rows: &[TextDraftRow]) -> Option<PagePart> {
    if rows.is_empty() {
        return None;
    }
    let cells = |row: &TextDraftRow| {
        let (rounds, verified) = (row.rounds.iter())
            .fold((0, 0), |(rounds, verified), one| (rounds + one.rounds, verified + one.rounds * one.rows as u64));
        let each = (rounds > 0).then(|| verified as f64 / rounds as f64);
        vec![
            Cell::text(row.algorithm.clone()),
            Cell::text(row.shape.to_string()),
            Cell::number(row.own_request, figures::quantity),
            Cell::number(row.cold, figures::quantity),
            Cell::number(row.warm, figures::quantity),
            Cell::number(each, figures::quantity),
        ]
    };
    Some(PagePart {
        anchor: "text-drafts".into(),
        title: "Drafts from texts".into(),
        how: "Accept lengths of drafts without a model, which look up what followed the last tokens in earlier ones: \
              large where outputs repeat their prompts or each other."
            .into(),
        remarks: vec![
            "Replayed along the texts of this workload, each rule with its engine's defaults: PROMPT_LOOKUP and SUFFIX \
             are vLLM's ngram and suffix, NGRAM is SGLang's. Nothing of it was measured. Own request: a request looks \
             up its own tokens only. Cold: also the outputs of the requests before it, one after the other in the \
             workload's order. Warm: also all outputs, after each request ran once."
                .into(),
            format!("Accept length: {}.", definitions::ACCEPT_LENGTH),
        ],
        charts: Vec::new(),
        tables: vec![PartTable::new(
            "Drafts from texts",
            &["rule", "steps,topk,tokens", "#own request", "#cold, in order", "#warm", "#rows a round (cold)"],
            rows.iter().map(cells).collect(),
        )],
    })
}

#[cfg(test)]
mod tests {
    use tuner::prediction::text_drafts::TextRounds;

    use super::*;

    #[test]
    fn every_rule_has_a_row_with_what_it_could_look_up() {
        let row = TextDraftRow {
            algorithm: "SUFFIX".into(),
            shape: "24,1,25".parse().expect("a shape"),
            own_request: 1.5,
            cold: 1.75,
            warm: 8.0,
            rounds: vec![
                TextRounds { rows: 1, accepted: 0, rounds: 3 },
                TextRounds { rows: 5, accepted: 2, rounds: 1 },
            ],
        };
        let part = part(&[row]).expect("a part");
        let values: Vec<Option<f64>> = part.tables[0].rows[0].iter().map(|cell| cell.value).collect();
        assert_eq!(values, [None, None, Some(1.5), Some(1.75), Some(8.0), Some(2.0)]);
        assert!(super::part(&[]).is_none());
    }
}
