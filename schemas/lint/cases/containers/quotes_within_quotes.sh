# A quote inside a quoted script is written as '"'"' too.
# expect: VL02 error
docker run --gpus all --entrypoint bash "$IMAGE" -c 'set -e
exec vllm serve target --speculative-config '"'"'{"method": "eagle3", "model": "draft"}'"'"' --port 8000'
