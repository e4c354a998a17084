# expect: nothing
# 16 samples at most are in flight, fewer than run together and than graphs are captured for.
python3 train.py --hf-checkpoint XiaomiMiMo/MiMo-7B-RL --rollout-num-gpus-per-engine 1 \
  --rollout-batch-size 8 --n-samples-per-prompt 2 \
  --sglang-speculative-algorithm EAGLE --sglang-speculative-num-steps 3 --sglang-speculative-eagle-topk 1 \
  --sglang-speculative-num-draft-tokens 4 --sglang-cuda-graph-max-bs 16
