//! The engine to which a list of flags belongs.

use schemas::{
    engines::Engine,
    flags::{self, Lookup},
};

/// The engines that have a flag.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FlagOwner {
    Sglang,
    Vllm,
    Both,
    Neither,
}

/// The engine that has most of these flags to itself. Flags that several engines share are not
/// evidence.
pub fn engine_of_flags(words: &[&str]) -> Option<Engine> {
    let (mut sglang, mut vllm, mut both, mut neither) = (0, 0, 0, 0);
    let is_flag = |word: &&&str| word.starts_with("--") || word.starts_with("-sc");
    for word in words.iter().filter(is_flag).filter(|word| !is_of_kserve(word)) {
        match owner_of(word) {
            FlagOwner::Sglang => sglang += 1,
            FlagOwner::Vllm => vllm += 1,
            FlagOwner::Both => both += 1,
            FlagOwner::Neither => neither += 1,
        }
    }
    match () {
        // Most of another program's flags are unknown.
        () if neither > sglang + vllm + both => None,
        // Ties go to SGLang, of which all flags are known; vLLM has more names, some very common.
        () if vllm > sglang => Some(Engine::Vllm),
        () if sglang > 0 => Some(Engine::Sglang),
        () => None,
    }
}

/// Whether it is a flag of KServe's server, which passes the others on to vLLM.
fn is_of_kserve(word: &str) -> bool {
    let name = word.split('=').next().unwrap_or_default();
    ["--model_id", "--model_name", "--model_dir"].contains(&name)
}

fn owner_of(word: &str) -> FlagOwner {
    if word == "-sc" || word.starts_with("-sc.") || word.starts_with("-sc=") {
        return FlagOwner::Vllm;
    }
    let name = word.trim_start_matches('-').split('=').next().unwrap_or_default();
    let of_sglang = match flags::lookup(name, None) {
        Lookup::Exact(_) => true,
        // Many programs have flags of a single word.
        Lookup::Abbreviation(_) => name.len() >= 5 && name.contains('-') && !name.contains('_'),
        _ => false,
    };
    match (of_sglang, is_of_vllm(name)) {
        (true, false) => FlagOwner::Sglang,
        (false, true) => FlagOwner::Vllm,
        (true, true) => FlagOwner::Both,
        (false, false) => FlagOwner::Neither,
    }
}

/// vLLM accepts underscores in place of dashes, and a key of the flag's JSON after a dot.
fn is_of_vllm(name: &str) -> bool {
    let name = name.split('.').next().unwrap_or_default().replace('_', "-");
    flags::vllm().spelling(&name).is_some()
}

/// The first flag with the prefix that slime gives to SGLang's. One alone has to be a flag of
/// SGLang: other programs have such names too.
pub fn first_prefixed(words: &[&str]) -> Option<usize> {
    let name =
        |word: &str| word.strip_prefix("--sglang-").map(|name| name.split('=').next().unwrap_or(name).to_owned());
    let mut names = words.iter().filter_map(|word| name(word));
    let first = names.next()?;
    let is_known = !matches!(flags::lookup(&first, None), Lookup::Unknown);
    // A single unknown name with this prefix may be a flag of anything that knows SGLang.
    let is_flag = is_known || names.next().is_some();
    is_flag.then(|| words.iter().position(|word| word.starts_with("--sglang-"))).flatten()
}

/// Whether any flag is about speculation, which other programs are unlikely to have.
pub fn speaks_of_speculation(words: &[&str]) -> bool {
    words.iter().any(|word| {
        let named = word.starts_with("--speculative") || word.starts_with("--spec-");
        word.starts_with("-sc") || (named && owner_of(word) != FlagOwner::Neither)
    })
}

/// Whether flags without a program belong to an engine: one names the target, or two are flags of
/// engines.
pub fn is_list(words: &[&str]) -> bool {
    let mut names: Vec<&str> =
        words.iter().filter(|word| word.starts_with("--")).filter_map(|word| word.split('=').next()).collect();
    names.sort_unstable();
    names.dedup();
    let mut known = names.iter().filter(|name| owner_of(name) != FlagOwner::Neither);
    known.nth(1).is_some() || words.iter().any(|word| word.starts_with("--model-path"))
}

/// Whether a flag names the target.
pub fn names_target(words: &[&str]) -> bool {
    words.iter().any(|word| matches!(word.split('=').next(), Some("--model" | "--model-path")))
}

/// Whether the flags can only be an engine's: several of them exist in no other program.
pub fn is_evident(words: &[&str]) -> bool {
    let own = words
        .iter()
        .filter(|word| word.starts_with("--") && matches!(owner_of(word), FlagOwner::Sglang | FlagOwner::Vllm));
    own.count() >= 2
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(flags: &str, expected: Option<Engine>) {
        let words: Vec<&str> = flags.split_whitespace().collect();
        assert_eq!(engine_of_flags(&words), expected, "{flags}");
    }

    #[test]
    fn flags_that_only_one_engine_has_tell() {
        check("--model m --max-model-len 4096 --speculative-config {}", Some(Engine::Vllm));
        check("--model m --tokenizer_mode auto --gpu-memory-utilization=0.9", Some(Engine::Vllm));
        check("--served-model-name a b --kv-cache-dtype fp8 --enable-expert-parallel", Some(Engine::Vllm));
        check("--model m --mem-fraction-static 0.8", Some(Engine::Sglang));
        check("--model-path m --speculative-algorithm EAGLE", Some(Engine::Sglang));
        check("--model m --port 80", None);
        check("--num-prompts 8", None);
        check("--port 8900 --engine sglang --engine-base-url http://a --metrics-path /m --pod p --model m", None);
        check("--model m --mem-frac 0.8", Some(Engine::Sglang));
        check("--backend sglang-oai --base-url x --num-prompts 8 --model m --random-input-len 3", None);
    }
}
