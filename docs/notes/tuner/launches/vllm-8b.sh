#!/bin/bash
# vLLM with the shape of an 8B model, random weights and simulated acceptance: times are real, accept lengths are not.
# The chain is a long one for a batch of 64 requests.
vllm serve shapes/target --load-format dummy \
    --speculative-config '{"method": "eagle3", "model": "shapes/eagle3", "num_speculative_tokens": 7, "rejection_sample_method": "synthetic", "synthetic_acceptance_length": 1.9}' \
    --max-model-len 2048 --max-num-seqs 64 --gpu-memory-utilization 0.8 \
    --host 0.0.0.0 --port 8000
