# expect: VL19 error
# expect: VL19 error
# expect: VL19 error
# expect: VL19 error
# expect: VL11 error
# expect: VL11 error
# requires vllm==0.33.0
import vllm as v


class Sized(v.LLM):
    def __init__(self, size, method="ngram", *, label=None, **kwargs):
        self.label = label
        drafts = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 4}
        super().__init__("org/m", tensor_parallel_size=size, speculative_config=drafts, **kwargs)


class Labelled(Sized):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, label="own", **kwargs)


class Changed(v.LLM):
    def __init__(self, model, **kwargs):
        kwargs.pop("label", None)
        super().__init__(model, max_model_length=4096, **kwargs)


class Wrong(v.LLM):
    def __init__(self, drafts):
        super().__init__("org/m", speculative_config=drafts)


class LLM(v.LLM):
    """Of the same name."""


class Unused(v.LLM):
    def __init__(self, model, **kwargs):
        super().__init__(model, speculative_config={"method": "ngramm", "num_speculative_tokens": 3}, **kwargs)


one = Sized(2, gpu_memory_utilisation=0.9)
two = Labelled(2, max_num_seq=4)
three = Changed("org/m", label="x")
four = Wrong(drafts={"method": "ngramm", "num_speculative_tokens": 3})
five = LLM("org/m", enforce_eagr=True)
right = Sized(size=2, label="x", max_num_seqs=4)
