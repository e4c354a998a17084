# A call of the engine's class has no arguments of its own. expect: SD086 warning
import sglang as sgl

engine = sgl.Engine(model_path="org/m", speculative_algorithm="NGRAM", warm_start_rows=3, max_running_requests=8)
