# expect: SD001 error
import subprocess

subprocess.run(["python3", "-m", "sglang.launch_server", "--model-path", "org/m", "--speculative-algorithm", "FOO"])
