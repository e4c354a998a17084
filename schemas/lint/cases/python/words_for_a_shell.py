# A shell splits the words again, and takes the quotes away.
# expect: LT14 error
import subprocess

command = ["vllm", "serve", "org/m", "--speculative-config", '{"method": "ngram", "num_speculative_tokens": 4}']
print(" ".join(command))
subprocess.run(" ".join(command), shell=True, check=True)
