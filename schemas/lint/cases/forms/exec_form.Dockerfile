# expect: SD001 error
FROM lmsysorg/sglang:v0.5.9
CMD ["python3", "-m", "sglang.launch_server", "--model-path", "org/m", "--speculative-algorithm", "FOO"]
