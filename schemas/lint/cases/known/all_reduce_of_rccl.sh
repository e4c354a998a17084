# On 8x MI355X. expect: nothing
python3 -m sglang.launch_server --model-path zai-org/GLM-5.1-FP8 --tp 8 --speculative-algorithm EAGLE --max-running-requests 64 \
  --speculative-num-steps 4 --speculative-eagle-topk 1 --speculative-num-draft-tokens 5 --disable-custom-all-reduce
