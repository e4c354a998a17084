# A condition may leave the flags out.
# expect: nothing
ifdef DRAFTS
SPEC = --speculative-algorithm EAGLE --speculative-num-steps $(DRAFTS) --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
else ifeq "$(KIND)" "none"
SPEC =
endif
serve:
	python3 -m sglang.launch_server --model-path target --max-running-requests 8 $(SPEC)
