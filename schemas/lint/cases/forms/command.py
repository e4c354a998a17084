# expect: SD001 warning
COMMAND = ["python3", "-m", "sglang.launch_server", "--model-path", "org/m", "--speculative-algorithm", "FOO"]
