#!/bin/bash
# Writes the config.json of Llama-3.1-8B and of its EAGLE-3 head, from which peers.py makes engines with random weights.
#   models.sh DIR      DIR/target and DIR/draft
set -euo pipefail
mkdir -p "$1/target" "$1/draft"
cat > "$1/target/config.json" <<'JSON'
{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "bfloat16", "vocab_size": 128256,
 "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
 "num_key_value_heads": 8, "head_dim": 128, "hidden_act": "silu", "rms_norm_eps": 1e-5, "rope_theta": 500000.0,
 "max_position_embeddings": 131072, "tie_word_embeddings": false, "bos_token_id": 128000, "eos_token_id": 128001}
JSON
cat > "$1/draft/config.json" <<'JSON'
{"architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama", "torch_dtype": "bfloat16", "vocab_size": 128256,
 "draft_vocab_size": 32000, "hidden_size": 4096, "target_hidden_size": 4096, "intermediate_size": 14336,
 "num_hidden_layers": 1, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "hidden_act": "silu",
 "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "max_position_embeddings": 131072, "tie_word_embeddings": false,
 "bos_token_id": 128000, "eos_token_id": 128001}
JSON
