# expect: VL36 error
# expect: VL36 error
# expect: VL36 error
# expect: VL36 error
# expect: VL36 error
pip install vllm==0.29.0
vllm serve org/m -tp 2 --prefill-context-parallel-size 2 --pipeline-parallel-size 2
vllm serve org/m -tp 2 --prefill-context-parallel-size 2 --data-parallel-size 2
vllm serve org/m -tp 2 --prefill-context-parallel-size 2 --enable-lora
vllm serve org/m --prefill-context-parallel-size 2 --speculative-config '{"method": "mtp", "num_speculative_tokens": 1}'
vllm serve org/m -tp 4 --decode-context-parallel-size 2 --kv-transfer-config '{"kv_connector": "NixlConnector", "kv_role": "kv_both"}'
