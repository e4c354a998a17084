//! Advice about sweep files in the words of `spectune tune`, which runs a sweep without a file.

/// What messages of a sweep name, and what `tune` calls it. Longer texts come before those that
/// they contain.
const WORDS: [(&str, &str); 20] = [
    ("search.seconds or search.trials", "--max-time"),
    ("set workload.ignore_eos", "leave out --stop-at-end"),
    ("skip long prompts with workload.max_prompt_tokens", "remove long prompts from the file"),
    ("give token ids with workload.input_ids", "name a folder that has one with --model-path DIR"),
    ("lower batch.sizes or engine.context_length", "lower --concurrency, or --context-length in the launch"),
    ("workload.output_length", "--output-len"),
    ("lower output_length", "lower --output-len"),
    ("workload.requests", "--requests"),
    ("workload.prompts", "--prompts"),
    ("workload.random", "--input-len"),
    ("search.repeats", "--repeats"),
    ("search.seconds", "--max-time"),
    ("search.until", "--until"),
    ("batch.sizes", "--concurrency"),
    ("batch.contexts", "--contexts"),
    ("engine.mem_fraction_static", "--mem-fraction-static in the launch"),
    ("engine.context_length", "--context-length in the launch"),
    ("models.target", "the launch's model"),
    ("models.draft", "--draft"),
    ("system.command", "the command of the launch (another one: --command)"),
];

/// A message of a sweep as `tune` says it.
pub fn with_flags_of_tune(message: &str) -> String {
    WORDS.iter().fold(message.to_owned(), |message, (key, word)| message.replace(key, word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_about_sweep_files_names_flags() {
        assert_eq!(
            with_flags_of_tune("lower batch.sizes or workload.output_length"),
            "lower --concurrency or --output-len"
        );
        assert_eq!(with_flags_of_tune("raise search.seconds or search.trials"), "raise --max-time");
        assert_eq!(with_flags_of_tune("the server has ended"), "the server has ended");
    }
}
