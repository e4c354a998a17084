# A misspelt keyword is refused by every version. expect: SD086 error
# expect: SD086 error
import sglang as sgl

engine = sgl.Engine(
    model_path="org/m",
    speculative_algorithm="NGRAM",
    speculative_num_draft_token=8,
    max_running_request=8,
)
