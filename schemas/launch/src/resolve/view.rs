//! The resolved configuration as a text table, and as JSON with reasons and sources.

use std::fmt;

use schemas::text::Source;
use serde_json::{Map, Value as Json, json};

use super::{
    Decided, FilledStates, MemoryEstimate, Origin, Resolved, StatePool,
    estimate::{CONTEXT, readable},
};

/// One line of the table.
pub(super) struct ViewRow {
    pub name: &'static str,
    /// `None`: not known.
    pub value: Option<(Json, Origin)>,
}

impl Resolved {
    /// A text table: name, value, and the origin of the value with its place in the user's text.
    pub fn table(&self, source: &Source) -> String {
        let rows: Vec<[String; 3]> = self
            .rows()
            .into_iter()
            .map(|row| match row.value {
                Some((value, origin)) => [row.name.to_owned(), plain(&value), explained(&origin, source)],
                None => [row.name.to_owned(), "?".into(), "not known from what was given".into()],
            })
            .collect();
        let width = |column: usize| rows.iter().map(|row| row.get(column).map_or(0, |cell| cell.chars().count())).max();
        let (names, values) = (width(0).unwrap_or_default(), width(1).unwrap_or_default().min(40));
        let engine = if self.vllm.is_some() { "vllm" } else { "sglang" };
        let assumed = if self.version_given { "" } else { " (assumed)" };
        let mut text = format!("resolved for {engine} {}{assumed}\n", self.version);
        for [name, value, origin] in rows {
            text.push_str(&format!("  {name:names$}  {value:values$}  {origin}\n"));
        }
        if let Some(memory) = self.memory.as_ref().filter(|_| self.vllm.is_none()) {
            text.push_str(&memory_table(memory));
        }
        text
    }

    /// The same as JSON: for each name `value` (null if not known), `origin` (`written`, `default`
    /// or `rewritten`), and where applicable `line`, `column`, `reason` and `source`.
    /// `memory_of_one_gpu` is an estimate in bytes, null if the GPU is not known. Launches of vLLM
    /// have `engine` instead of it.
    pub fn to_json(&self, source: &Source) -> Json {
        let mut object = Map::new();
        object
            .insert("engine_version".into(), json!({ "value": self.version.to_string(), "given": self.version_given }));
        for row in self.rows() {
            object.insert(
                row.name.into(),
                match row.value {
                    Some((value, origin)) => with_origin(value, &origin, source),
                    None => json!({ "value": null }),
                },
            );
        }
        match self.vllm {
            Some(_) => object.insert("engine".into(), json!("vllm")),
            None => object.insert("memory_of_one_gpu".into(), self.memory.as_ref().map_or(Json::Null, memory_json)),
        };
        Json::Object(object)
    }

    pub(super) fn rows(&self) -> Vec<ViewRow> {
        if let Some(vllm) = &self.vllm {
            return vllm.values().into_iter().map(|(name, value)| ViewRow { name, value }).collect();
        }
        let algorithm = self.algorithm.as_ref().map(|decided| (json!(decided.value.name()), decided.origin.clone()));
        let algorithm = algorithm.or_else(|| {
            let off = self.off?;
            Some((json!("off"), Origin::Default { reason: off.to_owned(), source: "sglang server_args" }))
        });
        let mut rows = vec![ViewRow { name: "speculative_algorithm", value: algorithm }];
        if self.speculative {
            rows.extend([
                row("speculative_num_steps", self.num_steps.as_ref()),
                row("speculative_eagle_topk", self.topk.as_ref()),
                row("speculative_num_draft_tokens", self.num_draft_tokens.as_ref()),
            ]);
        }
        rows.extend([
            row("max_running_requests", self.max_running_requests.as_ref()),
            row("cuda_graph_bs", self.capture_sizes.as_ref()),
            row("attention_backend", self.attention_backend.as_ref()),
            row("page_size", self.page_size.as_ref()),
            row("dtype", self.target_dtype.as_ref()),
        ]);
        if self.speculative {
            rows.push(row("draft_dtype", self.draft_dtype.as_ref()));
        }
        rows.extend([
            row("context_length", self.context_length.as_ref()),
            row("usable_context_length", self.usable_context.as_ref()),
        ]);
        if self.speculative {
            rows.push(row("kv_slots_reserved_per_request", self.reserved_slots.as_ref()));
        }
        rows.extend([
            row("chunked_prefill_size", self.chunked_prefill_size.as_ref()),
            row("mem_fraction_static", self.mem_fraction_static.as_ref()),
            row("tp_size", self.tp_size.as_ref()),
        ]);
        rows
    }
}

/// The parts of the estimate: name, and bytes (or tokens).
fn memory_parts(memory: &MemoryEstimate) -> [(&'static str, Option<u64>); 10] {
    [
        ("gpu_bytes", Some(memory.gpu)),
        ("static_bytes", memory.static_share),
        ("target_weight_bytes", memory.target_weights),
        ("draft_weight_bytes", memory.draft_weights),
        ("kv_bytes_per_token", memory.kv_token),
        ("draft_kv_bytes_per_token", memory.draft_kv_token),
        ("kv_tokens", memory.kv_tokens),
        ("outside_bytes", memory.outside()),
        ("activation_and_graph_bytes", memory.activations),
        ("verify_logits_bytes", memory.verify_logits),
    ]
}

fn memory_json(memory: &MemoryEstimate) -> Json {
    let mut parts: Map<_, _> =
        memory_parts(memory).into_iter().map(|(name, value)| (name.to_owned(), json!(value))).collect();
    if memory.draft_is_static {
        parts.insert("draft_copies_bytes".into(), json!(memory.draft_copies));
    }
    if let Some(token) = memory.with_windows {
        parts.insert("full_layers_kv_bytes_per_token".into(), json!(token.full));
        parts.insert("window_layers_kv_bytes_per_token".into(), json!(token.windowed));
        parts.insert("window_tokens".into(), json!(token.window));
        parts.insert("window_layers_tokens".into(), json!(memory.window_tokens));
    }
    if let Some(pool) = memory.states {
        let filled = |part: fn(FilledStates) -> u64| json!(pool.filled.map(part));
        parts.insert("state_bytes".into(), json!(pool.state));
        parts.insert("states".into(), filled(|filled| filled.states));
        parts.insert("states_per_running_request".into(), filled(|filled| filled.per_request));
        parts.insert("states_bytes".into(), filled(|filled| filled.bytes));
        parts.insert("verified_states_bytes".into(), filled(|filled| filled.verification));
    }
    if let Some(undecided) = &memory.undecided {
        parts.insert("capacity_depends_on".into(), json!(undecided));
    }
    parts.into()
}

fn memory_table(memory: &MemoryEstimate) -> String {
    let amount = |value: Option<u64>| value.map_or_else(|| "?".to_owned(), readable);
    let tokens = memory.kv_tokens.map_or_else(|| "?".to_owned(), |tokens| tokens.to_string());
    let place = if memory.draft_is_static { "static" } else { "not static in this version" };
    let own = memory.draft_kv_token.map(|bytes| {
        let beyond = match memory.draft_kv_beyond {
            Some(beyond) if beyond > 0 => format!(", {} more in all", readable(beyond)),
            _ => String::new(),
        };
        (
            "draft's KV cache",
            format!("{} a token", readable(bytes)),
            format!("of the whole model; counted above as if its layers were the target's{beyond}"),
        )
    });
    let windows = memory.with_windows.map(|token| {
        let (windowed, window) = (readable(token.windowed), token.window);
        let kept =
            memory.window_tokens.map_or_else(|| "all tokens or a share".to_owned(), |kept| format!("{kept} tokens"));
        let what = format!("in full; {windowed} more in layers that see {window}, which keep {kept}");
        ("target's KV cache", format!("{} a token", readable(token.full)), what)
    });
    let rows = [
        ("all", amount(Some(memory.gpu)), String::new()),
        ("before loading", amount(Some(CONTEXT)), "context and libraries of CUDA, as measured on an H200".into()),
        ("static", amount(memory.static_share), "weights and KV cache".into()),
        ("target weights", amount(memory.target_weights), "static".into()),
        ("draft weights", amount(memory.draft_weights), place.into()),
        ("KV cache", format!("{tokens} tokens"), format!("of {}, target and draft", amount(memory.kv_token))),
    ];
    let copies = (memory.draft_is_static && memory.draft_copies != Some(0)).then(|| {
        let what = "of embedding and head, given back once the caches are sized";
        ("draft's copies", amount(memory.draft_copies), what.to_owned())
    });
    let states = memory.states.map(state_rows).unwrap_or_default();
    let undecided =
        memory.undecided.as_ref().map(|what| ("not estimated", "?".to_owned(), format!("the capacity: {what}")));
    let outside = [
        ("outside", amount(memory.outside()), "activations, graphs, logits".into()),
        (
            "activations, graphs",
            amount(memory.activations),
            "by the engine's own rule of chunk and largest batch".into(),
        ),
        ("verify logits", amount(memory.verify_logits), "float32, once; sampling makes copies".into()),
    ];
    let mut text = "memory of one GPU, estimated\n".to_owned();
    for (name, value, what) in
        rows.into_iter().chain(copies).chain(windows).chain(states).chain(own).chain(undecided).chain(outside)
    {
        text.push_str(format!("  {name:20} {value:>18}  {what}").trim_end());
        text.push('\n');
    }
    text
}

/// The states of linear attention.
fn state_rows(pool: StatePool) -> Vec<(&'static str, String, String)> {
    let Some(filled) = pool.filled else {
        return vec![("states", readable(pool.state), "of a request, whose number is not known".into())];
    };
    let (count, of) = (filled.states, readable(pool.state));
    let what = format!("{count} of {of}, {} for a running request", filled.per_request);
    let mut rows = vec![("states", readable(filled.bytes), what)];
    if filled.verification > 0 {
        rows.push(("states of drafts", readable(filled.verification), "one for each token of a round".into()));
    }
    rows
}

fn row<T: Clone + Into<Json>>(name: &'static str, decided: Option<&Decided<T>>) -> ViewRow {
    ViewRow { name, value: decided.map(|decided| (decided.value.clone().into(), decided.origin.clone())) }
}

fn with_origin(value: Json, origin: &Origin, source: &Source) -> Json {
    let mut object = Map::from_iter([("value".to_owned(), value)]);
    let mut place = |span: schemas::text::Span, word: &str| {
        let position = source.position(span.start);
        object.insert("origin".into(), json!(word));
        if source.has_lines() {
            object.insert("line".into(), json!(position.line));
            object.insert("column".into(), json!(position.column));
        }
    };
    let why = match origin {
        Origin::Written(span) => {
            place(*span, "written");
            None
        }
        Origin::Rewritten { written, reason, source } => {
            place(*written, "rewritten");
            Some((reason, source))
        }
        Origin::Default { reason, source } => {
            object.insert("origin".into(), json!("default"));
            Some((reason, source))
        }
    };
    if let Some((reason, source)) = why {
        object.insert("reason".into(), json!(reason));
        object.insert("source".into(), json!(source));
    }
    Json::Object(object)
}

/// A value without quotes. Long lists are shortened in the middle, and consecutive numbers are
/// written as ranges.
pub(super) fn plain(value: &Json) -> String {
    match value {
        Json::String(text) => text.clone(),
        Json::Array(items) => SizeRanges(items.iter().filter_map(Json::as_u64).collect()).to_string(),
        other => other.to_string(),
    }
}

/// Formats sizes with consecutive numbers as ranges: `1-8 10 12`.
struct SizeRanges(Vec<u64>);

impl fmt::Display for SizeRanges {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return formatter.write_str("none");
        }
        let mut runs: Vec<(u64, u64)> = Vec::new();
        for size in &self.0 {
            match runs.last_mut() {
                Some((_, last)) if *last + 1 == *size => *last = *size,
                _ => runs.push((*size, *size)),
            }
        }
        let words: Vec<String> = runs
            .iter()
            .map(|(first, last)| if first == last { first.to_string() } else { format!("{first}-{last}") })
            .collect();
        formatter.write_str(&words.join(" "))
    }
}

pub(super) fn explained(origin: &Origin, source: &Source) -> String {
    let at = |span: schemas::text::Span| {
        let position = source.position(span.start);
        if source.has_lines() { format!("written at {}:{}", position.line, position.column) } else { "given".into() }
    };
    match origin {
        Origin::Written(span) => at(*span),
        Origin::Default { reason, source: from } => format!("default: {reason} [{from}]"),
        Origin::Rewritten { written, reason, source: from } => {
            format!("replaces what is {}: {reason} [{from}]", at(*written))
        }
    }
}
