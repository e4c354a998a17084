# The branch does not run while the number is the default.
# expect: nothing
import subprocess

STEPS = 0
command = ["python3", "-m", "sglang.launch_server", "--model-path", "target", "--max-running-requests", "16"]
if STEPS > 0:
    command += ["--speculative-algorithm", "EAGLE", "--speculative-num-steps", str(STEPS)]
    command += ["--speculative-eagle-topk", "1", "--speculative-num-draft-tokens", "4"]
subprocess.run(command)
