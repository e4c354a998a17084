# expect: VL19 error
# expect: VL11 error
# requires vllm==0.33.0
from dataclasses import dataclass

from vllm import EngineArgs


@dataclass
class Arguments(EngineArgs):
    rounds: int = 4
    seed: int = 3


right = Arguments(model="org/m", rounds=2, seed=4)
one = Arguments(model="org/m", round=2)
two = Arguments(model="org/m", rounds=2, speculative_config={"method": "ngramm", "num_speculative_tokens": 3})
