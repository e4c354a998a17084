# Joined with blanks and given to a shell, an element of two words is two words.
# expect: VL02 error
import subprocess

command = ["vllm", "serve", "target", "--tool-call-parser gemma4"]
command += ["--speculative-config", "'{\"method\":\"mtp\",\"model\":\"draft\"}'"]
subprocess.Popen(" ".join(command), shell=True)
