"""Write tiny random checkpoints of Qwen3.5, dense and with experts, and what numpy computes with them in float64.

    python make_qwen3_5.py ../../tests/data/families          # numpy, safetensors

The layout of the files is that of `make.py`. The architecture is written out below, token by token. Names are those of the multimodal releases.
"""
import json, pathlib, sys

import numpy as np
from safetensors.numpy import save_file

VOCABULARY, HIDDEN, PROMPT, STEPS, EPS = 64, 32, 13, 3, 1e-6
THETA, QUARTER = 1e4, 0.25
COMMON = dict(hidden_size=HIDDEN, vocab_size=VOCABULARY, num_hidden_layers=4, full_attention_interval=4, num_attention_heads=6, num_key_value_heads=2, head_dim=16, hidden_act="silu", rms_norm_eps=EPS, attention_bias=False, attn_output_gate=True, max_position_embeddings=512, linear_conv_kernel_dim=4, linear_key_head_dim=8, linear_num_key_heads=2, linear_value_head_dim=12, mamba_ssm_dtype="float32", mtp_num_hidden_layers=1, mtp_use_dedicated_embeddings=False, partial_rotary_factor=QUARTER,
              rope_parameters=dict(rope_type="default", rope_theta=THETA, partial_rotary_factor=QUARTER, mrope_interleaved=True, mrope_section=[1, 1, 0]), layer_types=["linear_attention"] * 3 + ["full_attention"])
FAMILIES = {
    # 27B: three value heads for each key head, one head for embedding and logits.
    "qwen3_5": ("Qwen3_5ForConditionalGeneration", dict(COMMON, model_type="qwen3_5_text", linear_num_value_heads=6, intermediate_size=24, tie_word_embeddings=True)),
    # 35B-A3B: two value heads for each key head, experts in one tensor per layer, a gated shared expert of another width.
    "qwen3_5_moe": ("Qwen3_5MoeForConditionalGeneration", dict(COMMON, model_type="qwen3_5_moe_text", linear_num_value_heads=4, num_experts=7, num_experts_per_tok=2, moe_intermediate_size=10, shared_expert_intermediate_size=14, tie_word_embeddings=False)),
}

silu = lambda x: x / (1 + np.exp(-x))
sigmoid = lambda x: 1 / (1 + np.exp(-x))
rms = lambda x, w: x / np.sqrt((x * x).mean(-1, keepdims=True) + EPS) * w  # the weight as it is


def weights(c, rng):
    """All tensors by their names without the prefix of the language model."""
    w, normal = {}, lambda *shape, std=0.15: rng.normal(0, std, shape)
    h, kd, vd = HIDDEN, c["linear_num_key_heads"] * c["linear_key_head_dim"], c["linear_num_value_heads"] * c["linear_value_head_dim"]
    q, kv = c["num_attention_heads"] * c["head_dim"], c["num_key_value_heads"] * c["head_dim"]

    def layer(p, linear):
        for n in ("input_layernorm", "post_attention_layernorm"): w[f"{p}.{n}.weight"] = normal(h)
        if linear:
            a, n = f"{p}.linear_attn", c["linear_num_value_heads"]
            for name, size in (("in_proj_qkv", 2 * kd + vd), ("in_proj_z", vd), ("in_proj_b", n), ("in_proj_a", n)): w[f"{a}.{name}.weight"] = normal(size, h)
            w[f"{a}.conv1d.weight"], w[f"{a}.norm.weight"], w[f"{a}.out_proj.weight"] = normal(2 * kd + vd, 1, 4, std=0.5), 1 + normal(c["linear_value_head_dim"]), normal(h, vd)
            w[f"{a}.A_log"], w[f"{a}.dt_bias"] = np.log(rng.uniform(0.5, 4, n)), normal(n, std=1.0)
        else:
            a = f"{p}.self_attn"
            w[f"{a}.q_proj.weight"], w[f"{a}.k_proj.weight"], w[f"{a}.v_proj.weight"], w[f"{a}.o_proj.weight"] = normal(2 * q, h), normal(kv, h), normal(kv, h), normal(h, q)
            for n in ("q_norm", "k_norm"): w[f"{a}.{n}.weight"] = normal(c["head_dim"])
        block = lambda p, i: w.update({f"{p}.gate_proj.weight": normal(i, h), f"{p}.up_proj.weight": normal(i, h), f"{p}.down_proj.weight": normal(h, i)})
        if "num_experts" in c:
            e, i = c["num_experts"], c["moe_intermediate_size"]
            w[f"{p}.mlp.gate.weight"], w[f"{p}.mlp.shared_expert_gate.weight"] = normal(e, h), normal(1, h)
            w[f"{p}.mlp.experts.gate_up_proj"], w[f"{p}.mlp.experts.down_proj"] = normal(e, 2 * i, h), normal(e, h, i)
            block(f"{p}.mlp.shared_expert", c["shared_expert_intermediate_size"])
        else:
            block(f"{p}.mlp", c["intermediate_size"])

    w["embed_tokens.weight"], w["norm.weight"] = normal(VOCABULARY, h, std=0.4), normal(h)
    if not c["tie_word_embeddings"]: w["lm_head.weight"] = normal(VOCABULARY, h)
    for at, kind in enumerate(c["layer_types"]): layer(f"layers.{at}", kind == "linear_attention")
    layer("mtp.layers.0", False)
    for n in ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm"): w[f"mtp.{n}.weight"] = normal(h)
    w["mtp.fc.weight"] = normal(h, 2 * h)
    return {k: v.astype(np.float32) for k, v in w.items()}


class Model:
    def __init__(s, c, w): s.c, s.w = c, {k: v.astype(np.float64) for k, v in w.items()}
    def lin(s, name, x): return x @ s.w[f"{name}.weight"].T
    def norm(s, name, x): return rms(x, 1 + s.w[f"{name}.weight"])
    def head(s, x): return x @ s.w["embed_tokens.weight" if s.c["tie_word_embeddings"] else "lm_head.weight"].T

    def rotate(s, x, pos):  # [heads, head_dim]: the first quarter, in halves
        n = int(s.c["head_dim"] * QUARTER); half = n // 2
        a = pos * THETA ** (-np.arange(half) * 2 / n); a = np.concatenate([a, a]); x = x.copy(); r = x[:, :n]
        x[:, :n] = r * np.cos(a) + np.concatenate([-r[:, half:], r[:, :half]], 1) * np.sin(a); return x

    def attention(s, p, x, pos, cache):
        c = s.c; d = c["head_dim"]; both = s.lin(f"{p}.q_proj", x).reshape(-1, 2 * d); q, gate = both[:, :d], both[:, d:]
        q = s.rotate(s.norm(f"{p}.q_norm", q), pos); k = s.rotate(s.norm(f"{p}.k_norm", s.lin(f"{p}.k_proj", x).reshape(-1, d)), pos)
        cache.append((k, s.lin(f"{p}.v_proj", x).reshape(-1, d))); per = c["num_attention_heads"] // c["num_key_value_heads"]; out = []
        for head in range(len(q)):
            scores = np.array([k[head // per] @ q[head] for k, _ in cache]) / np.sqrt(d); e = np.exp(scores - scores.max())
            out.append(sum(weight * v[head // per] for weight, (_, v) in zip(e / e.sum(), cache)))
        return s.lin(f"{p}.o_proj", (np.array(out) * sigmoid(gate)).reshape(-1))

    def delta(s, p, x, state):
        c = s.c; nk, dk, nv, dv = c["linear_num_key_heads"], c["linear_key_head_dim"], c["linear_num_value_heads"], c["linear_value_head_dim"]
        if not state: state.update(rows=[np.zeros(2 * nk * dk + nv * dv)] * 3, S=np.zeros((nv, dk, dv)))
        rows = state["rows"] + [s.lin(f"{p}.in_proj_qkv", x)]; state["rows"] = rows[1:]; taps = s.w[f"{p}.conv1d.weight"][:, 0]
        y = silu(sum(rows[t] * taps[:, t] for t in range(4))); q, k, v = y[: nk * dk].reshape(nk, dk), y[nk * dk: 2 * nk * dk].reshape(nk, dk), y[2 * nk * dk:].reshape(nv, dv)
        unit = lambda t: t / np.sqrt((t * t).sum(-1, keepdims=True) + 1e-6); q, k = unit(q) / np.sqrt(dk), unit(k)
        decay = np.exp(-np.exp(s.w[f"{p}.A_log"]) * np.log1p(np.exp(s.lin(f"{p}.in_proj_a", x) + s.w[f"{p}.dt_bias"]))); beta = sigmoid(s.lin(f"{p}.in_proj_b", x)); out = []
        for head in range(nv):
            kk, qq = k[head // (nv // nk)], q[head // (nv // nk)]; S = state["S"][head] * decay[head]
            S = S + np.outer(kk, beta[head] * (v[head] - S.T @ kk)); state["S"][head] = S; out.append(S.T @ qq)
        o = rms(np.array(out), s.w[f"{p}.norm.weight"]) * silu(s.lin(f"{p}.in_proj_z", x).reshape(nv, dv)); return s.lin(f"{p}.out_proj", o.reshape(-1))

    def ffn(s, p, x):
        gated = lambda p: s.lin(f"{p}.down_proj", silu(s.lin(f"{p}.gate_proj", x)) * s.lin(f"{p}.up_proj", x))
        if "num_experts" not in s.c: return gated(p)
        logits = s.lin(f"{p}.gate", x); e = np.exp(logits - logits.max()); e /= e.sum(); best = np.argsort(-e)[: s.c["num_experts_per_tok"]]
        gap = np.sort(-e)[s.c["num_experts_per_tok"]] - np.sort(-e)[s.c["num_experts_per_tok"] - 1]; assert gap > 1e-5, "experts too near"
        out = sigmoid(s.lin(f"{p}.shared_expert_gate", x)) * gated(f"{p}.shared_expert")
        for i in best:
            g, u = np.split(s.w[f"{p}.experts.gate_up_proj"][i] @ x, 2); out = out + e[i] / e[best].sum() * (s.w[f"{p}.experts.down_proj"][i] @ (silu(g) * u))
        return out

    def layer(s, p, linear, x, pos, kept):
        y = s.norm(f"{p}.input_layernorm", x); x = x + (s.delta(f"{p}.linear_attn", y, kept) if linear else s.attention(f"{p}.self_attn", y, pos, kept))
        return x + s.ffn(f"{p}.mlp", s.norm(f"{p}.post_attention_layernorm", x))

    def read(s, tokens):
        kinds = [kind == "linear_attention" for kind in s.c["layer_types"]]; kept = [{} if linear else [] for linear in kinds]; out = []
        for pos, token in enumerate(tokens):
            x = s.w["embed_tokens.weight"][token]
            for at, linear in enumerate(kinds): x = s.layer(f"layers.{at}", linear, x, pos, kept[at])
            out.append(s.norm("norm", x))
        return out

    def mtp(s, tokens, states, swapped=False, feeds_norm=True):
        """Logits of the fill, and of steps that continue it with their own state and greedy tokens."""
        kept, fill, chain = [], [], []
        def row(token, state, pos):
            e, h = s.norm("mtp.pre_fc_norm_embedding", s.w["embed_tokens.weight"][token]), s.norm("mtp.pre_fc_norm_hidden", state)
            x = s.layer("mtp.layers.0", False, s.lin("mtp.fc", np.concatenate([h, e] if swapped else [e, h])), pos, kept); return x, s.norm("mtp.norm", x)
        for pos, (token, state) in enumerate(zip(tokens, states)): x, normed = row(token, state, pos); fill.append(s.head(normed))
        chain.append(fill[-1])
        for step in range(1, STEPS): x, normed = row(int(chain[-1].argmax()), normed if feeds_norm else x, len(tokens) + step - 1); chain.append(s.head(normed))
        return np.array(fill), np.array(chain)


def main(folder):
    for seed, (name, (architecture, c)) in enumerate(FAMILIES.items()):
        rng = np.random.default_rng(seed + 7); w = weights(c, rng); m = Model(c, w); prompt = rng.integers(2, VOCABULARY, PROMPT)
        states = m.read(prompt); logits = np.array([m.head(x) for x in states]); tokens = [*prompt[1:], int(logits[-1].argmax())]
        fill, chain = m.mtp(tokens, states); golden = {"logits": logits, "mtp.fill": fill, "mtp.chain": chain, "mtp.chain_without_norm": m.mtp(tokens, states, feeds_norm=False)[1], "mtp.fill_swapped": m.mtp(tokens, states, swapped=True)[0]}
        out = pathlib.Path(folder) / name; out.mkdir(parents=True, exist_ok=True); full = lambda k: k if k.startswith(("mtp.", "lm_head.")) else f"model.language_model.{k}"
        tensors = {full(k): v for k, v in w.items()} | {"model.visual.patch_embed.proj.bias": np.zeros(4, np.float32)}
        save_file(tensors, out / "model.safetensors", metadata={"format": "pt"}); save_file({k: v.astype(np.float32) for k, v in golden.items()} | {"prompt": prompt.astype(np.int64)}, out / "golden.safetensors")
        outer = dict(architectures=[architecture], model_type=c["model_type"].removesuffix("_text"), text_config=dict(c, eos_token_id=1, bos_token_id=0, dtype="float32"), vision_config=dict(depth=1, hidden_size=4), tie_word_embeddings=c["tie_word_embeddings"], image_token_id=62)
        (out / "config.json").write_text(json.dumps(outer, indent=2) + "\n"); print(name, sum(v.size for v in w.values()), "weights; largest logit", np.abs(logits).max())


if __name__ == "__main__":
    main(sys.argv[1])
