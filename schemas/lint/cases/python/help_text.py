# What `--help` prints is no launch. expect: LT02 error
import vllm

HELP = """
  --speculative-config SPECULATIVE_CONFIG
  --speculative-config.method {draft_model,eagle3,mtp}
  --max-model-len MAX_MODEL_LEN
"""

found = parse_runtime_help(HELP)
