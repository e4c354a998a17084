"""Write a tiny gpt-oss checkpoint with random weights, in the published layout, and its logits in float64.

    python make_gpt_oss.py ../../tests/data/families

The standard library alone computes them, with loops over single numbers: slow and plain, so that nothing is shared with the engine or
with another library. Writes gpt_oss/{config.json,model.safetensors,golden.safetensors}.
"""

import json
import math
import pathlib
import random
import struct
import sys

VOCABULARY, HIDDEN, LAYERS, HEADS, KV_HEADS, DIM, EXPERTS, CHOSEN, WIDTH, WINDOW, PROMPT = 64, 64, 3, 4, 2, 16, 6, 2, 32, 4, 13
LIMIT, ALPHA, EPSILON, THETA, FACTOR, ORIGINAL = 7.0, 1.702, 1e-5, 150000.0, 32.0, 4096
FP4 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]
FP4 += [-value for value in FP4]


def bf16(value):
    """The nearest bfloat16."""
    bits = struct.unpack("<I", struct.pack("<f", value))[0]
    return struct.unpack("<f", struct.pack("<I", (bits + 0x7FFF + (bits >> 16 & 1)) >> 16 << 16))[0]


class Checkpoint:
    """Tensors as they are stored, and the values that they stand for."""

    def __init__(self, seed):
        self.random, self.tensors, self.values = random.Random(seed), {}, {}

    def plain(self, name, rows, columns=None, scale=1.0, centre=0.0):
        values = [[bf16(centre + scale * self.random.gauss(0, 1)) for _ in range(columns or 1)] for _ in range(rows)]
        data = b"".join(struct.pack("<f", value)[2:] for row in values for value in row)
        self.tensors[name] = ("BF16", [rows, columns] if columns else [rows], data)
        self.values[name] = values if columns else [row[0] for row in values]
        return self.values[name]

    def packed(self, name, rows, columns):
        """Experts in MXFP4: `[EXPERTS, rows, columns / 32, 16]`, the even column in the low bits."""
        blocks, scales, values = bytearray(), bytearray(), []
        for _ in range(EXPERTS):
            matrix = []
            for _ in range(rows):
                row = []
                for _ in range(columns // 32):
                    exponent, codes = self.random.choice([-5, -4, -3]), [self.random.randrange(16) for _ in range(32)]
                    scales.append(exponent + 127)
                    blocks.extend(low | high << 4 for low, high in zip(codes[0::2], codes[1::2]))
                    row += [FP4[code] * 2.0**exponent for code in codes]
                matrix.append(row)
            values.append(matrix)
        self.tensors[f"{name}_blocks"] = ("U8", [EXPERTS, rows, columns // 32, 16], bytes(blocks))
        self.tensors[f"{name}_scales"] = ("U8", [EXPERTS, rows, columns // 32], bytes(scales))
        self.values[name] = values

    def expert_bias(self, name, width, clamped=False):
        values = [[0.3 * self.random.gauss(0, 1) for _ in range(width)] for _ in range(EXPERTS)]
        if clamped:
            # So that both limits of up, and that of gate, are met; gate has the even rows.
            for row in values:
                row[0], row[4], row[1], row[3] = row[0] + 9, row[4] - 9, row[1] + 9, row[3] - 9
        values = [[bf16(value) for value in row] for row in values]
        data = b"".join(struct.pack("<f", value)[2:] for row in values for value in row)
        self.tensors[name], self.values[name] = ("BF16", [EXPERTS, width], data), values

    def fill(self):
        self.plain("model.embed_tokens.weight", VOCABULARY, HIDDEN)
        self.plain("lm_head.weight", VOCABULARY, HIDDEN, 1.2 / HIDDEN**0.5)
        self.plain("model.norm.weight", HIDDEN, scale=0.2, centre=1.0)
        for layer in range(LAYERS):
            at = f"model.layers.{layer}."
            for name in ("input_layernorm", "post_attention_layernorm"):
                self.plain(f"{at}{name}.weight", HIDDEN, scale=0.2, centre=1.0)
            for name, rows, columns in (("q", HEADS * DIM, HIDDEN), ("k", KV_HEADS * DIM, HIDDEN), ("v", KV_HEADS * DIM, HIDDEN), ("o", HIDDEN, HEADS * DIM)):
                self.plain(f"{at}self_attn.{name}_proj.weight", rows, columns, 1.2 / columns**0.5)
                self.plain(f"{at}self_attn.{name}_proj.bias", rows, scale=0.3)
            self.plain(f"{at}self_attn.sinks", HEADS)
            self.plain(f"{at}mlp.router.weight", EXPERTS, HIDDEN, 2.0 / HIDDEN**0.5)
            self.plain(f"{at}mlp.router.bias", EXPERTS, scale=0.3)
            self.packed(f"{at}mlp.experts.gate_up_proj", 2 * WIDTH, HIDDEN)
            self.packed(f"{at}mlp.experts.down_proj", HIDDEN, WIDTH)
            self.expert_bias(f"{at}mlp.experts.gate_up_proj_bias", 2 * WIDTH, clamped=True)
            self.expert_bias(f"{at}mlp.experts.down_proj_bias", HIDDEN)


def dot(a, b):
    return math.fsum(x * y for x, y in zip(a, b))


def linear(x, weight, bias):
    return [dot(x, row) + one for row, one in zip(weight, bias)]


def norm(x, weight):
    scale = 1 / math.sqrt(dot(x, x) / len(x) + EPSILON)
    return [value * scale * one for value, one in zip(x, weight)]


def frequencies():
    """YaRN without rounding of its range; the scale is for cosine and sine."""
    at = lambda turns: DIM * math.log(ORIGINAL / (turns * 2 * math.pi)) / (2 * math.log(THETA))
    low, high = max(at(32.0), 0), min(at(1.0), DIM - 1)
    for pair in range(DIM // 2):
        plain, ramp = THETA ** (-2 * pair / DIM), min(max((pair - low) / (high - low), 0), 1)
        yield plain / FACTOR * ramp + plain * (1 - ramp)


def rotate(head, position):
    half, scale, out = DIM // 2, 0.1 * math.log(FACTOR) + 1, list(head)
    for pair, frequency in enumerate(frequencies()):
        cosine, sine = scale * math.cos(position * frequency), scale * math.sin(position * frequency)
        a, b = head[pair], head[pair + half]
        out[pair], out[pair + half] = a * cosine - b * sine, b * cosine + a * sine
    return out


def attention(values, at, rows, windowed):
    project = lambda name: [linear(row, values[f"{at}{name}_proj.weight"], values[f"{at}{name}_proj.bias"]) for row in rows]
    cut = lambda row: [row[start : start + DIM] for start in range(0, len(row), DIM)]
    queries, keys, held = ([cut(row) for row in project(name)] for name in "qkv")
    queries, keys = ([[rotate(head, place) for head in row] for place, row in enumerate(all)] for all in (queries, keys))
    out = []
    for place in range(len(rows)):
        seen, joined = range(max(0, place - WINDOW + 1) if windowed else 0, place + 1), []
        for head in range(HEADS):
            group = head // (HEADS // KV_HEADS)
            scores = [dot(queries[place][head], keys[other][group]) / math.sqrt(DIM) for other in seen]
            weights = [math.exp(score) for score in scores]
            whole = math.fsum(weights) + math.exp(values[f"{at}sinks"][head])
            joined += [math.fsum(weight * held[other][group][i] for weight, other in zip(weights, seen)) / whole for i in range(DIM)]
        out.append(linear(joined, values[f"{at}o_proj.weight"], values[f"{at}o_proj.bias"]))
    return out


def experts(values, at, x, gaps):
    logits = linear(x, values[f"{at}router.weight"], values[f"{at}router.bias"])
    order = sorted(range(EXPERTS), key=lambda expert: -logits[expert])
    gaps.append(logits[order[CHOSEN - 1]] - logits[order[CHOSEN]])
    chosen, out = order[:CHOSEN], [0.0] * HIDDEN
    whole = math.fsum(math.exp(logits[expert]) for expert in chosen)
    for expert in chosen:
        both = linear(x, values[f"{at}experts.gate_up_proj"][expert], values[f"{at}experts.gate_up_proj_bias"][expert])
        gate, up = [min(value, LIMIT) for value in both[0::2]], [min(max(value, -LIMIT), LIMIT) for value in both[1::2]]
        joined = [(u + 1) * g / (1 + math.exp(-ALPHA * g)) for g, u in zip(gate, up)]
        down = linear(joined, values[f"{at}experts.down_proj"][expert], values[f"{at}experts.down_proj_bias"][expert])
        out = [sum + value * math.exp(logits[expert]) / whole for sum, value in zip(out, down)]
    return out


def logits(values, prompt):
    """Logits after each token, and the smallest gap between an expert that is chosen and one that is not."""
    rows, gaps, add = [list(values["model.embed_tokens.weight"][token]) for token in prompt], [], lambda a, b: [x + y for x, y in zip(a, b)]
    for layer in range(LAYERS):
        at = f"model.layers.{layer}."
        normed = [norm(row, values[f"{at}input_layernorm.weight"]) for row in rows]
        rows = [add(row, more) for row, more in zip(rows, attention(values, f"{at}self_attn.", normed, layer % 2 == 0))]
        rows = [add(row, experts(values, f"{at}mlp.", norm(row, values[f"{at}post_attention_layernorm.weight"]), gaps)) for row in rows]
    head = values["lm_head.weight"]
    return [[dot(norm(row, values["model.norm.weight"]), one) for one in head] for row in rows], min(gaps)


def save(path, tensors):
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, (dtype, shape, part) in sorted(tensors.items()):
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(part)]}
        data += part
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def config():
    return dict(
        architectures=["GptOssForCausalLM"], model_type="gpt_oss", attention_bias=True, dtype="bfloat16", eos_token_id=1, experts_per_token=CHOSEN, head_dim=DIM, hidden_act="silu", hidden_size=HIDDEN, initial_context_length=ORIGINAL,
        intermediate_size=WIDTH, layer_types=[("full" if layer % 2 else "sliding") + "_attention" for layer in range(LAYERS)], max_position_embeddings=131072, num_attention_heads=HEADS, num_experts_per_tok=CHOSEN, num_hidden_layers=LAYERS, num_key_value_heads=KV_HEADS,
        num_local_experts=EXPERTS, quantization_config=dict(modules_to_not_convert=["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"], quant_method="mxfp4"), rms_norm_eps=EPSILON,
        rope_scaling=dict(beta_fast=32.0, beta_slow=1.0, factor=FACTOR, original_max_position_embeddings=ORIGINAL, rope_type="yarn", truncate=False), rope_theta=THETA, sliding_window=WINDOW, swiglu_limit=LIMIT, tie_word_embeddings=False, vocab_size=VOCABULARY,
    )


def main():
    folder = pathlib.Path(sys.argv[1]) / "gpt_oss"
    folder.mkdir(parents=True, exist_ok=True)
    for seed in range(1, 1000):
        checkpoint = Checkpoint(seed)
        checkpoint.fill()
        prompt = [checkpoint.random.randrange(2, VOCABULARY) for _ in range(PROMPT)]
        rows, gap = logits(checkpoint.values, prompt)
        # No two experts may be close enough for a float32 program to choose differently.
        if gap > 1e-3:
            break
    save(folder / "model.safetensors", checkpoint.tensors)
    golden = {"prompt": ("I64", [PROMPT], struct.pack(f"<{PROMPT}q", *prompt)), "logits": ("F32", [PROMPT, VOCABULARY], b"".join(struct.pack("<f", value) for row in rows for value in row))}
    save(folder / "golden.safetensors", golden)
    (folder / "config.json").write_text(json.dumps(config(), indent=1, sort_keys=True) + "\n")
    print(f"gpt_oss: seed {seed}, nearest experts {gap:.1e}, largest logit {max(abs(value) for row in rows for value in row):.1f}")


if __name__ == "__main__":
    main()
