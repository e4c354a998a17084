# expect: LT08 error
# expect: LT08 error
# expect: LT08 error
# expect: LT05 error
# expect: LT05 error
vllm serve org/m --trust-remote-code True
vllm serve org/m extra --port 8000
vllm serve org/m --enforce-eager=True
vllm serve org/m --host --port 8000
vllm serve org/m --api-key
