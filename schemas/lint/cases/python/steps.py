# Words that are added in steps are one command.
# expect: SD021 error
import subprocess

speculation = ["--speculative-algorithm", "EAGLE"]
speculation.append("--speculative-num-steps=3")
command = ["python3", "-m", "sglang.launch_server", "--model-path", "target"]
command.extend(["--max-running-requests", "16"])
command = command + speculation
subprocess.run(command)
