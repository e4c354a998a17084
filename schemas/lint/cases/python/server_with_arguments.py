# expect: SD021 error
from sglang.test.test_utils import popen_launch_server

process = popen_launch_server(
    "target",
    "http://127.0.0.1:30000",
    timeout=600,
    other_args=["--max-running-requests", "16", "--speculative-algorithm", "EAGLE", "--speculative-num-steps", 3],
)
