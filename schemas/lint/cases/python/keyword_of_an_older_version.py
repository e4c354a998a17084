# Every keyword exists in older versions. expect: nothing
import sglang as sgl

engine = sgl.Engine(model_path="org/m", speculative_algorithm="NGRAM", max_running_requests=8, cuda_graph_max_bs=8)
