//! verl's switches of multi-token prediction (`MtpConfig`), and the engine's flags that they stand
//! for, with verl's own defaults.

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

/// A key of the section as it is written.
pub struct MtpSwitch<'a> {
    pub name: String,
    pub place: Span,
    pub given: Field<'a>,
}

/// Whether a key of the section says how the engine runs.
pub fn is_of_engine(name: &str) -> bool {
    SWITCHES.contains(&name) || FLAGS.iter().any(|known| known.key == name)
}

/// The flags that verl gives the engine for what is written in the section, beside those in
/// `others`. Where it is not known whether the switches are on, only what is written is given.
pub fn flags<'a>(
    written: &[MtpSwitch<'a>],
    engine: Engine,
    has_own_config: bool,
    others: &[Field<'a>],
) -> Vec<Field<'a>> {
    let find = |name: &str| written.iter().rfind(|switch| switch.name == name);
    let state = |name: &str| match find(name).map(|switch| switch.given.value.known()) {
        Some(Some(word)) => Some(matches!(word, "True" | "true")),
        Some(None) => None,
        // The default, unless a config of the user's own says otherwise.
        None => (!has_own_config).then_some(false),
    };
    let states = SWITCHES.map(state);
    // verl's own settings count only where the engine's own ones do not say the same.
    let is_given = |flag: &str| {
        let whole = flag.split_once('.').map_or(flag, |(whole, _)| whole);
        others.iter().any(|other| other.value.known().is_some_and(|text| text.starts_with(whole)))
    };
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
