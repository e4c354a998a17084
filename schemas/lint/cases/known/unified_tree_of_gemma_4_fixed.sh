# expect: nothing
pip install sglang==0.5.12
export SGLANG_ENABLE_UNIFIED_RADIX_TREE=1
python3 -m sglang.launch_server --model-path google/gemma-4-31B-it --tp-size 2 --page-size 64
