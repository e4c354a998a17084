#!/bin/bash
# expect: nothing
sglang serve --model-path {{ model_path }} \
{% if draft %}
  --speculative-algorithm EAGLE3 --speculative-draft-model-path {{ draft }} \
{% endif %}
  --port 30000
