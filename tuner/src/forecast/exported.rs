//! A simulated policy as flags of slime, or as rows of a tuned file.

pub mod dspark;
pub mod temperatures;

use schemas::{
    adaptive, drafting,
    tree::{NodeSource, TreeShape},
};

use super::{Setup, plan::SimulatedRow};

/// slime's flags for the engines that it starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlimeFlags {
    /// The flags, in order; empty for no speculation.
    pub flags: Vec<String>,
    /// Contents of the file that `--sglang-speculative-adaptive-config` names, if there is one.
    pub file: Option<String>,
    /// Whether the user has to add the draft's folder, which a simulation does not know.
    pub needs_draft: bool,
    /// What the flags cannot express.
    pub warnings: Vec<String>,
}

/// The `[[policy]]` rows of a tuned file for a table, which spectune's own engine follows by batch
/// and context. Nothing in them is measured, so figures are 0 and the verdict is that it is not
/// known.
pub fn spectune(table: &[SimulatedRow]) -> String {
    let row = |row: &SimulatedRow| {
        let context = row.context.map_or_else(String::new, |context| format!("max_context = {}\n", context as usize));
        let TreeShape { num_steps, topk, num_draft_tokens, row_budget } = row.shape;
        let budget = row_budget.map_or_else(String::new, |budget| format!("row_budget = {budget}\n"));
        format!(
            "[[policy]]\nmax_running_batch = {}\n{context}measured_batch = 0\nnum_steps = {num_steps}\ntopk = {topk}\n\
             num_draft_tokens = {num_draft_tokens}\n{budget}output_tokens_per_s = 0.0\naccept_length = 0.0\nverdict = \"not-known\"\n\
             reason = \"simulated, not measured\"\n",
            row.batch
        )
    };
    table.iter().map(row).collect::<Vec<_>>().join("\n")
}

/// The flags of SGLang's own rule, launched with this many steps; `file` is the path of its
/// adaptive file, if it has one.
///
/// # Errors
/// A message, when SGLang has no such rule for the draft.
pub fn own_rule(algorithm: &str, start: usize, file: Option<&str>) -> Result<SlimeFlags, String> {
    // `SpeculativeAlgorithm.is_eagle` in SGLang; NEXTN is an alias.
    if !["EAGLE", "EAGLE3", "NEXTN"].iter().any(|name| name.eq_ignore_ascii_case(algorithm)) {
        return Err(format!(
            "SGLang changes chains by batch with EAGLE and EAGLE3 only, not with {algorithm}: leave policies with tables \
             out with --policy fixed"
        ));
    }
    let mut flags = shape_flags(algorithm, TreeShape::chain(start))?;
    flags.push("--sglang-speculative-adaptive".into());
    flags.extend(file.map(|file| format!("--sglang-speculative-adaptive-config {file}")));
    Ok(SlimeFlags { flags, file: None, needs_draft: needs_draft(algorithm), warnings: Vec::new() })
}

/// Whether SGLang does not start without the draft's folder.
fn needs_draft(algorithm: &str) -> bool {
    matches!(algorithm, "EAGLE3" | "STANDALONE") || matches!(NodeSource::named(algorithm), NodeSource::Block(_))
}

/// The draft and one shape.
fn shape_flags(algorithm: &str, shape: TreeShape) -> Result<Vec<String>, String> {
    let numbers = drafting::sglang_flags(algorithm, shape)
        .ok_or_else(|| format!("SGLang does not draft {shape} with {algorithm}"))?;
    let numbers = numbers.into_iter().map(|(key, number)| format!("--sglang-{} {number}", key.flag().name));
    Ok(std::iter::once(format!("--sglang-speculative-algorithm {algorithm}")).chain(numbers).collect())
}

/// The flags of a policy with this table, on an engine that is set up as the simulated one. `file`
/// is the path of the adaptive file, if one is needed.
///
/// # Errors
/// A message, when SGLang cannot run the policy.
pub fn slime(algorithm: &str, table: &[SimulatedRow], file: &str, setup: &Setup) -> Result<SlimeFlags, String> {
    let mut warnings = Vec::new();
    if table.iter().any(|row| row.context.is_some()) {
        warnings.push(
            "SGLang's tables have no context: the rows of the smallest contexts are exported, and contexts above them \
             run what was not chosen for them"
                .into(),
        );
    }
    // The first row of each batch is that of its smallest contexts.
    let mut rows: Vec<&SimulatedRow> = table.iter().collect();
    rows.dedup_by_key(|row| row.batch);
    let mut steps: Vec<(usize, TreeShape)> = Vec::new();
    let mut first = 1;
    for row in rows {
        if steps.last().is_none_or(|(_, shape)| *shape != row.shape) {
            steps.push((first, row.shape));
        }
        first = row.batch.saturating_add(1);
    }
    match steps.as_slice() {
        [] => Err("the policy has no table that SGLang could run".into()),
        [(_, one)] if one.is_off() => Ok(SlimeFlags { flags: Vec::new(), file: None, needs_draft: false, warnings }),
        [(_, one)] => {
            let flags = shape_flags(algorithm, *one)?;
            Ok(SlimeFlags { flags, file: None, needs_draft: needs_draft(algorithm), warnings })
        }
        several => {
            if let Some((_, tree)) = several.iter().find(|(_, shape)| shape.topk > 1 || shape.row_budget.is_some()) {
                return Err(format!(
                    "SGLang changes between chains only, and the table has the tree {tree}: simulate with --shapes that are \
                     chains"
                ));
            }
            let longest = several.iter().map(|(_, shape)| shape.num_steps).max().unwrap_or_default();
            let SlimeFlags { mut flags, needs_draft, .. } = own_rule(algorithm, longest, Some(file))?;
            // SGLang looks a batch up by the capture size to which it pads: without one at each
            // border, a row would begin too early.
            let borders = several.iter().skip(1).map(|(first, _)| first - 1);
            let most = setup.max_running_requests;
            let mut sizes: Vec<usize> = setup.capture_sizes.iter().copied().chain(borders).chain([most]).collect();
            sizes.retain(|size| *size <= most);
            sizes.sort_unstable();
            sizes.dedup();
            let sizes = sizes.iter().map(usize::to_string).collect::<Vec<_>>().join(" ");
            flags.push(format!("--sglang-cuda-graph-bs {sizes}"));
            let slots = several.iter().map(|(first, shape)| (*first, shape.num_steps));
            Ok(SlimeFlags { flags, file: Some(adaptive::write(slots)), needs_draft, warnings })
        }
    }
}

#[cfg(test)]
mod tests {
    use schemas::{text::Source, tuned::TunedFile};

    use super::*;

    fn slime(algorithm: &str, table: &[SimulatedRow], file: &str) -> Result<SlimeFlags, String> {
        let setup = Setup {
            capture_sizes: vec![1, 16, 512],
            max_running_requests: 256,
            memory: None,
            prefill_budget: 8192,
            prefill_chunk: 8192,
            rounds_behind: 1,
            mixed_prefill: false,
        };
        super::slime(algorithm, table, file, &setup)
    }

    #[test]
    fn tables_of_chains_become_a_file_and_trees_are_refused() {
        let row = |batch, context, steps| SimulatedRow { batch, context, shape: TreeShape::chain(steps) };
        let table = [row(1, None, 3), row(8, None, 3), row(32, None, 1), row(256, None, 0)];
        let found = slime("EAGLE3", &table, "tiers.json").expect("chains");
        assert_eq!(found.flags[1], "--sglang-speculative-num-steps 3");
        assert_eq!(found.flags[5], "--sglang-speculative-adaptive-config tiers.json");
        let expected = vec![(8, TreeShape::chain(3)), (32, TreeShape::chain(1)), (usize::MAX, TreeShape::OFF)];
        assert_eq!(adaptive::read(&found.file.expect("a file")), Ok(expected));
        // The borders are captured, and nothing beyond the limit of running requests.
        assert_eq!(found.flags[6], "--sglang-cuda-graph-bs 1 8 16 32 256");
        assert!(found.needs_draft && found.warnings.is_empty(), "{:?}", found.warnings);
        let contexts = [row(8, Some(1000.0), 2), row(8, None, 4)];
        let found = slime("EAGLE3", &contexts, "tiers.json").expect("one chain");
        assert_eq!((found.flags.len(), found.file), (4, None));
        assert!(found.warnings[0].contains("no context"));
        // A batch whose contexts all run the same has one row, which is exported too.
        let mixed = [row(8, Some(1000.0), 3), row(8, None, 5), row(64, None, 1)];
        let found = slime("EAGLE3", &mixed, "tiers.json").expect("chains");
        let expected = vec![(8, TreeShape::chain(3)), (usize::MAX, TreeShape::chain(1))];
        assert_eq!(adaptive::read(&found.file.expect("a file")), Ok(expected));
        assert_eq!(
            slime("EAGLE3", &[row(8, None, 0)], ""),
            Ok(SlimeFlags { flags: Vec::new(), file: None, needs_draft: false, warnings: Vec::new() })
        );
        assert_eq!(slime("NEXTN", &[row(8, None, 3)], "").map(|one| one.needs_draft), Ok(false));
        let tree = SimulatedRow { batch: 1, context: None, shape: "3,2,6".parse().expect("a shape") };
        assert!(slime("EAGLE3", &[tree, row(8, None, 0)], "").expect_err("a tree").contains("3,2,6"));
        assert!(slime("EAGLE3", &[], "").is_err());
        // The flags are those of the draft, and only EAGLE's chains change by batch.
        assert_eq!(
            slime("DSPARK", &[row(8, None, 7)], "").map(|one| one.flags),
            Ok(vec![
                "--sglang-speculative-algorithm DSPARK".to_owned(),
                "--sglang-speculative-dspark-block-size 7".to_owned(),
                "--sglang-speculative-num-draft-tokens 8".to_owned(),
            ])
        );
        assert!(slime("DSPARK", &table, "").expect_err("several chains").contains("not with DSPARK"));
    }

    #[test]
    fn rows_of_a_tuned_file_are_read_with_their_contexts() {
        let row = |batch, context, steps| SimulatedRow { batch, context, shape: TreeShape::chain(steps) };
        let rows = spectune(&[row(8, Some(1000.0), 3), row(8, None, 5), row(64, None, 0)]);
        let file = format!(
            "format = 2\nwritten_by = \"a test\"\nmodels = {{ target = \"a\", draft = \"b\", algorithm = \"EAGLE3\", dtype = \
             \"float32\" }}\nengine = {{ device = \"cpu\", context_length = 2000, page_size = 1, mem_fraction_static = 0.8, \
             max_running_requests = 64, capture_sizes = [] }}\n[measured]\ndevice_name = \"\"\ndriver = \"\"\nengine = \"\"\n\
             target_hash = \"\"\ndraft_hash = \"\"\nworkload_hash = \"\"\nobjective = \"throughput\"\n{rows}"
        );
        let read = TunedFile::read(&Source::new("tuned.toml", file));
        let shapes = read.map(|file| file.shapes_by_context());
        let expected = vec![
            (8, 1000, TreeShape::chain(3)),
            (8, usize::MAX, TreeShape::chain(5)),
            (64, usize::MAX, TreeShape::OFF),
        ];
        assert_eq!(shapes.map_err(|finding| finding.message), Ok(expected));
    }
}
