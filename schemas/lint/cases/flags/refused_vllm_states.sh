# expect: VL36 error
# expect: VL36 error
# expect: VL36 error
# expect: VL36 error
# expect: VL36 error
pip install vllm==0.28.0
vllm serve org/m --use-replayssm --speculative-config '{"method": "mtp", "num_speculative_tokens": 1}'
vllm serve org/m --use-replayssm --kv-transfer-config '{"kv_connector": "NixlConnector", "kv_role": "kv_both"}'
vllm serve org/m --use-replayssm --mamba-backend flashinfer
vllm serve org/m --use-replayssm --mamba-cache-mode all
vllm serve org/m --return-sampling-mask --speculative-config '{"method": "mtp", "num_speculative_tokens": 1}'
