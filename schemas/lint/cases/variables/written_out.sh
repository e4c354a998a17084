#!/bin/bash
# expect: SD201 warning
export SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LENGTH=1
sglang serve --model-path org/m --speculative-algorithm NGRAM --max-running-requests 8
