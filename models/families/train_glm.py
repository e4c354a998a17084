"""Train a tiny GLM-4.5 checkpoint with its MTP layer, and write the results of a float32 replay of its drafts.

    python train_glm.py tokenise TEXT... --tokenizer ../tiny/target/tokenizer.json --data DATA   # tokens.npy, prompts.json
    python train_glm.py train DATA OUT                                                            # one GPU, a few minutes
    python train_glm.py reference DATA OUT [--transformers]                                       # OUT/reference.json, on the CPU

`train` and `reference` need torch, numpy and safetensors; `tokenise` needs the tokenizers library, `--transformers` transformers.
The target is a small GLM-4.5: half of a head is rotated, queries and keys have biases and norms, the first layer is dense, and the
others have experts with a sigmoid router, a correction that balances them, a shared expert and scale 2.5. The MTP layer is trained as
it is used: one layer over several steps, each of which reads the output of the previous step after the final norm.
"""
import argparse, json, math, pathlib, time

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import nn

CONFIG = dict(
    architectures=["Glm4MoeForCausalLM"], model_type="glm4_moe", vocab_size=2048, hidden_size=128, intermediate_size=384, num_hidden_layers=6,
    num_attention_heads=4, num_key_value_heads=2, head_dim=64, attention_bias=True, use_qk_norm=True, partial_rotary_factor=0.5, rope_theta=1e6,
    rope_scaling=None, rms_norm_eps=1e-5, hidden_act="silu", n_routed_experts=8, num_experts_per_tok=2, moe_intermediate_size=64, n_shared_experts=1,
    first_k_dense_replace=1, n_group=1, topk_group=1, norm_topk_prob=True, routed_scaling_factor=2.5, num_nextn_predict_layers=1,
    tie_word_embeddings=False, max_position_embeddings=2048, bos_token_id=0, eos_token_id=1, torch_dtype="bfloat16", attention_dropout=0.0,
    initializer_range=0.02, use_cache=True,
)
SHAPES = ["1,1,2", "2,1,3", "3,1,4", "5,1,6", "3,4,8", "5,4,16", "5,8,32"]
V, H, D = CONFIG["vocab_size"], CONFIG["hidden_size"], CONFIG["head_dim"]
HEADS, KV_HEADS, LAYERS = CONFIG["num_attention_heads"], CONFIG["num_key_value_heads"], CONFIG["num_hidden_layers"]
EXPERTS, TOP_K, ROTATED = CONFIG["n_routed_experts"], CONFIG["num_experts_per_tok"], int(D * CONFIG["partial_rotary_factor"])
MTP = f"model.layers.{LAYERS}."


# --- the model ---------------------------------------------------------------------------------------------------------------------------

class Norm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        y = x.float()
        y = y * torch.rsqrt(y.square().mean(-1, keepdim=True) + CONFIG["rms_norm_eps"])
        return (y * self.weight.float()).to(x.dtype)


def linear(inputs, outputs, bias=False):
    layer = nn.Linear(inputs, outputs, bias=bias)
    nn.init.normal_(layer.weight, std=0.02)
    if bias:
        nn.init.normal_(layer.bias, std=0.02)
    return layer


def turns(positions, device="cpu"):
    """Cosine and sine of positions `[n]`: `[n, ROTATED]` each."""
    frequencies = CONFIG["rope_theta"] ** (-torch.arange(0, ROTATED, 2, device=device).float() / ROTATED)
    angles = torch.outer(positions.float(), frequencies).repeat(1, 2)
    return angles.cos(), angles.sin()


def rotate(x, cos, sin):
    """Rotates the first ROTATED dimensions of `x` (`[..., rows, D]`), paired by halves; the others are unchanged."""
    turned, rest = x[..., :ROTATED], x[..., ROTATED:]
    low, high = turned.chunk(2, -1)
    return torch.cat([(turned.float() * cos + torch.cat([-high, low], -1).float() * sin).to(x.dtype), rest], -1)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q_proj, self.o_proj = linear(H, HEADS * D, True), linear(HEADS * D, H)
        self.k_proj, self.v_proj = linear(H, KV_HEADS * D, True), linear(H, KV_HEADS * D, True)
        self.q_norm, self.k_norm = Norm(D), Norm(D)

    def qkv(self, x, turn):
        """Rows `[batch, rows, H]` to queries, keys and values `[batch, HEADS, rows, D]`; keys and values are repeated for their queries."""
        heads = lambda y: y.unflatten(-1, (-1, D)).transpose(1, 2)
        repeat = lambda y: y.repeat_interleave(HEADS // KV_HEADS, 1)
        q, k = (rotate(norm(heads(projection(x))), *turn) for projection, norm in ((self.q_proj, self.q_norm), (self.k_proj, self.k_norm)))
        return q, repeat(k), repeat(heads(self.v_proj(x)))

    def out(self, attended):
        return self.o_proj(attended.transpose(1, 2).flatten(2))


class Mlp(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.gate_proj, self.up_proj, self.down_proj = linear(H, width), linear(H, width), linear(width, H)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Gate(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(EXPERTS, H) * 0.02)
        self.register_buffer("e_score_correction_bias", torch.zeros(EXPERTS))
        self.load = None

    def forward(self, x):
        """Weights `[rows, EXPERTS]` in float32, zero for experts that are not chosen."""
        with torch.autocast(x.device.type, enabled=False):
            scores = F.linear(x.float(), self.weight.float()).sigmoid()
        chosen = (scores + self.e_score_correction_bias.float()).topk(TOP_K, -1).indices
        weights = scores.gather(-1, chosen)
        weights = weights / (weights.sum(-1, keepdim=True) + 1e-20) * CONFIG["routed_scaling_factor"]
        weights = torch.zeros_like(scores).scatter(-1, chosen, weights)
        if self.training:
            self.load = (weights > 0).float().mean(0).detach()
        return weights


class Experts(nn.Module):
    """All experts run on all rows, which for few experts is faster than sorting."""

    def __init__(self):
        super().__init__()
        width = CONFIG["moe_intermediate_size"]
        self.gate, self.shared_experts = Gate(), Mlp(width * CONFIG["n_shared_experts"])
        self.gate_up = nn.Parameter(torch.randn(EXPERTS, 2 * width, H) * 0.02)
        self.down = nn.Parameter(torch.randn(EXPERTS, H, width) * 0.02)

    def forward(self, x):
        rows = x.reshape(-1, H)
        weights = self.gate(rows)
        gate, up = torch.einsum("nh,eih->nei", rows, self.gate_up.to(rows.dtype)).chunk(2, -1)
        outputs = torch.einsum("nei,ehi->neh", F.silu(gate) * up, self.down.to(rows.dtype))
        return (outputs * weights[..., None].to(outputs.dtype)).sum(1).view_as(x) + self.shared_experts(x)


class Layer(nn.Module):
    def __init__(self, index):
        super().__init__()
        self.input_layernorm, self.post_attention_layernorm, self.self_attn = Norm(H), Norm(H), Attention()
        self.mlp = Experts() if index >= CONFIG["first_k_dense_replace"] else Mlp(CONFIG["intermediate_size"])

    def forward(self, x, turn, attend):
        x = x + self.self_attn.out(attend(*self.self_attn.qkv(self.input_layernorm(x), turn)))
        return x + self.mlp(self.post_attention_layernorm(x))


def causal(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


class Target(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed_tokens = nn.Embedding(V, H)
        nn.init.normal_(self.embed_tokens.weight, std=0.02)
        self.layers = nn.ModuleList(Layer(index) for index in range(LAYERS))
        self.norm, self.lm_head = Norm(H), linear(H, V)

    def forward(self, tokens):
        """The states after the final norm, and the logits."""
        turn = turns(torch.arange(tokens.shape[1], device=tokens.device), tokens.device)
        x = self.embed_tokens(tokens)
        for layer in self.layers:
            x = layer(x, turn, causal)
        x = self.norm(x)
        return x, self.lm_head(x)


class Mtp(nn.Module):
    def __init__(self):
        super().__init__()
        self.enorm, self.hnorm, self.eh_proj, self.norm, self.layer = Norm(H), Norm(H), linear(2 * H, H), Norm(H), Layer(LAYERS)

    def forward(self, embedded, hidden, turn, attend):
        """The normed state that the LM head and the next step read. `eh_proj` takes the embedding first."""
        x = self.eh_proj(torch.cat([self.enorm(embedded), self.hnorm(hidden)], -1))
        return self.norm(self.layer(x, turn, attend))


# --- checkpoints -------------------------------------------------------------------------------------------------------------------------

def published(prefix, layer):
    """A layer's tensors by their published names."""
    tensors = {}
    for name, value in layer.state_dict().items():
        if name == "mlp.gate_up":
            for expert, both in enumerate(value):
                for part, half in zip(("gate", "up"), both.chunk(2)):
                    tensors[f"{prefix}mlp.experts.{expert}.{part}_proj.weight"] = half
        elif name == "mlp.down":
            tensors.update({f"{prefix}mlp.experts.{expert}.down_proj.weight": value[expert] for expert in range(EXPERTS)})
        else:
            tensors[prefix + name] = value
    return tensors


def read_layer(layer, prefix, tensors):
    """The inverse of `published`: loads a layer from tensors with published names."""
    state = {}
    for name in layer.state_dict():
        expert = lambda part: [tensors[f"{prefix}mlp.experts.{at}.{part}_proj.weight"] for at in range(EXPERTS)]
        if name == "mlp.gate_up":
            state[name] = torch.stack([torch.cat(pair) for pair in zip(expert("gate"), expert("up"))])
        elif name == "mlp.down":
            state[name] = torch.stack(expert("down"))
        else:
            state[name] = tensors[prefix + name]
    layer.load_state_dict(state)


OUTER = {"embed_tokens": "model.embed_tokens.weight", "norm": "model.norm.weight", "lm_head": "lm_head.weight"}
INNER = {"enorm": "enorm.weight", "hnorm": "hnorm.weight", "eh_proj": "eh_proj.weight", "norm": "shared_head.norm.weight"}


def export(folder, target, mtp):
    tensors = {name: getattr(target, module).weight for module, name in OUTER.items()}
    for index, layer in enumerate(target.layers):
        tensors.update(published(f"model.layers.{index}.", layer))
    tensors.update({MTP + name: getattr(mtp, module).weight for module, name in INNER.items()})
    tensors.update(published(MTP, mtp.layer))
    # GLM-4.5 ships copies of the target's embedding and head with its MTP layer.
    tensors[MTP + "embed_tokens.weight"], tensors[MTP + "shared_head.head.weight"] = target.embed_tokens.weight, target.lm_head.weight
    keep = lambda name, value: value.float() if "e_score_correction_bias" in name else value.bfloat16()
    folder.mkdir(parents=True, exist_ok=True)
    save_file({name: keep(name, value.detach()).cpu().contiguous().clone() for name, value in tensors.items()}, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(CONFIG, indent=1) + "\n")


def load(folder):
    tensors = {name: value.float() for name, value in load_file(folder / "model.safetensors").items()}
    target, mtp = Target(), Mtp()
    for module, names, prefix in ((target, OUTER, ""), (mtp, INNER, MTP)):
        for name, tensor in names.items():
            getattr(module, name).weight.data = tensors[prefix + tensor]
    for index, layer in enumerate(target.layers):
        read_layer(layer, f"model.layers.{index}.", tensors)
    read_layer(mtp.layer, MTP, tensors)
    return target.eval(), mtp.eval()


# --- training ----------------------------------------------------------------------------------------------------------------------------

def optimise(name, model, loss_of, steps, rate, decay):
    matrices = [p for p in model.parameters() if p.ndim > 1]
    vectors = [p for p in model.parameters() if p.ndim <= 1]
    optimiser = torch.optim.AdamW([dict(params=matrices, weight_decay=decay), dict(params=vectors, weight_decay=0.0)], lr=rate, betas=(0.9, 0.95))
    gates, begin = [module for module in model.modules() if isinstance(module, Gate)], time.time()
    for step in range(steps):
        for group in optimiser.param_groups:
            group["lr"] = rate * min(1, (step + 1) / 100) * (0.05 + 0.475 * (1 + math.cos(math.pi * step / steps)))
        loss, figures = loss_of()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        for gate in gates:
            # Load balancing without a loss: experts that are chosen too rarely get a slightly higher rank.
            if gate.load is not None:
                gate.e_score_correction_bias += 1e-3 * min(1.0, 2 * (1 - step / steps)) * (gate.load.mean() - gate.load).sign()
        if step % 200 == 0 or step == steps - 1:
            print(name, step, {key: round(float(value), 3) for key, value in figures.items()}, f"{time.time() - begin:.0f} s", flush=True)
    return {key: round(float(value), 4) for key, value in figures.items()}


def unrolled():
    """Attention of the unrolled draft steps, for all positions of a text at once. The first step is causal; step s attends to the first step's
    keys up to its own position, and at that position to those of steps 1 to s."""
    history = []

    def attend(q, k, v):
        history.append((k, v))
        if len(history) == 1:
            return causal(q, k, v)
        (first_keys, first_values), later = history[0], history[1:]
        hidden = torch.ones(q.shape[2], q.shape[2], dtype=torch.bool, device=q.device).triu(1)
        scores = (q @ first_keys.transpose(-1, -2)).float().masked_fill(hidden, -1e30)
        own = torch.stack([(q * keys).float().sum(-1) for keys, _ in later], -1)
        weights = (torch.cat([scores, own], -1) * D**-0.5).softmax(-1).to(q.dtype)
        output = weights[..., : -len(later)] @ first_values
        for at, (_, values) in enumerate(later):
            output = output + weights[..., at - len(later)][..., None] * values
        return output

    return attend


@torch.no_grad()
def continued(target, texts, count, temperatures):
    for _ in range(count):
        logits = target(texts)[1][:, -1].float()
        sampled = torch.multinomial((logits / temperatures.clamp(min=1e-3)).softmax(-1), 1)
        texts = torch.cat([texts, torch.where(temperatures > 0, sampled, logits.argmax(-1, keepdim=True))], 1)
    return texts


def train(a):
    torch.manual_seed(5)
    torch.set_float32_matmul_precision("high")
    device = a.device
    data = torch.from_numpy(np.load(a.data / "tokens.npy").astype(np.int32)).to(device)
    cast = lambda: torch.autocast(device, torch.bfloat16)

    def windows(batch, width):
        return data[torch.randint(0, len(data) - width, (batch, 1), device=device) + torch.arange(width, device=device)].long()

    target = Target().to(device).train()

    def target_loss():
        text = windows(a.batch, a.length + 1)
        with cast():
            logits = target(text[:, :-1])[1]
        loss = F.cross_entropy(logits.float().flatten(0, 1), text[:, 1:].flatten())
        return loss, dict(loss=loss.detach())

    report = dict(target=optimise("target", target, target_loss, a.steps, 4e-3, 0.1))
    report["expert_load"] = [[round(float(x), 3) for x in layer.mlp.gate.load] for layer in target.layers if isinstance(layer.mlp, Experts)]
    # From here on the target is the exported one: bfloat16, except for the corrections.
    corrections = {name: value.clone() for name, value in target.named_buffers()}
    target = target.bfloat16().eval().requires_grad_(False)
    for name, value in target.named_buffers():
        value.data = corrections[name]
    width, rows = a.window + a.unroll + 1, a.window
    pool = continued(target, windows(a.pool, 64), a.new, (torch.rand(a.pool, 1, device=device) < 0.5).float())
    print("texts of the target", tuple(pool.shape), flush=True)

    def mixed(batch):
        """A batch of windows, mostly of text that the target generated."""
        places = torch.randint(0, pool.shape[1] - width + 1, (batch, 1), device=device) + torch.arange(width, device=device)
        own = pool[torch.randint(0, len(pool), (batch, 1), device=device), places]
        return torch.where(torch.rand(batch, 1, device=device) < 0.7, own, windows(batch, width))

    mtp = Mtp().to(device).train()

    def draft_loss():
        text = mixed(a.draft_batch)
        with torch.no_grad():
            states, logits = target(text)
        total, figures, attend, hidden = 0.0, {}, unrolled(), states[:, :rows].float()
        with cast():
            for step in range(a.unroll):
                embedded = target.embed_tokens(text[:, 1 + step : rows + 1 + step]).float()
                turn = turns(torch.arange(step, rows + step, device=device), device)
                hidden = mtp(embedded, hidden, turn, attend)
                drafted = F.linear(hidden.float(), target.lm_head.weight.float())
                wanted = logits[:, 1 + step : rows + 1 + step].float()
                total = total + 0.8**step * -(wanted.softmax(-1) * drafted.float().log_softmax(-1)).sum(-1).mean()
                figures[f"hit{step}"] = (drafted.argmax(-1) == wanted.argmax(-1)).float().mean()
        return total, dict(loss=total.detach(), **figures)

    report["draft"] = optimise("draft", mtp, draft_loss, a.draft_steps, 2e-3, 0.01)
    export(a.out / "target", target, mtp)
    (a.out / "report.json").write_text(json.dumps(report, indent=1) + "\n")


# --- reference ---------------------------------------------------------------------------------------------------------------------------

def greedy(target, prompt, count):
    text, gaps = torch.tensor([prompt]), []
    for _ in range(count):
        best = target(text)[1][0, -1].topk(2)
        gaps.append(round(float(best.values[0] - best.values[1]), 4))
        text = torch.cat([text, best.indices[None, :1]], 1)
    return text[0, len(prompt) :].tolist(), gaps


class Read:
    """The results of target and MTP layer on a whole text, from which drafts start at any position."""

    def __init__(self, target, mtp, text):
        self.target, self.mtp, tokens = target, mtp, torch.tensor([text])
        states = target(tokens)[0]
        turn = turns(torch.arange(len(text) - 1))

        def keep(q, k, v):
            self.keys, self.values = k, v
            return causal(q, k, v)

        self.states = mtp(target.embed_tokens(tokens[:, 1:]), states[:, :-1], turn, keep)[0]
        self.scores = target.lm_head(self.states).log_softmax(-1)

    def tree(self, length, steps, topk, count):
        """The tree after `length` tokens: all nodes as (parent or -1, token, score), and the indices of the best `count - 1`, parents first."""
        score, tokens = self.scores[length - 1].topk(topk)
        nodes = [(-1, int(token), float(value)) for token, value in zip(tokens, score)]
        state, beam = self.states[length - 1].expand(topk, -1), list(range(topk))
        keys, values = [self.keys[:, :, :length]], [self.values[:, :, :length]]
        ancestors = torch.eye(topk, dtype=torch.bool)
        for step in range(1, steps):
            turn = turns(torch.tensor([length + step - 1]))
            mask = torch.cat([torch.ones(topk, length, dtype=torch.bool), ancestors], 1)

            def attend(q, k, v):
                keys.append(k), values.append(v)
                return F.scaled_dot_product_attention(q, torch.cat(keys, 2), torch.cat(values, 2), attn_mask=mask)

            output = self.mtp(self.target.embed_tokens(tokens)[None], state[None], turn, attend)[0]
            best, children = self.target.lm_head(output).log_softmax(-1).topk(topk, -1)
            all_scores = (best + score[:, None]).flatten()
            first = len(nodes)
            nodes += [(beam[at // topk], int(token), float(value)) for at, (token, value) in enumerate(zip(children.flatten(), all_scores))]
            score, places = all_scores.topk(topk)
            tokens, state, beam = children.flatten()[places], output[places // topk], [first + int(place) for place in places]
            ancestors = torch.cat([ancestors[places // topk], torch.eye(topk, dtype=torch.bool)], 1)
        order = torch.tensor([value for _, _, value in nodes])
        return nodes, sorted(order.topk(min(count - 1, len(nodes))).indices.tolist())


def rounds(read, text, begin, new, shape):
    """The number of rounds along a text, and a histogram of the number of accepted drafts."""
    steps, topk, count = map(int, shape.split(","))
    length, made, number, histogram = begin, 1, 0, [0] * (steps + 1)
    while made < new:
        nodes, kept = read.tree(length, steps, topk, count)
        node, accepted = -1, 0
        while accepted < steps and length + accepted + 1 < len(text):
            match = [at for at in kept if nodes[at][0] == node and nodes[at][1] == text[length + accepted + 1]]
            if not match:
                break
            node, accepted = match[0], accepted + 1
        histogram[accepted] += 1
        number, made, length = number + 1, made + accepted + 1, length + accepted + 1
    return number, histogram


@torch.no_grad()
def reference(a):
    torch.set_num_threads(a.threads)
    target, mtp = load(a.out / "target")
    prompts = json.loads((a.data / "prompts.json").read_text())[: a.count]
    outputs = [greedy(target, prompt, a.new) for prompt in prompts]
    result = dict(family="glm4_moe", max_new_tokens=a.new, ignore_eos=True, temperature=0)
    result["accept_length_definition"] = "completion tokens / rounds; the first token (from prefill) counts, the last round is cut"
    result["prompts"] = [dict(input_ids=prompt, output_ids_float32=ids, top2_gap_float32=gaps) for prompt, (ids, gaps) in zip(prompts, outputs)]
    if a.transformers:
        result["transformers"] = transformers_agrees(a.out / "target", target, prompts, outputs)
        print("transformers", result["transformers"], flush=True)
    replays = {shape: dict(rounds=[], accepted_drafts_histogram=[0] * (int(shape.split(",")[0]) + 1)) for shape in SHAPES}
    for prompt, (ids, _) in zip(prompts, outputs):
        read = Read(target, mtp, prompt + ids)
        for shape, of_shape in replays.items():
            number, histogram = rounds(read, prompt + ids, len(prompt), a.new, shape)
            of_shape["rounds"].append(number)
            of_shape["accepted_drafts_histogram"] = [sum(pair) for pair in zip(of_shape["accepted_drafts_histogram"], histogram)]
    for shape, of_shape in replays.items():
        of_shape["accept_length"] = round(a.new * len(prompts) / sum(of_shape["rounds"]), 4)
        print(shape, of_shape["accept_length"], flush=True)
    result["shapes"] = {shape: dict(float32=of_shape) for shape, of_shape in replays.items()}
    (a.out / "reference.json").write_text(json.dumps(result))


def transformers_agrees(folder, target, prompts, outputs):
    """The largest difference from the logits of transformers' own class, and the number of positions with the same greedy token."""
    from transformers import AutoModelForCausalLM

    theirs = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    positions, equal, worst = 0, 0, 0.0
    for prompt, (ids, _) in zip(prompts, outputs):
        text = torch.tensor([prompt + ids])
        logits = theirs(text).logits[0]
        worst = max(worst, float((logits - target(text)[1][0]).abs().max()))
        equal += int((logits[len(prompt) - 1 : -1].argmax(-1) == torch.tensor(ids)).sum())
        positions += len(ids)
    return dict(positions=positions, equal=equal, largest_difference_of_logits=worst)


# --- text --------------------------------------------------------------------------------------------------------------------------------

def tokenise(a):
    """Tokenises text files (and the Python files of folders) into one sequence. Every twentieth file is held out, for prompts."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(a.tokenizer))
    files = sorted(file for path in a.text for file in ([path] if path.is_file() else path.rglob("*.py")))
    files = [file for file in files if "site-packages" not in file.parts]
    read, held, size, random = [], [], 0, np.random.default_rng(3)
    for at, file in enumerate(random.permutation(np.array(files, dtype=object))):
        try:
            text = file.read_text()
        except (OSError, UnicodeDecodeError):
            continue
        if not 2000 < len(text) < 200_000 or size + len(text) > a.bytes:
            continue
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        if at % 20 == 7:
            held.append(ids)
        else:
            size += len(text)
            read += [CONFIG["bos_token_id"], *ids]
    prompts = []
    for at in range(a.count):
        ids, length = held[at % len(held)], int(random.integers(63, 256))
        begin = int(random.integers(0, max(1, len(ids) - length)))
        prompts.append([CONFIG["bos_token_id"], *ids[begin : begin + length]])
    a.data.mkdir(parents=True, exist_ok=True)
    np.save(a.data / "tokens.npy", np.array(read, dtype=np.uint16))
    (a.data / "prompts.json").write_text(json.dumps(prompts))
    print(f"{len(read)} tokens of {size} characters, {len(held)} files held out")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("tokenise")
    one.add_argument("text", nargs="+", type=pathlib.Path)
    one.add_argument("--tokenizer", type=pathlib.Path, required=True)
    one.add_argument("--data", type=pathlib.Path, required=True)
    one.add_argument("--bytes", type=int, default=9_000_000)
    one.add_argument("--count", type=int, default=40)
    one.set_defaults(run=tokenise)
    one = commands.add_parser("train")
    one.add_argument("data", type=pathlib.Path)
    one.add_argument("out", type=pathlib.Path)
    one.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    for name, value in dict(steps=2500, draft_steps=1800, batch=48, draft_batch=32, length=768, window=256, unroll=5, pool=512, new=320).items():
        one.add_argument(f"--{name.replace('_', '-')}", type=int, default=value)
    one.set_defaults(run=train)
    one = commands.add_parser("reference")
    one.add_argument("data", type=pathlib.Path)
    one.add_argument("out", type=pathlib.Path)
    one.add_argument("--count", type=int, default=40)
    one.add_argument("--new", type=int, default=96)
    one.add_argument("--threads", type=int, default=2)
    one.add_argument("--transformers", action="store_true")
    one.set_defaults(run=reference)
    arguments = parser.parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    main()
