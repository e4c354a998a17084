# Keywords that are set one after the other. expect: SD001 error
import sglang as sgl

settings = {"model_path": "org/m", "speculative_algorithm": "NGRAM"}
settings["tp_size"] = 2
if settings_of_user:
    settings.update({"page_size": 16})
settings.update(speculative_algorithm="NGRM", speculative_num_draft_tokens=8)
engine = sgl.Engine(**settings)
