# expect: nothing
# What is unknown, of another version or set elsewhere is not refused.
pip install sglang==0.5.20
sglang serve --model-path org/m --enable-lora --lora-paths a=/adapters/a
sglang serve --model-path org/m --enable-hierarchical-cache $EXTRA_ARGS
sglang serve --model-path org/m --dp-size 2 --nnodes 2 --node-rank 0 --tp 4 --enable-dp-attention
sglang serve --model-path org/m --served-model-name "$NAME"
sglang serve --model-path org/m --chunked-prefill-size 8192 --page-size 64
