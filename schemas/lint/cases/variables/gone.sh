# expect: SD201 warning
pip install sglang==0.5.23
SGLANG_PREFILL_DELAYER_MAX_DELAY_PASSES=20 sglang serve --model-path org/m
