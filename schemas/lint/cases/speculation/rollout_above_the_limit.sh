# expect: SD090 warning
# 128 samples may be in flight.
python3 train.py --hf-checkpoint XiaomiMiMo/MiMo-7B-RL --rollout-num-gpus-per-engine 1 \
  --rollout-batch-size 64 --n-samples-per-prompt 2 \
  --sglang-speculative-algorithm EAGLE --sglang-speculative-num-steps 3 --sglang-speculative-eagle-topk 1 \
  --sglang-speculative-num-draft-tokens 4
