# The subshell exports the variable for its own program only.
# expect: nothing
(export CUDA_VISIBLE_DEVICES=0; python3 embeddings.py) &
python3 -m sglang.launch_server --model-path org/m --tp 4
