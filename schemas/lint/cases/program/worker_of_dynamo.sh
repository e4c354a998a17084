# Dynamo's workers have flags of their own.
# expect: nothing
python3 -m dynamo.vllm --model target --disaggregation-mode decode
