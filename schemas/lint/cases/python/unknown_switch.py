# Whether a switch with an unknown value is given is unknown. expect: nothing
from sglang.srt.server_args import ServerArgs


def arguments(options):
    return ServerArgs(
        model_path=options.model,
        disable_cuda_graph=options.disable_cuda_graph,
        speculative_algorithm="EAGLE3",
        speculative_draft_model_path=options.draft,
    )
