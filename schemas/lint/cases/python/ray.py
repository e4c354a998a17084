# expect: VL02 error
from ray.serve.llm import LLMConfig, build_openai_app

config = LLMConfig(
    model_loading_config={"model_id": "m", "model_source": "target"},
    engine_kwargs=dict(tensor_parallel_size=2, speculative_config=dict(method="eagle3", model="draft")),
)
app = build_openai_app({"llm_configs": [config]})
