# After the check the method is not the default.
# expect: nothing
HOW=${HOW:-none}
[ "$HOW" = none ] && { echo "set HOW"; exit 1; }
vllm serve target --speculative-config "{\"method\":\"$HOW\",\"num_speculative_tokens\":3}"
