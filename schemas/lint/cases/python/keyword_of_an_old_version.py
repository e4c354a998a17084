# The field has another name since 0.5.14, though the command line kept the old one until 0.5.20.
# pip install sglang==0.5.16
# expect: SD086 error
import sglang as sgl

engine = sgl.Engine(model_path="org/m", speculative_algorithm="NGRAM", max_running_requests=8, cuda_graph_max_bs=8)
