# An option of a program that is not known takes flags of an engine.
# expect: VL12 warning
tool serve --framework vllm --framework-args "--model target --speculative-config.method ngram --speculative-config.num_speculative_tokens 0"
