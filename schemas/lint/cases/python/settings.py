# Settings that are given as a dictionary are keywords.
# expect: SD021 error
import sglang as sgl

settings = dict(speculative_algorithm="EAGLE", speculative_num_steps=3, max_running_requests=8)
engine = sgl.Engine(model_path="target", **settings)
