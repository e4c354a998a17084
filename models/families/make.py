"""Write tiny random checkpoints of each model family, and the float32 results of PyTorch with them.

    python make.py ../../tests/data/families          # all families; give names to write only those

Each folder contains `config.json` and `model.safetensors` in the published layout, and `golden.safetensors`: a prompt, the target's
logits after each of its tokens, and the outputs of the MTP layer for families that have one. The targets are transformers' own
classes; the MTP layers, which transformers does not load, are implemented by `Mtp`. Versions are pinned in README.md.
"""
import argparse, json, pathlib, tempfile

import torch, transformers
from safetensors.torch import load_file, save_file
from torch import nn
from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3DecoderLayer, DeepseekV3RMSNorm
from transformers.models.glm4_moe.modeling_glm4_moe import Glm4MoeDecoderLayer, Glm4MoeRMSNorm
from transformers.models.qwen2.modeling_qwen2 import Qwen2DecoderLayer, Qwen2RMSNorm

torch.set_grad_enabled(False)
torch.set_num_threads(1)

VOCABULARY, PROMPT, STEPS = 64, 13, 3
COMMON = dict(vocab_size=VOCABULARY, hidden_size=32, intermediate_size=24, num_attention_heads=6, num_key_value_heads=2, max_position_embeddings=512, hidden_act="silu", bos_token_id=0, eos_token_id=1, attention_dropout=0.0)


def rope(theta, **more):
    return dict(rope_parameters=dict(rope_type="default", rope_theta=theta, **more))


QWEN3 = dict(COMMON, head_dim=8, rms_norm_eps=1e-6, **rope(1e6))
GLM = dict(COMMON, head_dim=8, rms_norm_eps=1e-5, moe_intermediate_size=10, n_shared_experts=1, n_group=1, topk_group=1, norm_topk_prob=True, attention_bias=True, num_nextn_predict_layers=1, **rope(1e6, partial_rotary_factor=0.5))
DEEPSEEK = dict(COMMON, num_attention_heads=4, num_key_value_heads=4, rms_norm_eps=1e-6, moe_intermediate_size=10, n_shared_experts=1, norm_topk_prob=True, num_experts_per_tok=2, tie_word_embeddings=False, attention_bias=False, kv_lora_rank=16, qk_nope_head_dim=8, qk_rope_head_dim=6, v_head_dim=10)
YARN = dict(rope_type="yarn", rope_theta=1e4, factor=4.0, original_max_position_embeddings=128, beta_fast=32.0, beta_slow=1.0, mscale=1.0, mscale_all_dim=1.0)

# name: (transformers' model type, its settings, options of this script)
FAMILIES = {
    # Qwen2.5 up to 3B: biases on q, k, v; tied embeddings.
    "qwen2": ("qwen2", dict(COMMON, num_attention_heads=4, num_hidden_layers=3, rms_norm_eps=1e-6, tie_word_embeddings=True, use_sliding_window=False, **rope(1e6)), {}),
    # Qwen3: norms of queries and keys, head_dim larger than hidden / heads; from 8B on embeddings are untied.
    "qwen3": ("qwen3", dict(QWEN3, num_hidden_layers=3, tie_word_embeddings=False), {}),
    # Qwen3-MoE as published: every layer except mlp_only_layers has experts, their weights are renormalised. A tie in layer 2.
    "qwen3_moe": ("qwen3_moe", dict(QWEN3, num_hidden_layers=4, tie_word_embeddings=False, num_experts=7, num_experts_per_tok=2, moe_intermediate_size=10, norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[1]), dict(tie=(2, 1, 4))),
    # Experts in every second layer, without renormalised weights, and in one tensor per layer, as transformers 5 stores them.
    "qwen3_moe_fused": ("qwen3_moe", dict(QWEN3, num_hidden_layers=4, tie_word_embeddings=False, num_experts=5, num_experts_per_tok=3, moe_intermediate_size=10, norm_topk_prob=False, decoder_sparse_step=2, mlp_only_layers=[]), dict(fused=True)),
    # GLM-4.5, 4.6, 4.7: three dense layers, norms of queries and keys, scale 2.5; a tie in layer 3. Copies of embedding and head.
    "glm4_moe": ("glm4_moe", dict(GLM, num_hidden_layers=4, tie_word_embeddings=False, use_qk_norm=True, first_k_dense_replace=3, routed_scaling_factor=2.5, n_routed_experts=6, num_experts_per_tok=2), dict(mtp="glm", tie=(3, 0, 3), copies=True)),
    # GLM-4.5-Air: one dense layer, no norms of queries and keys, no scale.
    "glm4_moe_air": ("glm4_moe", dict(GLM, num_hidden_layers=3, tie_word_embeddings=False, use_qk_norm=False, first_k_dense_replace=1, routed_scaling_factor=1.0, n_routed_experts=5, num_experts_per_tok=2), dict(mtp="glm")),
    # Expert groups, from some of which a token's experts are chosen (as in DeepSeek-V3). Glm4Moe supports them, though no published checkpoint uses them.
    "glm4_moe_groups": ("glm4_moe", dict(GLM, num_hidden_layers=2, tie_word_embeddings=False, use_qk_norm=False, first_k_dense_replace=1, routed_scaling_factor=1.5, n_routed_experts=9, num_experts_per_tok=2, n_group=3, topk_group=2), dict(mtp="glm")),
    # DeepSeek-V3 and R1: compressed queries, yarn that changes the scores, expert groups, interleaved rotary embedding. Copies of embedding and head.
    "deepseek_v3": ("deepseek_v3", dict(DEEPSEEK, num_hidden_layers=3, q_lora_rank=24, first_k_dense_replace=1, routed_scaling_factor=2.5, n_routed_experts=8, n_group=4, topk_group=2, rope_parameters=YARN), dict(mtp="deepseek", tie=(2, 0, 1), copies=True)),
    # Moonlight: uncompressed queries, no yarn, one group.
    "deepseek_v3_direct": ("deepseek_v3", dict(DEEPSEEK, num_hidden_layers=2, q_lora_rank=None, first_k_dense_replace=1, routed_scaling_factor=2.446, n_routed_experts=6, n_group=1, topk_group=1, **rope(5e4)), dict(mtp="deepseek")),
    # MiMo-7B: Qwen2's layers and an MTP layer. transformers has no class for it.
    "mimo": ("qwen2", dict(COMMON, num_hidden_layers=3, rms_norm_eps=1e-5, tie_word_embeddings=False, use_sliding_window=False, head_dim=8, **rope(640000.0)), dict(mtp="mimo")),
}


class Mtp(nn.Module):
    """The MTP layer of MiMo (hidden first, no embedding at position 0), or of GLM or DeepSeek (embedding first)."""

    def __init__(self, kind, config):
        super().__init__()
        layer, norm = {"mimo": (Qwen2DecoderLayer, Qwen2RMSNorm), "glm": (Glm4MoeDecoderLayer, Glm4MoeRMSNorm), "deepseek": (DeepseekV3DecoderLayer, DeepseekV3RMSNorm)}[kind]
        self.kind, hidden, eps = kind, config.hidden_size, config.rms_norm_eps
        self.hidden_norm, self.embed_norm, self.final_norm = norm(hidden, eps), norm(hidden, eps), norm(hidden, eps)
        self.join = nn.Linear(2 * hidden, hidden, bias=False)
        # The index decides whether a layer of GLM or DeepSeek has experts; an MTP layer always has them.
        self.block = layer(config, config.num_hidden_layers - 1)

    def forward(self, embedded, hidden, rotary, swapped=False):
        """Runs the layer on rows from position 0 on, `[rows, hidden]` each. Returns the rows without and with the final norm."""
        if self.kind == "mimo":
            embedded = torch.cat([torch.zeros_like(embedded[:1]), embedded[1:]])
        parts = [self.hidden_norm(hidden), self.embed_norm(embedded)]
        if (self.kind != "mimo") != swapped:
            parts.reverse()
        x = self.join(torch.cat(parts, -1))[None]
        rows = x.shape[1]
        mask = torch.full((rows, rows), torch.finfo(torch.float32).min).triu(1)[None, None]
        positions = torch.arange(rows)[None]
        x = self.block(x, attention_mask=mask, position_ids=positions, position_embeddings=rotary(x, positions))
        x = (x[0] if isinstance(x, tuple) else x)[0]
        return x, self.final_norm(x)

    def published(self, layers):
        """The layer's tensors by their published names."""
        mimo = ("model.mtp_layers.0.", ("hidden_layernorm", "token_layernorm", "final_layernorm", "input_proj"))
        prefix, names = mimo if self.kind == "mimo" else (f"model.layers.{layers}.", ("hnorm", "enorm", "shared_head.norm", "eh_proj"))
        modules = (self.hidden_norm, self.embed_norm, self.final_norm, self.join)
        tensors = {f"{prefix}{name}.weight": module.weight for name, module in zip(names, modules)}
        return {**tensors, **{prefix + name: tensor for name, tensor in unfused(self.block.state_dict()).items()}}


def unfused(state):
    """A layer's tensors with a separate tensor for each expert."""
    out = {}
    for name, tensor in state.items():
        if name.endswith("mlp.experts.gate_up_proj"):
            for expert, both in enumerate(tensor):
                gate, up = both.chunk(2)
                base = f"{name[: -len('gate_up_proj')]}{expert}."
                out[base + "gate_proj.weight"], out[base + "up_proj.weight"] = gate, up
        elif name.endswith("mlp.experts.down_proj"):
            for expert, down in enumerate(tensor):
                out[f"{name[: -len('down_proj')]}{expert}.down_proj.weight"] = down
        else:
            out[name] = tensor
    return out


def initialise(module, generator):
    """Fills a module with values for which every part matters, representable in bfloat16 like published weights. Corrections stay float32."""
    random = lambda tensor: torch.randn(tensor.shape, generator=generator)
    for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
        if "e_score_correction_bias" in name:
            tensor.copy_(7.0 + 0.2 * torch.rand(tensor.shape, generator=generator))
        elif "inv_freq" in name:
            continue
        else:
            if "norm" in name:
                value = 1.0 + 0.2 * random(tensor)
            elif name.endswith("bias"):
                value = 0.3 * random(tensor)
            elif "embed_tokens" in name:
                value = random(tensor)
            else:
                value = random(tensor) * (2.0 if ".gate.weight" in name else 1.2) / tensor.shape[-1] ** 0.5
            tensor.copy_(value.bfloat16().float())


class LowestIdFirst:
    """Replaces torch.topk, whose choice among equal values is unspecified; engines choose the first. Counts ties, and keeps the smallest gap that is not a tie."""

    def __init__(self):
        self.original, self.nearest, self.ties = (torch.topk, torch.Tensor.topk), float("inf"), 0

    def __enter__(self):
        torch.topk = self.first
        torch.Tensor.topk = lambda tensor, *rest, **named: self.first(tensor, *rest, **named)
        return self

    def __exit__(self, *_):
        torch.topk, torch.Tensor.topk = self.original

    def first(self, values, k, dim=-1, largest=True, sorted=True):
        ranks, indices = values.sort(dim=dim, descending=True, stable=True)
        if k < values.shape[-1]:
            gaps = ranks[..., k - 1] - ranks[..., k]
            self.ties += int((gaps == 0).sum())
            apart = gaps[gaps > 0]
            if len(apart):
                self.nearest = min(self.nearest, float(apart.min()))
        return torch.return_types.topk((ranks[..., :k], indices[..., :k]))


def make(name, root):
    kind, settings, more = FAMILIES[name]
    for seed in range(sum(name.encode()), 1 << 20):
        generator = torch.Generator().manual_seed(seed)
        config = transformers.AutoConfig.for_model(kind, **settings, experts_implementation="eager")
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="eager").eval()
        initialise(model, generator)
        if "tie" in more:
            tie(model, *more["tie"])
        mtp = None
        if "mtp" in more:
            mtp = Mtp(more["mtp"], model.config).eval()
            initialise(mtp, generator)
        prompt = torch.randint(2, VOCABULARY, (PROMPT,), generator=generator)
        with LowestIdFirst() as topk:
            golden = {"prompt": prompt, **compute(model, mtp, prompt)}
        # The tie must occur; and no two other experts may be close enough for another float32 program to choose differently.
        if topk.nearest > 1e-5 and (topk.ties > 0) == ("tie" in more):
            break
    write(root / name, name, model, mtp, more, golden)
    size = sum(file.stat().st_size for file in (root / name).iterdir())
    print(f"{name}: {size >> 10} KiB, seed {seed}, {topk.ties} ties, nearest experts {topk.nearest:.1e}", flush=True)


def tie(model, layer, first, second):
    """Gives two experts of a layer the same rank for every token, although they compute different values."""
    gate = model.model.layers[layer].mlp.gate
    gate.weight[second] = gate.weight[first]
    if hasattr(gate, "e_score_correction_bias"):
        gate.e_score_correction_bias[second] = gate.e_score_correction_bias[first]


def compute(model, mtp, prompt):
    hidden = model.model(prompt[None]).last_hidden_state[0]
    logits = model.lm_head(hidden)
    if mtp is None:
        return {"logits": logits}
    embed, head, rotary = model.model.embed_tokens, model.lm_head, model.model.rotary_emb
    shifted = torch.cat([prompt[1:], logits[-1:].argmax(-1)])

    def chain(final_norm, swapped):
        """The first pass over the prompt, then one row per further step, which reads the output of the previous step."""
        tokens, states, made = shifted, hidden, []
        for _ in range(STEPS):
            raw, normed = mtp(embed(tokens), states, rotary, swapped)
            made.append(head(normed)[-1])
            tokens = torch.cat([tokens, made[-1].argmax()[None]])
            states = torch.cat([states, (normed if final_norm else raw)[-1:]])
        return torch.stack(made), head(mtp(embed(shifted), hidden, rotary, swapped)[1])

    steps, fill = chain(True, False)
    without_norm, _ = chain(False, False)
    _, swapped = chain(True, True)
    return {"logits": logits, "mtp.fill": fill, "mtp.chain": steps, "mtp.chain_without_norm": without_norm, "mtp.fill_swapped": swapped}


def write(folder, name, model, mtp, more, golden):
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        model.save_pretrained(temporary)
        tensors = load_file(f"{temporary}/model.safetensors")
        config = json.loads(pathlib.Path(temporary, "config.json").read_text())
    if more.get("fused"):
        tensors = {key: tensor for key, tensor in model.state_dict().items() if "inv_freq" not in key}
    if mtp is not None:
        layers = config["num_hidden_layers"]
        tensors.update(mtp.published(layers))
        if more.get("copies"):
            # GLM-4.5 and DeepSeek-V3 ship copies, GLM-4.6 does not. Here they differ from the target's, so that tests detect a reader that uses them.
            tensors[f"model.layers.{layers}.embed_tokens.weight"] = -tensors["model.embed_tokens.weight"]
            tensors[f"model.layers.{layers}.shared_head.head.weight"] = -tensors["lm_head.weight"]
    if name == "mimo":
        config.update(architectures=["MiMoForCausalLM"], model_type="mimo", num_nextn_predict_layers=1, attention_bias=True)
    if more.get("mtp") in ("glm", "deepseek"):
        config["num_nextn_predict_layers"] = 1
    config["dtype"] = "bfloat16"
    keep = lambda key, tensor: tensor.float() if "e_score_correction_bias" in key else tensor.bfloat16()
    tensors = {key: keep(key, tensor).contiguous().clone() for key, tensor in tensors.items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    save_file({key: tensor.contiguous().clone() for key, tensor in golden.items()}, folder / "golden.safetensors")
    (folder / "config.json").write_text(json.dumps(config, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("names", nargs="*", default=list(FAMILIES))
    arguments = parser.parse_args()
    for name in arguments.names:
        make(name, arguments.folder)
