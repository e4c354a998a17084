#!/bin/bash
# Writes the folders that the launches here name: the shape of Llama-3.1-8B and of its EAGLE-3 head, without weights.
#   shapes.sh REPOSITORY
# Run it where the launches are run; the folder is called `shapes`. The tokenizer is that of the demo models: prompts are
# random token ids, and texts mean nothing.
set -eu
mkdir -p shapes/target shapes/eagle3
cp "$1"/models/tiny/target/{tokenizer.json,tokenizer_config.json,special_tokens_map.json} shapes/target/
cat > shapes/target/config.json <<'JSON'
{
  "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "bfloat16",
  "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
  "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 128256, "max_position_embeddings": 131072,
  "hidden_act": "silu", "rms_norm_eps": 1e-05, "rope_theta": 500000.0, "attention_bias": false, "mlp_bias": false,
  "rope_scaling": {
    "factor": 8.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0, "original_max_position_embeddings": 8192,
    "rope_type": "llama3"
  },
  "tie_word_embeddings": false, "use_cache": true, "initializer_range": 0.02, "bos_token_id": 128000,
  "eos_token_id": 128001
}
JSON
cat > shapes/eagle3/config.json <<'JSON'
{
  "architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama", "torch_dtype": "bfloat16",
  "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 1, "num_attention_heads": 32,
  "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 128256, "draft_vocab_size": 32000,
  "max_position_embeddings": 2048, "hidden_act": "silu", "rms_norm_eps": 1e-05, "tie_word_embeddings": false,
  "use_cache": true, "initializer_range": 0.02, "pad_token_id": 0, "bos_token_id": 128000, "eos_token_id": 128001
}
JSON
