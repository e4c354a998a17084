# A class of the program's own, and one of another package. expect: LT02 error
import vllm
from nanovllm import LLM


class EngineArgs:
    def __init__(self, **settings):
        self.settings = settings


arguments = EngineArgs(model="org/m", warm_start_rows=3)
llm = LLM("org/m", enforce_eagerly=True)
