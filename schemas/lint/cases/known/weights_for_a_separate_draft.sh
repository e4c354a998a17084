# expect: SD193 warning
pip install sglang==0.5.6
python3 train.py --hf-checkpoint Qwen/Qwen3-8B --sglang-speculative-algorithm EAGLE3 --sglang-speculative-draft-model-path org/qwen3-eagle3 --sglang-speculative-num-steps 3 --sglang-speculative-eagle-topk 1 --sglang-speculative-num-draft-tokens 4 --sglang-max-running-requests 16
