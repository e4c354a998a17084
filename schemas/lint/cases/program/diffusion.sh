# expect: LT02 error
python3 train_diffusion.py --rollout-num-gpus-per-engine 1 --sglang-dit-precision bf16 --sglang-vae-precision fp32
