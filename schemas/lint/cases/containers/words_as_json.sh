# Podman takes several words of an entry point as JSON.
# expect: VL02 error
podman run --gpus all --entrypoint '["vllm", "serve"]' "$IMAGE" target --speculative-config '{"method":"eagle3","model":"draft"}'
