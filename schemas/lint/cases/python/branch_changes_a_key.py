# Whichever value it has, a number of steps is given. expect: SD021 error
import sglang as sgl

settings = dict(model_path="target", speculative_algorithm="EAGLE", speculative_num_steps=3, max_running_requests=8)
if is_small:
    settings["speculative_num_steps"] = 1
engine = sgl.Engine(**settings)
