# The shell of the other host takes the inner quotes away.
# expect: nothing
ssh "$HOST" docker run -d --gpus all "$IMAGE" --model target --max-model-len 4096 --speculative-config "'{\"method\": \"mtp\", \"num_speculative_tokens\": 1}'"
