//! verl's switches of multi-token prediction (`MtpConfig`) and its numbers of ranks and limits
//! (`RolloutConfig`), and the engine's flags that they stand for, with verl's own defaults.

use schemas::{
    engines::Engine,
    text::{Located, Span},
};

use crate::{
    Value,
    command::{CommandText, Field},
};

/// Both must be on, or the engine does not draft.
const SWITCHES: [&str; 2] = ["enable", "enable_rollout"];

/// A key of the section, and the flag that verl gives the engine.
struct MtpFlag {
    engine: Engine,
    key: &'static str,
    flag: &'static str,
    /// Its value if none is written; none is given then if there is no default.
    default: Option<&'static str>,
}

const FLAGS: [MtpFlag; 7] = [
    sglang("speculative_algorithm", "--speculative-algorithm", "EAGLE"),
    sglang("speculative_num_steps", "--speculative-num-steps", "3"),
    sglang("speculative_eagle_topk", "--speculative-eagle-topk", "1"),
    sglang("speculative_num_draft_tokens", "--speculative-num-draft-tokens", "4"),
    vllm("method", "--speculative-config.method", Some("mtp")),
    vllm("num_speculative_tokens", "--speculative-config.num_speculative_tokens", Some("1")),
    vllm("draft_model_path", "--speculative-config.model", None),
];

const fn sglang(key: &'static str, flag: &'static str, default: &'static str) -> MtpFlag {
    MtpFlag { engine: Engine::Sglang, key, flag, default: Some(default) }
}

const fn vllm(key: &'static str, flag: &'static str, default: Option<&'static str>) -> MtpFlag {
    MtpFlag { engine: Engine::Vllm, key, flag, default }
}

/// Keys of the rollout that say how many ranks an engine has.
pub const RANKS: [&str; 3] = [TENSOR, DATA, EXPERT];
const TENSOR: &str = "tensor_model_parallel_size";
const DATA: &str = "data_parallel_size";
const EXPERT: &str = "expert_parallel_size";

/// The ranks of an engine for which nothing is written.
const DEFAULT_RANKS: &str = "2";

/// Limits of the rollout, with the flags that verl gives vLLM, and SGLang if any.
const LIMITS: [(&str, &str, Option<&str>); 5] = [
    (SEQUENCES, "--max-num-seqs", Some("--max-running-requests")),
    ("gpu_memory_utilization", "--gpu-memory-utilization", Some("--mem-fraction-static")),
    ("max_model_len", "--max-model-len", None),
    ("max_num_batched_tokens", "--max-num-batched-tokens", None),
    ("dtype", "--dtype", Some("--dtype")),
];
const SEQUENCES: &str = "max_num_seqs";
/// The switch that turns CUDA graphs off.
const EAGER: &str = "enforce_eager";

/// Requests that an engine runs together for which nothing is written.
const DEFAULT_SEQUENCES: &str = "1024";

/// Whether a key of the rollout says how the engine runs.
pub fn is_of_rollout(name: &str) -> bool {
    RANKS.contains(&name) || name == EAGER || LIMITS.iter().any(|(key, ..)| *key == name)
}

/// A key of verl's as it is written.
pub struct VerlSwitch<'a> {
    pub name: String,
    pub place: Span,
    pub given: Field<'a>,
}

/// The last of several switches with a name.
fn last<'w, 'a>(written: &'w [VerlSwitch<'a>], name: &str) -> Option<&'w VerlSwitch<'a>> {
    written.iter().rfind(|switch| switch.name == name)
}

fn is_true(word: &str) -> bool {
    matches!(word, "True" | "true")
}

/// Whether a key of the section says how the engine runs.
pub fn is_of_engine(name: &str) -> bool {
    SWITCHES.contains(&name) || FLAGS.iter().any(|known| known.key == name)
}

/// The flags that verl gives the engine for what is written in the section, beside those in
/// `others`. Where it is not known whether the switches are on, only what is written is given.
pub fn flags<'a>(
    written: &[VerlSwitch<'a>],
    engine: Engine,
    has_own_config: bool,
    others: &[Field<'a>],
) -> Vec<Field<'a>> {
    let find = |name: &str| last(written, name);
    let state = |name: &str| match find(name).map(|switch| switch.given.value.known()) {
        Some(Some(word)) => Some(is_true(word)),
        Some(None) => None,
        // The default, unless a config of the user's own says otherwise.
        None => (!has_own_config).then_some(false),
    };
    let states = SWITCHES.map(state);
    let is_given = |flag: &str| is_among(others, flag);
    if states.contains(&Some(false)) {
        return Vec::new();
    }
    let is_on = states == [Some(true); 2];
    let on = find(SWITCHES[1]).map(|switch| switch.place);
    let own = FLAGS.iter().filter(|known| known.engine == engine && !is_given(known.flag));
    let fields = own.filter_map(|known| {
        let flag = |place| Located::new(Value::Known(known.flag.into()), place);
        if let Some(switch) = find(known.key) {
            return Some([flag(switch.place), switch.given.clone()]);
        }
        let (place, default) = (on.filter(|_| is_on)?, known.default?);
        let value: CommandText<'a> = Value::Known(default.into());
        Some([flag(place), Located::new(value, place)])
    });
    fields.flatten().collect()
}

/// Whether the engine's own settings say the same as one of verl's, which then does not count.
fn is_among(others: &[Field<'_>], flag: &str) -> bool {
    let whole = flag.split_once('.').map_or(flag, |(whole, _)| whole);
    others.iter().any(|other| other.value.known().is_some_and(|text| text.starts_with(whole)))
}

/// Flags that stand for keys of the rollout.
struct RolloutFlags<'a, 'o> {
    fields: Vec<Field<'a>>,
    /// The engine's own settings.
    others: &'o [Field<'a>],
}

impl<'a> RolloutFlags<'a, '_> {
    fn add(&mut self, flag: &'static str, place: Span, given: Option<Field<'a>>) {
        if !is_among(self.others, flag) {
            self.fields.push(Located::new(Value::Known(flag.into()), place));
            self.fields.extend(given);
        }
    }
}

/// The flags that verl gives the engine for its numbers of ranks and its limits, beside those in
/// `others`. `default` is the place for verl's own numbers, if no other config gives any.
pub fn rollout_flags<'a>(
    written: &[VerlSwitch<'a>],
    engine: Engine,
    default: Option<Span>,
    others: &[Field<'a>],
) -> Vec<Field<'a>> {
    let mut flags = RolloutFlags { fields: Vec::new(), others };
    add_ranks(&mut flags, written, engine, default);
    for (key, of_vllm, of_sglang) in LIMITS {
        let Some(flag) = (if engine == Engine::Vllm { Some(of_vllm) } else { of_sglang }) else { continue };
        match (last(written, key), default) {
            (Some(switch), _) if matches!(switch.given.value.written(), "null" | "None" | "~") => {}
            (Some(switch), _) => flags.add(flag, switch.place, Some(switch.given.clone())),
            (None, Some(place)) if key == SEQUENCES => {
                flags.add(flag, place, Some(Located::new(Value::Known(DEFAULT_SEQUENCES.into()), place)));
            }
            (None, _) => {}
        }
    }
    let is_on = |switch: &&VerlSwitch<'_>| switch.given.value.known().is_some_and(is_true);
    if let Some(switch) = last(written, EAGER).filter(is_on) {
        let flag = if engine == Engine::Vllm { "--enforce-eager" } else { "--disable-cuda-graph" };
        flags.add(flag, switch.place, None);
    }
    flags.fields
}

/// Adds the flags of the numbers of ranks.
fn add_ranks<'a>(flags: &mut RolloutFlags<'a, '_>, written: &[VerlSwitch<'a>], engine: Engine, default: Option<Span>) {
    let find = |name: &str| last(written, name);
    let number = |name: &str| match find(name) {
        Some(switch) => switch.given.value.known().and_then(|text| text.parse::<usize>().ok()),
        None => Some(1),
    };
    let standing = default.map(|place| (place, Located::new(Value::Known(DEFAULT_RANKS.into()), place)));
    let tensor = find(TENSOR).map(|switch| (switch.place, switch.given.clone())).or(standing);
    let (data, expert) = (find(DATA), find(EXPERT).filter(|_| number(EXPERT) != Some(1)));
    if engine == Engine::Vllm {
        if let Some((place, given)) = tensor {
            flags.add("--tensor-parallel-size", place, Some(given));
        }
        if let Some(switch) = data.filter(|_| number(DATA) != Some(1)) {
            flags.add("--data-parallel-size", switch.place, Some(switch.given.clone()));
        }
        if let Some(switch) = expert.filter(|_| number(EXPERT).is_some()) {
            flags.add("--enable-expert-parallel", switch.place, None);
        }
        return;
    }
    // SGLang's ranks are those of all replicas.
    if let Some((place, given)) = tensor {
        let own = given.value.known().and_then(|text| text.parse::<usize>().ok());
        let all = own.zip(number(DATA)).and_then(|(own, replicas)| own.checked_mul(replicas));
        let value = match all {
            Some(all) => Value::Known(all.to_string().into()),
            None => Value::Unknown(given.value.written().to_owned().into()),
        };
        flags.add("--tp-size", place, Some(Located::new(value, given.span)));
    }
    if let Some(switch) = data {
        flags.add("--dp-size", switch.place, Some(switch.given.clone()));
    }
    if let Some(switch) = expert {
        flags.add("--ep-size", switch.place, Some(switch.given.clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The flags of the keys in `written`, pairs of a name and a value.
    fn check(written: &[(&str, &str)], engine: Engine, is_default: bool, expected: &str) {
        let value = |text: &str| match text.starts_with('$') {
            true => Value::Unknown(text.to_owned().into()),
            false => Value::Known(text.to_owned().into()),
        };
        let switch = |(name, text): &(&str, &str)| VerlSwitch {
            name: (*name).to_owned(),
            place: Span::default(),
            given: Located::new(value(text), Span::default()),
        };
        let written: Vec<VerlSwitch<'_>> = written.iter().map(switch).collect();
        let found = rollout_flags(&written, engine, is_default.then(Span::default), &[]);
        let words: Vec<&str> = found.iter().map(|field| field.value.written()).collect();
        assert_eq!(words.join(" "), expected);
    }

    #[test]
    fn numbers_of_ranks_are_those_that_verl_gives_the_engine() {
        let (sglang, vllm) = (Engine::Sglang, Engine::Vllm);
        check(&[], sglang, true, "--tp-size 2 --max-running-requests 1024");
        check(&[], vllm, true, "--tensor-parallel-size 2 --max-num-seqs 1024");
        check(&[], vllm, false, "");
        check(&[(TENSOR, "4")], vllm, false, "--tensor-parallel-size 4");
        check(&[(TENSOR, "4"), (DATA, "2"), (EXPERT, "8")], sglang, false, "--tp-size 8 --dp-size 2 --ep-size 8");
        check(
            &[(TENSOR, "4"), (DATA, "2"), (EXPERT, "8")],
            vllm,
            false,
            "--tensor-parallel-size 4 --data-parallel-size 2 --enable-expert-parallel",
        );
        check(&[(TENSOR, "$TP"), (EXPERT, "1")], sglang, false, "--tp-size $TP");
    }

    #[test]
    fn limits_are_those_that_verl_gives_the_engine() {
        let written = [
            (TENSOR, "1"),
            (SEQUENCES, "256"),
            ("gpu_memory_utilization", "0.6"),
            ("max_model_len", "null"),
            ("max_num_batched_tokens", "8192"),
            (EAGER, "True"),
        ];
        check(
            &written,
            Engine::Vllm,
            true,
            "--tensor-parallel-size 1 --max-num-seqs 256 --gpu-memory-utilization 0.6 --max-num-batched-tokens 8192 \
             --enforce-eager",
        );
        check(
            &written,
            Engine::Sglang,
            true,
            "--tp-size 1 --max-running-requests 256 --mem-fraction-static 0.6 --disable-cuda-graph",
        );
        check(&[(EAGER, "False"), (SEQUENCES, "$N")], Engine::Vllm, false, "--max-num-seqs $N");
    }
}
