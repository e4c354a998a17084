# Another program in the engine's image has flags of its own, and a request for help starts nothing.
# expect: LT02 error
podman run --rm --entrypoint /opt/venv/bin/python vllm/vllm-openai:v0.26.0 /data/prompts.py --model target --corpus /data/corpus --out-dir /data
podman run --rm --entrypoint vllm vllm/vllm-openai:v0.26.0 serve --help=all
