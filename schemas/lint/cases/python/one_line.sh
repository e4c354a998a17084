# A program in a word of the command.
# expect: VL02 error
python3 -c 'from vllm import LLM; LLM(model="Qwen/Qwen3-8B", speculative_config={"method": "eagle3", "model": "draft"})'
