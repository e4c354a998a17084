# expect: VL36 error
# expect: VL36 error
# expect: VL36 error
# expect: VL36 error
# expect: VL36 error
pip install vllm==0.33.0
vllm serve org/m --async-scheduling --speculative-config '{"method": "suffix", "num_speculative_tokens": 8}'
vllm serve org/m --enforce-eager --speculative-config '{"method": "dspark", "model": "org/d", "num_speculative_tokens": 7, "enable_adaptive_verification": true}'
vllm serve org/m --watermark-config '{}' --speculative-config '{"method": "eagle3", "model": "org/d", "num_speculative_tokens": 3}'
vllm serve org/m --speculative-config '{"method": "draft_model", "model": "org/d", "num_speculative_tokens": 3, "use_heterogeneous_vocab": true, "draft_sample_method": "probabilistic"}'
VLLM_USE_V2_MODEL_RUNNER=0 vllm serve org/m --speculative-config '{"method": "draft_model", "model": "org/d", "num_speculative_tokens": 3, "disable_padded_drafter_batch": true}'
