//! The parts of a section after its races: predictions, their basis, and how far figures can be
//! trusted.

mod acceptance;
mod captures;
mod contexts;
mod importance;
mod noise;
mod predictions;
mod round_times;
mod search;
mod text_drafts;
pub mod versus;

use crate::{error::ReportError, section::Section};

use super::part::PagePart;

/// All parts of a section that have content. Their anchors start with `prefix`.
///
/// # Errors
/// When a chart cannot be drawn.
pub fn for_section(section: &Section<'_>, prefix: &str) -> Result<Vec<PagePart>, ReportError> {
    let mut parts = Vec::new();
    parts.extend(contexts::part(section));
    parts.extend(predictions::part(section)?);
    if let Some(guide) = section.guide {
        for (at, guide) in guide.each().enumerate() {
            parts.push(acceptance::part(guide, section)?.for_draft(&guide.draft));
            // The texts are the same for every draft.
            parts.extend(text_drafts::part(&guide.acceptance.text_drafts).filter(|_| at == 0));
            parts.push(round_times::part(&guide.round_times)?.for_draft(&guide.draft));
            parts.extend(captures::part(&guide.captures)?.map(|part| part.for_draft(&guide.draft)));
        }
    }
    parts.extend(importance::part(section)?);
    parts.extend(noise::part(section)?);
    parts.push(search::part(section));
    parts.iter_mut().for_each(|part| part.anchor = format!("{prefix}{}", part.anchor));
    Ok(parts)
}
