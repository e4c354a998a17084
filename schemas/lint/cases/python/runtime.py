# expect: SD023 warning
import sglang as sgl

runtime = sgl.Runtime(
    model_path="org/m",
    launch_timeout=600.0,
    speculative_algorithm="EAGLE",
    speculative_draft_model_path="org/draft",
    speculative_num_steps=3,
    speculative_eagle_topk=1,
    speculative_num_draft_tokens=1,
    max_running_requests=16,
)
