# expect: nothing
pip install sglang==0.5.19
# RTX PRO 6000
python3 -m sglang.launch_server --model-path Qwen/Qwen3-32B --prefill-attention-backend trtllm_mha --decode-attention-backend flashinfer
