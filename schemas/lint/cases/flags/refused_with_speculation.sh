# expect: SD202 error
# expect: SD202 error
# expect: SD202 error
# expect: SD202 error
# expect: SD202 error
# expect: SD202 error
pip install sglang==0.5.22
sglang serve --model-path org/m --speculative-algorithm DFLASH --speculative-draft-model-path org/d --max-running-requests 16 --enable-watermark
sglang serve --model-path org/m --speculative-algorithm EAGLE --speculative-draft-model-path org/d --max-running-requests 16 --enable-hisparse --disable-radix-cache --speculative-adaptive
sglang serve --model-path org/m --speculative-algorithm EAGLE --speculative-draft-model-path org/d --max-running-requests 16 --enable-lora --lora-paths a=/adapters/a --speculative-adaptive
sglang serve --model-path org/m --speculative-algorithm EAGLE --speculative-draft-model-path org/d --max-running-requests 16 --moe-a2a-backend deepep_v2
sglang serve --model-path org/m --speculative-algorithm EAGLE --speculative-draft-model-path org/d --max-running-requests 16 --attention-backend minicpm_flashinfer
sglang serve --model-path org/m --speculative-algorithm EAGLE3 --speculative-draft-model-path org/d --max-running-requests 16 --speculative-skip-dp-mlp-sync
