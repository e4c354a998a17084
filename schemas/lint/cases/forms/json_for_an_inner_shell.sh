# The quotes of the outer shell need backslashes, and the inner shell receives JSON.
# expect: nothing
[ "$1" = 1 ] && more="$more VLLM_MARLIN_USE_ATOMIC_ADD=1"
sudo -u llm bash -c "cd /opt/llm && env $more /opt/venv/bin/vllm serve $MODEL \
  --override-generation-config '{\"temperature\":0.6,\"top_p\":0.95}' \
  > $log 2>&1" &
