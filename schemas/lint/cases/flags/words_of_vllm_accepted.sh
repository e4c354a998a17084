# expect: nothing
vllm serve -tp 2 --enforce-eager org/m -O3 --max-model-len 25.6k
vllm serve --host 0.0.0.0 org/m --max-model-len auto
vllm serve org/m --served-model-name a b --api-key k l --max-num-batched-tokens 8K
vllm serve org/m --compilation-config.level 3 --no-enable-prefix-caching
vllm serve org/m --enable-auto-tool-choice --tool-call-parser hermes
