# expect: nothing
DRAFTS ?= 0
SPEC :=
ifneq ($(DRAFTS),0)
SPEC := --speculative-algorithm EAGLE --speculative-num-steps $(DRAFTS) --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
endif
serve:
	python3 -m sglang.launch_server --model-path target --max-running-requests 8 $(SPEC)
