# expect: nothing
pip install sglang==0.5.17
export HIP_VISIBLE_DEVICES=0
python3 -m sglang.launch_server --model-path Qwen/Qwen3-8B --max-running-requests 64 --speculative-algorithm DFLASH --speculative-draft-model-path z-lab/Qwen3-8B-DFlash-b16 --speculative-num-draft-tokens 16 --attention-backend triton
