# expect: VL19 error
# expect: VL19 error
# expect: VL19 error
# expect: VL19 error
# expect: VL19 error
# requires vllm==0.33.0
from functools import partial

import sglang as s
import vllm as v
from vllm import LLM as Model


class Own(v.LLM):
    def ask(self, prompt):
        return self.generate([prompt])


class Other(v.LLM):
    def __init__(self, size, **kwargs):
        super().__init__("org/m", tensor_parallel_size=size, **kwargs)


Bound = v.LLM
make = partial(Model, model="org/m", tensor_paralel_size=2)

one = Model(model="org/m", max_model_length=4096)
two = v.LLM(model="org/m", gpu_memory_utilisation=0.9)
three = Own(model="org/m", max_num_seq=4)
four = Bound(model="org/m", enforce_eagr=True)
five = make(max_model_len=4096)
six = Other(size=2)
seven = s.Engine(model_path="org/m", tp_size=2)
