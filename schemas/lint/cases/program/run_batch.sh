# Batches of a file run in an engine with the flags of a server.
# expect: VL12 error
pip install vllm==0.20.2
vllm run-batch -i prompts.jsonl -o answers.jsonl --model org/m \
  --speculative-config '{"method": "eagle3", "model": "org/head", "num_speculative_tokens": 0}'
