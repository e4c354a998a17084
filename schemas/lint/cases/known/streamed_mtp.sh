# expect: VL24 error
pip install vllm==0.25.1
vllm serve s3://bucket/model --load-format runai_streamer --speculative-config '{"method": "mtp", "num_speculative_tokens": 2}'
