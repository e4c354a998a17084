# What is left is information about requests with a schema.
# expect: SD193 info
pip install sglang==0.5.20
python3 -m sglang.launch_server --model-path Qwen/Qwen3.5-27B --device npu --attention-backend ascend --tp-size 4 \
  --mamba-ssm-dtype bfloat16 --max-running-requests 64 --speculative-algorithm NEXTN --speculative-num-steps 3 \
  --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
