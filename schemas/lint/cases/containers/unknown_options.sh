# Options, the image and the model may be variables.
# expect: VL02 error
# expect: VL02 error
# expect: VL02 error
docker run -d --gpus all ${EXTRA:-} vllm/vllm-openai:v0.26.0 target --speculative-config '{"method":"eagle3","model":"draft"}'
podman run "${options[@]}" --device nvidia.com/gpu=all --entrypoint vllm vllm/vllm-openai:v0.26.0 serve target --speculative-config '{"method":"eagle3","model":"draft"}'
docker run -d --gpus all "$IMAGE" "$MODEL" --served-model-name glm --enable-auto-tool-choice --speculative-config '{"method":"mtp"}'
