# A chain of 3 * 2 steps has 7 tokens. expect: SD023 warning
import sglang as sgl

DEPTH = 3
engine = sgl.Engine(
    model_path="target",
    speculative_algorithm="EAGLE",
    speculative_num_steps=DEPTH * 2,
    speculative_eagle_topk=1,
    speculative_num_draft_tokens=2**3 + 1,
    max_running_requests=16 // 2,
)
