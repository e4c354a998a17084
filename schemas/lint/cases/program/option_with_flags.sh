# An option of another program holds the engine's flags.
# expect: VL12 warning
sml advanced --framework vllm --framework-args='--model target --speculative-config.method=ngram --speculative-config.num_speculative_tokens=0'
