# expect: VL19 error
# expect: SD086 error
# requires vllm==0.33.0 sglang==0.5.23
def of_vllm():
    from vllm import LLM

    return LLM


def of_sglang():
    import sglang

    engine = sglang.Engine
    return engine


def either(wide):
    if wide:
        return of_sglang()
    return of_vllm()


Own = of_sglang()
one = of_vllm()(model="org/m", max_model_length=4096)
two = Own(model_path="org/m", tp_sizes=2)
three = either(True)(model_path="org/m", tp_sizes=2)
