# expect: SD001 warning
./start_everything.sh --model-path org/m --speculative-algorithm FOO --speculative-num-steps 3
