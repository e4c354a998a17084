# The interpreter that runs the program starts the engine, in a text with blanks.
# expect: SD001 error
import shlex
import subprocess
import sys

command = f"{sys.executable} -m sglang.launch_server --model-path target --speculative-algorithm EAGLE4"
command += " --speculative-draft-model-path draft --speculative-num-steps 3 --speculative-eagle-topk 1"
command += " --speculative-num-draft-tokens 4"
subprocess.Popen(shlex.split(command))
