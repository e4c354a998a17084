# How many ranks an engine has is not in the text.
# expect: nothing
SGLANG_ARGS=(
   --sglang-dp-size 4
   --sglang-enable-dp-attention
)
python3 train.py --hf-checkpoint zai-org/GLM-4.5-Air "${SGLANG_ARGS[@]}"
