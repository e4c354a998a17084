# What follows may state the ranks.
# expect: nothing
python3 -m sglang.launch_server --model-path org/m --attn-cp-size 8 $MORE
