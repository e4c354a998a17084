# expect: SD194 warning
pip install sglang==0.5.15
python3 -m sglang.launch_server --model-path Qwen/Qwen3.5-4B --attention-backend triton --max-running-requests 16 --speculative-algorithm DFLASH --speculative-draft-model-path z-lab/Qwen3.5-4B-DFlash --speculative-num-draft-tokens 16
