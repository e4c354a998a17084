# The text of the words is kept for a log: no shell reads it either.
# expect: nothing
import logging
import subprocess

command = ["vllm", "serve", "org/m", "--speculative-config", '{"method": "ngram", "num_speculative_tokens": 4}']
line = " ".join(command)
logging.info("starting %s", line)
process = subprocess.Popen(command)
