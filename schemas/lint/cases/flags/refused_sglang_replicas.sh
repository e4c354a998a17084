# expect: SD202 error
# expect: SD202 error
pip install sglang==0.5.20
sglang serve --model-path org/m --tp 8 --enable-dp-attention --dp-size 3
sglang serve --model-path org/m --tp 8 --enable-dp-attention --dp-size 8 --max-running-requests 4
sglang serve --model-path org/m --tp 8 --enable-dp-attention --dp-size 4 --max-running-requests 4
