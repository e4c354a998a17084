# The number of a build of someone's own branch says nothing of what the engine has.
# expect: nothing
# vllm 0.11.2.dev280+our.branch.20260810
vllm serve target --attention-backend FLASHINFER
