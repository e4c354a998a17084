# expect: SD021 error
docker run --rm --gpus all --entrypoint sglang lmsysorg/sglang:v0.5.18 serve --model-path target --speculative-algorithm EAGLE --speculative-num-steps 3 --max-running-requests 8
