//! Why a launch cannot be written.

use std::fmt;

use super::{Form, row::BatchSpan};
use crate::{chain_tables::NoTable, drafting::vllm_algorithms, tree::TreeShape, version::EngineVersion};

/// Why the launch cannot be written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExportError {
    /// The batch size is 0.
    #[error("a batch has at least one request: give --batch-size 1 or more")]
    EmptyBatch,
    /// The table has no row.
    #[error("the tuned file's table is empty: there is no tree shape to export")]
    EmptyTable,
    /// The rows of the table differ, but the launch runs one shape.
    #[error("{0}")]
    RowsDiffer(Box<RowsDiffer>),
    /// No target is named.
    #[error("the tuned file has no target: add a model_path")]
    NoTarget,
    /// The shape speculates, but no algorithm is named.
    #[error("the shape {0} speculates, but the tuned file has no speculative_algorithm")]
    NoAlgorithm(TreeShape),
    /// The algorithm needs a draft, but none is given.
    #[error("{0} needs a draft, but the tuned file has no speculative_draft_model_path")]
    NoDraft(String),
    /// The engine verifies chains only.
    #[error(
        "vLLM and the schedule of TensorRT-LLM draft chains, not trees: {0} has topk {topk}; sweep with topk 1, or \
         export it for SGLang",
        topk = .0.topk
    )]
    Tree(TreeShape),
    /// SGLang verifies a block as a chain.
    #[error(
        "SGLang runs a block as a chain, and {0} is a tree over it, which only spectune's engine verifies: sweep with topk 1"
    )]
    BlockTree(TreeShape),
    /// SGLang has no such look-up in texts.
    #[error("SGLang has no counterpart of the algorithm {0}, which is vLLM's: export it for vLLM")]
    TextChain(String),
    /// TensorRT-LLM's dynamic trees are of other sizes.
    #[error(
        "TensorRT-LLM's dynamic trees have at least num_steps and at most topk * num_steps = {most} draft tokens; {0} \
         has {drafts}",
        drafts = .0.num_draft_tokens.saturating_sub(1),
        most = .0.topk.saturating_mul(.0.num_steps)
    )]
    TensorRtTree(TreeShape),
    /// TensorRT-LLM drafts trees under two algorithms only.
    #[error("TensorRT-LLM drafts trees with EAGLE3 and NEXTN only, not with {0}")]
    TensorRtTreeAlgorithm(String),
    /// This version of TensorRT-LLM has no such keys.
    #[error("TensorRT-LLM {0} is not supported for {1}: these keys are those of 1.4")]
    TensorRtVersion(EngineVersion, &'static str),
    /// TensorRT-LLM's schedule must begin with its longest chain.
    #[error(
        "TensorRT-LLM's draft_len_schedule must begin with its longest chain, but the table has {0} draft tokens for the \
         smallest batches and {1} for larger ones; export one row with --batch-size N"
    )]
    TensorRtSchedule(usize, usize),
    /// Only spectune joins two sources of drafts.
    #[error(
        "the tuned drafts join a head with look-ups (second_source), which no other engine does: tune the head alone to \
         export it"
    )]
    SecondSource,
    /// Only spectune verifies a budget of rows.
    #[error(
        "the tuned shape {0} verifies a budget of rows over all requests, which no other engine does: tune without \
         budgets to export it"
    )]
    RowBudget(TreeShape),
    /// vLLM has no such algorithm.
    #[error("vLLM has no counterpart of the algorithm {0} (known: {known})", known = vllm_algorithms())]
    Algorithm(String),
    /// TensorRT-LLM has no such algorithm in its PyTorch backend.
    #[error("TensorRT-LLM has no counterpart of the algorithm {0} (known: EAGLE3, NEXTN, STANDALONE)")]
    TensorRtAlgorithm(String),
    /// SGLang's adaptive speculation supports chains only.
    #[error(
        "SGLang's adaptive speculation needs topk 1 throughout: {0} is a tree; sweep with topk 1, or export one row \
         with --to sglang --batch-size N"
    )]
    AdaptiveTree(TreeShape),
    /// SGLang's adaptive speculation supports two algorithms only.
    #[error("SGLang's adaptive speculation supports EAGLE and EAGLE3, not {0}")]
    AdaptiveAlgorithm(String),
    /// This version of SGLang does not follow the table.
    #[error("{0}; export one row with --to sglang --batch-size N, or give --engine-version")]
    AdaptiveVersion(NoTable),
    /// No row of the table speculates.
    #[error("no row of the table speculates, so there is nothing to adapt")]
    NothingToAdapt,
    /// The text does not name a format.
    #[error("'{0}' is not a launch format (expected sglang, slime, vllm, sglang-adaptive or tensorrt-llm{1})")]
    Form(String, String),
}

/// A launch that runs one tree shape, and a table whose rows differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowsDiffer {
    /// The requested form.
    pub(super) form: Form,
    /// The version that the user gave.
    pub(super) given: Option<EngineVersion>,
    /// The rows that the form can run.
    pub(super) rows: Vec<BatchSpan>,
    /// The rows that it cannot run.
    pub(super) others: Vec<BatchSpan>,
    /// The form that holds the whole table, and its version if it must be given; or why there is
    /// none.
    pub(super) whole: Result<(Form, Option<EngineVersion>), String>,
}

impl RowsDiffer {
    /// The error without the commands.
    pub fn message(&self) -> String {
        let whole = self.whole.as_ref().err().map(|why| format!(" (not as a whole: {why})")).unwrap_or_default();
        let others: String = self.others.iter().map(|other| format!("; it cannot run {other}")).collect();
        let engine = self.form.engine();
        format!(
            "a launch of {engine} runs one tree shape, but the rows of the table differ{whole}{others}; choose one of:"
        )
    }

    /// The commands that work, one for each row and one for the whole table, each with its remark.
    /// `path` is the tuned file, quoted for a shell.
    pub fn commands(&self, path: &str) -> Vec<String> {
        let command = |form: Form, version: Option<EngineVersion>, batch: Option<usize>| {
            let version = version.map_or_else(String::new, |version| format!(" --engine-version {version}"));
            let batch = batch.map_or_else(String::new, |batch| format!(" --batch-size {batch}"));
            format!("spectune export {path} --to {form}{version}{batch}")
        };
        let row = |row: &BatchSpan| (command(self.form, self.given, Some(row.batch_size())), row.to_string());
        let mut lines: Vec<(String, String)> = self.rows.iter().map(row).collect();
        if let Ok((form, version)) = &self.whole {
            lines.push((command(*form, *version, None), "the whole table".into()));
        }
        let width = lines.iter().map(|(command, _)| command.chars().count()).max().unwrap_or_default();
        lines.iter().map(|(command, remark)| format!("{command:width$}  # {remark}")).collect()
    }
}

impl fmt::Display for RowsDiffer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message())?;
        self.commands("TUNED.toml").iter().try_for_each(|command| write!(formatter, "\n{command}"))
    }
}
