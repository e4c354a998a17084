//! The names of a launch's target: from its path, and other hints at the family if the path has
//! none.

use schemas::flags::Key;

use super::Context;

/// Spellings of names in paths, and the spelling in the tables of models.
const SPELLINGS: [(&str, &str); 10] = [
    ("deepseek-32", "deepseek-v3.2"),
    ("deepseek-3.2", "deepseek-v3.2"),
    ("deepseek-v32", "deepseek-v3.2"),
    ("deepseek-v3-2", "deepseek-v3.2"),
    ("deepseekv32", "deepseek-v3.2"),
    ("deepseekv3.2", "deepseek-v3.2"),
    ("deepseekv4", "deepseek-v4"),
    ("gptoss", "gpt-oss"),
    ("gemma4", "gemma-4"),
    ("qwen3next", "qwen3-next"),
];

/// Parsers of reasoning and tool calls that belong to one family, with the family's name. Parsers
/// that several families share are omitted: `glm47`, `kimi_k2` and `qwen3_coder`.
const PARSERS: [(&str, &str); 14] = [
    ("deepseek-v4", "deepseek-v4"),
    ("deepseek_v31", "deepseek-v3.1"),
    ("deepseek_v32", "deepseek-v3.2"),
    ("deepseek_v4", "deepseek-v4"),
    ("deepseekv31", "deepseek-v3.1"),
    ("deepseekv32", "deepseek-v3.2"),
    ("deepseekv4", "deepseek-v4"),
    ("gemma4", "gemma-4"),
    ("gpt-oss", "gpt-oss"),
    ("kimi_k3", "kimi-k3"),
    ("minimax-m3", "minimax-m3"),
    ("minimax_m3", "minimax-m3"),
    ("openai_gptoss", "gpt-oss"),
    ("step3p5", "step-3.5"),
];

/// The target's name in lower case, followed by the tables' spelling if it differs.
pub(super) fn of_target(context: &Context<'_>) -> String {
    let written = context.launch.text(Key::ModelPath).map(|name| name.value.to_owned());
    let name = written.or_else(|| context.target.map(|facts| facts.name.clone()));
    respelled(&name.unwrap_or_default())
}

fn respelled(name: &str) -> String {
    let mut name = name.to_ascii_lowercase();
    let dashed = name.replace('_', "-");
    for (spelling, known) in SPELLINGS {
        let after = dashed.split_once(spelling).map(|(_, after)| after);
        // `deepseek-32b` is a size.
        if after.is_some_and(|after| !after.starts_with(['b', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9'])) {
            name.push(' ');
            name.push_str(known);
        }
    }
    name
}

/// The family's names implied by parsers, and the names that clients use, in lower case.
pub(super) fn hints(context: &Context<'_>) -> Vec<String> {
    let values = |flag: &'static str| {
        let own = context.launch.arguments.iter().filter(move |argument| argument.is_flag(context.launch.engine, flag));
        own.flat_map(|argument| &argument.values).filter_map(|value| value.value.known())
    };
    let parsers = values("tool-call-parser").chain(values("reasoning-parser"));
    let of_parsers = parsers.filter_map(|parser| PARSERS.iter().find(|(own, _)| *own == parser));
    let served = values("served-model-name").map(respelled);
    served.chain(of_parsers.map(|(_, family)| (*family).to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_spelled_as_the_tables_do() {
        for (name, known) in [
            ("/models/deepseek-32-nvfp4-nvidia", "deepseek-v3.2"),
            ("/models/DeepSeek_V3_2", "deepseek-v3.2"),
            ("deepseek-ai/DeepSeek-V3.2", "deepseek-v3.2"),
        ] {
            assert!(respelled(name).contains(known), "{name}");
        }
        for name in ["deepseek-32b-chat", "DeepSeek-R1-Distill-Qwen-32B", "deepseek-3210"] {
            assert!(!respelled(name).contains("deepseek-v3.2"), "{name}");
        }
    }
}
