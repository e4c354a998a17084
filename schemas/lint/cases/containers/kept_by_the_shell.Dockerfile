# What CMD holds are parameters of the script in ENTRYPOINT. expect: LT17 error
FROM vllm/vllm-openai:v0.20.0
ENTRYPOINT ["sh", "-c", "exec vllm serve org/m --max-num-seqs 8"]
CMD ["--speculative-config", "{\"method\": \"ngram\", \"num_speculative_tokens\": 4, \"prompt_lookup_max\": 4}"]
