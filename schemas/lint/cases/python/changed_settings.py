# What is added to a dictionary afterwards is not followed.
# expect: nothing
import sglang as sgl

settings = {"speculative_algorithm": "EAGLE", "speculative_num_steps": 3}
settings["speculative_eagle_topk"] = 1
settings["speculative_num_draft_tokens"] = 4
engine = sgl.Engine(model_path="target", max_running_requests=8, **settings)
