# A dictionary that is written as JSON.
# expect: VL02 error
import json
import subprocess

speculation = {"method": "eagle3", "model": "draft"}
subprocess.Popen(f"vllm serve target --max-num-seqs 8 --speculative-config '{json.dumps(speculation)}'", shell=True)
