# expect: VL24 warning
pip install vllm==0.18.0
vllm serve Qwen/Qwen2.5-VL-7B-Instruct --speculative-config '{"method": "extract_hidden_states", "num_speculative_tokens": 1, "draft_model_config": {"hf_config": {"eagle_aux_hidden_state_layer_ids": [2]}}}' --kv-transfer-config '{"kv_connector": "ExampleHiddenStatesConnector", "kv_role": "kv_producer"}'
