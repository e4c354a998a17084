# expect: nothing
import sys

# A plugin registers this algorithm in the engine before the server starts.
def build(drafts):
    command = [sys.executable, "-m", "sglang.launch_server", "--model-path", "target", "--max-running-requests", "8"]
    if drafts:
        command += ["--speculative-algorithm", "SUFFIX", "--speculative-num-draft-tokens", str(drafts)]
    return command
