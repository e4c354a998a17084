# The flags of spectune's server are known, and --log-requests takes a file.
# expect: nothing
spectune serve --port 30000 --host 0.0.0.0 --api-key "$API_KEY" --served-model-name x --request-metrics \
  --log-requests l.jsonl --max-queued-requests 4 --shutdown-grace 5 --allowed-origins a b --model-path /m
