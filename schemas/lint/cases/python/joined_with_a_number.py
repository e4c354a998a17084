# The number is the value of the flag before it.
# expect: SD021 error
import subprocess

command = " ".join([
    "python -m sglang.launch_server",
    "--model-path target --max-running-requests 16",
    "--speculative-algorithm EAGLE",
    f"--speculative-num-steps {3}",
])
subprocess.run(command, shell=True)
