# Keys that are added to a dictionary, and dictionaries within others. expect: SD021 error
import sglang as sgl

base = dict(model_path="target", speculative_algorithm="EAGLE")
settings = {**base, "max_running_requests": 8}
settings |= {"speculative_num_steps": 1 + 2}
engine = sgl.Engine(**settings)
