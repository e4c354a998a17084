# The list starts the server, and the text of its words is only printed: no shell reads it.
# expect: nothing
import subprocess
import sys

command = [
    sys.executable,
    "-m",
    "vllm.entrypoints.openai.api_server",
    "--model",
    "org/m",
    "--speculative-config",
    '{"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 4}',
]
print(f"starting: {' '.join(command)}")
subprocess.run(command, check=True)
