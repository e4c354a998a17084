# A test of the class itself: nothing starts.
# expect: LT02 error
from sglang.srt.server_args import ServerArgs

arguments = ServerArgs(model_path="dummy", enable_hisparse=True, kv_cache_dtype="bfloat16")
