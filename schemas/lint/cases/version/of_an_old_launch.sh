# Flags that mean one thing only in versions that accept a longer context than the draft's.
# expect: nothing
python3 -m sglang.launch_server --model meta-llama/Llama-3.3-70B-Instruct --speculative-algo EAGLE3 \
  --speculative-draft yuhuili/EAGLE3-LLaMA3.3-Instruct-70B --speculative-num-steps 8 --speculative-eagle-topk 8 \
  --speculative-num-draft-tokens 64 --cuda-graph-max-bs 1 --dtype float16 --tp 8
