# expect: SD001 error
import sglang

engine = sglang.Engine(model_path="org/m", speculative_algorithm="FOO")
