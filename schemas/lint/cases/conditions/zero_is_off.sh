# The flags are added only if the number is not the default.
# expect: nothing
DRAFTS=${DRAFTS:-0}
more=()
if [ "$DRAFTS" != 0 ]; then
  more+=(--speculative-config "{\"method\":\"mtp\",\"num_speculative_tokens\":$DRAFTS}")
fi
vllm serve target "${more[@]}"
