# expect: SD021 error
MODEL ?= target
STEPS = 3
SPEC = --speculative-algorithm EAGLE --speculative-num-steps $(STEPS)
serve:
	@python3 -m sglang.launch_server --model-path ${MODEL} \
	  --max-running-requests 8 $(SPEC)
