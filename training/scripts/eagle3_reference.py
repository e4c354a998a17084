"""Loss and gradients of the demo's EAGLE-3 head by the training script that made it (models/train/train.py), in float32.

    python training/scripts/eagle3_reference.py models/tiny tests/data/training

Writes eagle3.safetensors (tokens, captured and final states of the target, samples of gradients) and eagle3.json (losses,
norms of gradients). `training` must come to the same figures. Needs PyTorch and safetensors.
"""
import json, os, sys, types
import torch, torch.nn.functional as F
from safetensors.torch import load_file, save_file

ROWS, UNROLL, DECAY, SAMPLES = 12, 3, 0.8, 64


def script(path):
    source = open(path).read().replace("\nmain()", "\n")
    module = types.ModuleType("train")
    exec(compile(source, path, "exec"), module.__dict__)
    return module


def main(pair, out):
    here = os.path.dirname(os.path.abspath(__file__))
    train = script(os.path.join(here, "../../models/train/train.py"))
    shape = train.SHAPES["tiny"]
    target, head = train.Target(shape).float().eval(), train.Eagle3(shape).float()
    weights = load_file(f"{pair}/target/model.safetensors")
    target.load_state_dict({k.removeprefix("model."): v.float() for k, v in weights.items()})
    own = load_file(f"{pair}/eagle3/model.safetensors")
    offsets = own.pop("d2t"); own.pop("t2d")
    head.load_state_dict({k: v.float() for k, v in own.items()})
    hot = offsets + torch.arange(len(offsets))

    torch.manual_seed(7)
    width = ROWS + UNROLL + 1
    tokens = torch.randint(2, shape["V"], (2, width))
    # Half a text of the target's own making, so that its likeliest tokens are in the head's vocabulary.
    cs = train.cos_sin(64, shape["theta"], shape["scaling"], "cpu")
    with torch.no_grad():
        for at in range(4, width):
            _, _, logits = target(tokens[:, :at], cs[0][:at], cs[1][:at])
            tokens[:, at] = logits[:, -1].argmax(-1)
        aux, final, logits = target(tokens, cs[0][:width], cs[1][:width])

    history = []
    attend = train.unrolled_attention(history, shape["NH"] // shape["NK"])
    h, total, losses, agreed = head.start(aux[:, :ROWS], final[:, :ROWS]), 0.0, [], []
    for step in range(UNROLL):
        embedded = target.embed_tokens(tokens[:, 1 + step: ROWS + 1 + step]).detach()
        h, q = head.step(h, embedded, attend, cs[0][step: ROWS + step], cs[1][step: ROWS + step])
        said = logits[:, 1 + step: ROWS + 1 + step]
        p, keep = said[..., hot].softmax(-1), torch.isin(said.argmax(-1), hot).float()
        loss = F.kl_div(q.log_softmax(-1), p, reduction="none").sum(-1)
        losses.append(float((loss * keep).sum().detach()))
        agreed.append(int(((hot[q.argmax(-1)] == said.argmax(-1)) * keep).sum()))
        total = total + DECAY ** step * (loss * keep).sum() / (2 * ROWS)
    total.backward()

    tensors, figures = {"tokens": tokens, "captured": aux, "final": final}, {}
    for name, parameter in head.named_parameters():
        gradient = parameter.grad.flatten()
        places = [at * (len(gradient) - 1) // (SAMPLES - 1) for at in range(SAMPLES)]
        tensors[f"gradient.{name}"] = gradient[places].contiguous()
        figures[name] = float(gradient.double().norm())
    save_file({k: v.contiguous() for k, v in tensors.items()}, f"{out}/eagle3.safetensors")
    report = dict(rows=ROWS, unroll=UNROLL, decay=DECAY, total=float(total.detach()), losses=losses, agreed=agreed, norms=figures)
    json.dump(report, open(f"{out}/eagle3.json", "w"), indent=1)


main(*sys.argv[1:])
