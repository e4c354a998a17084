# On an RTX PRO 6000.
# expect: VL25 warning
pip install vllm==0.23.0
vllm serve moonshotai/Kimi-K2.7-Code -tp 8 --decode-context-parallel-size 8
