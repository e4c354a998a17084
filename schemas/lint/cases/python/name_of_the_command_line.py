# A call knows no aliases and no abbreviations. expect: SD086 error
# expect: SD086 error
from sglang.srt.server_args import ServerArgs

arguments = ServerArgs(model_path="org/m", tp=4, speculative_algorithm="EAGLE", speculative_draft_model="head", max_running_requests=8)
