#!/bin/sh
# expect: SD001 error
python3 -m sglang.launch_server --model-path org/m --speculative-algorithm FOO
