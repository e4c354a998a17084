//! Engine settings: defaults for what a sweep file omits, and the overrides of a configuration.

use engine::EngineOptions;
use schemas::sweep::SweepFile;

use crate::{
    space::Candidate,
    trials::configuration::{ContextRange, Knobs, Real, TrialLoad},
};

/// Default maximum number of running requests in an open loop: SGLang's default under speculation.
const OPEN_LOOP_REQUESTS: usize = 48;

/// The loads of a sweep file: closed loops ascending, each in every context bucket if there are
/// any, then rates ascending, then recorded arrivals.
pub fn loads(file: &SweepFile) -> Vec<TrialLoad> {
    let buckets = ContextRange::between(&file.batch.contexts);
    let closed = file.batch_sizes().into_iter().flat_map(|size| {
        let whole = buckets.is_empty().then_some(TrialLoad::BatchSize(size));
        whole.into_iter().chain(buckets.iter().map(move |contexts| TrialLoad::BatchInContexts(size, *contexts)))
    });
    let mut rates: Vec<Real> = file.arrivals.rates.iter().copied().map(Real).collect();
    rates.sort_unstable();
    rates.dedup();
    let recorded = file.arrivals.recorded.then_some(TrialLoad::Recorded);
    closed.chain(rates.into_iter().map(TrialLoad::RequestRate)).chain(recorded).collect()
}

/// Maximum number of running requests without overrides: the file's value, else the largest batch
/// of its closed loops and tables, and at least 48 with an open loop.
pub fn max_running_requests(file: &SweepFile, entrants: &[Candidate]) -> usize {
    let closed = file.batch_sizes().into_iter();
    let tables = entrants.iter().flat_map(|one| one.configuration.table.iter().map(|row| row.max_running_batch));
    let open = (file.arrivals.count() > 0).then_some(OPEN_LOOP_REQUESTS);
    file.engine.max_running_requests.unwrap_or_else(|| closed.chain(tables).chain(open).max().unwrap_or(1))
}

/// The limit that a sweep file sets, as it appears in the fingerprint. A limit that follows from
/// the loads is not included, so that a sweep can grow by larger batches.
pub fn limit_in_words(file: &SweepFile) -> String {
    file.engine.max_running_requests.map_or_else(String::new, |limit| format!(", at most {limit} running"))
}

/// The engine's options with a configuration's overrides.
pub fn options_with(options: &EngineOptions, knobs: &Knobs) -> EngineOptions {
    let Knobs {
        max_running_requests,
        mem_fraction_static,
        attention_backend,
        page_size,
        chunked_prefill_size,
        capture_sizes,
    } = knobs;
    EngineOptions {
        max_running_requests: max_running_requests.unwrap_or(options.max_running_requests),
        mem_fraction_static: mem_fraction_static.map_or(options.mem_fraction_static, |share| share.0),
        attention_backend: attention_backend.clone().or_else(|| options.attention_backend.clone()),
        page_size: page_size.unwrap_or(options.page_size),
        chunked_prefill_size: chunked_prefill_size.unwrap_or(options.chunked_prefill_size),
        capture_sizes: capture_sizes.clone().unwrap_or_else(|| options.capture_sizes.clone()),
        ..options.clone()
    }
}

#[cfg(test)]
mod tests {
    use schemas::{text::Source, tree::TreeShape};

    use super::*;
    use crate::trials::{
        configuration::{Configuration, TableRow},
        record::CandidateRole,
    };

    fn file(more: &str) -> SweepFile {
        let text = format!(
            "[models]\ntarget = 't'\ndraft = 'd'\nalgorithm = 'EAGLE3'\n[workload]\ntrace = 'trace.jsonl'\n{more}"
        );
        SweepFile::read(&Source::new("sweep.toml", text))
            .unwrap_or_else(|finding| panic!("{more}: {}", finding.message))
    }

    #[test]
    fn every_load_of_a_file_is_there_once() {
        let check = |more: &str, expected: &[TrialLoad]| assert_eq!(loads(&file(more)), expected, "{more}");
        let rate = |rate| TrialLoad::RequestRate(Real(rate));
        check("", &[TrialLoad::BatchSize(1)]);
        check("[arrivals]\nrates = [4.0, 0.5, 4.0]", &[rate(0.5), rate(4.0)]);
        check(
            "[batch]\nsizes = [8, 1]\n[arrivals]\nrecorded = true\nrates = [2]",
            &[TrialLoad::BatchSize(1), TrialLoad::BatchSize(8), rate(2.0), TrialLoad::Recorded],
        );
        let bucket = |above, up_to| ContextRange { above, up_to };
        let buckets = [bucket(0, Some(64)), bucket(64, Some(256)), bucket(256, None)];
        let all = [1, 8].into_iter().flat_map(|size| buckets.map(|one| TrialLoad::BatchInContexts(size, one)));
        check("[batch]\nsizes = [8, 1]\ncontexts = [64, 256]", &all.collect::<Vec<_>>());
        // A context is in exactly one of them, borders in the bucket that they end.
        for (context, expected) in [(1.0, 0), (64.0, 0), (64.5, 1), (256.0, 1), (256.5, 2), (1e9, 2)] {
            let found: Vec<usize> = (0..3).filter(|at| buckets[*at].contains(context)).collect();
            assert_eq!(found, [expected], "{context}");
        }
    }

    #[test]
    fn as_many_run_together_as_any_load_needs() {
        let row = |max_running_batch| TableRow::for_any_context(max_running_batch, TreeShape::OFF);
        let table = Configuration { table: vec![row(4), row(64)], ..Configuration::from_shape(TreeShape::OFF) };
        let entrants = [Candidate { configuration: table, role: CandidateRole::Candidate }];
        let check = |more: &str, entrants: &[Candidate], expected: usize| {
            assert_eq!(max_running_requests(&file(more), entrants), expected, "{more}");
        };
        check("", &[], 1);
        check("[batch]\nsizes = [1, 8]", &[], 8);
        check("[batch]\nsizes = [1, 8]", &entrants, 64);
        check("[arrivals]\nrates = [1]", &[], 48);
        check("[batch]\nsizes = [96]\n[arrivals]\nrecorded = true", &[], 96);
        check("[engine]\nmax_running_requests = 6\n[arrivals]\nrates = [1]", &entrants, 6);
    }

    #[test]
    fn a_configuration_changes_what_it_names_and_nothing_else() {
        let base = EngineOptions { max_running_requests: 9, page_size: 16, ..EngineOptions::default() };
        let check = |knobs: Knobs, change: fn(&mut EngineOptions)| {
            let mut expected = base.clone();
            change(&mut expected);
            assert_eq!(options_with(&base, &knobs), expected, "{knobs:?}");
        };
        let none = Knobs::default();
        check(none.clone(), |_| {});
        check(Knobs { max_running_requests: Some(3), ..none.clone() }, |options| options.max_running_requests = 3);
        check(Knobs { mem_fraction_static: Some(Real(0.5)), ..none.clone() }, |options| {
            options.mem_fraction_static = 0.5;
        });
        check(Knobs { attention_backend: Some("rows".into()), ..none.clone() }, |options| {
            options.attention_backend = Some("rows".into());
        });
        check(Knobs { page_size: Some(1), ..none.clone() }, |options| options.page_size = 1);
        check(Knobs { chunked_prefill_size: Some(64), ..none.clone() }, |options| options.chunked_prefill_size = 64);
        check(Knobs { capture_sizes: Some(vec![1, 5]), ..none }, |options| options.capture_sizes = vec![1, 5]);
    }
}
