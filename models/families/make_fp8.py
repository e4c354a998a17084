"""Write tiny random checkpoints in FP8, and what products in FP8 give with them: a second implementation, in float64 with the standard
library alone.

    python make_fp8.py ../../tests/data/families          # all; give names to write only those

Activations that enter a layer in FP8 are rounded to e4m3 with the scale that the checkpoint's own engines use: a static one, one per
token, or one per token and 128 columns. Attention, norms, the activation, embedding and head are not quantised. `golden.safetensors`
holds `prompt`, `logits` (after each of its tokens), `logits_of_weights` (the same without quantised activations: has to differ) and
`tokens` (the greedy continuation).
"""
import argparse, bisect, json, math, pathlib, random, struct

VOCABULARY, PROMPT, STEPS, BLOCK, LARGEST, EPSILON, THETA = 64, 13, 8, 128, 448.0, 1e-6, 10000.0

# name: (scales, hidden, intermediate, heads, key/value heads, head width, layers)
CHECKPOINTS = {
    # fp8 with static scales: one per matrix, and one of its inputs, which differs between q, k and v.
    "llama_fp8_static": ("static", 32, 48, 2, 1, 64, 2),
    # compressed-tensors: one scale per row of a matrix, and one per token.
    "llama_fp8_rows": ("rows", 32, 48, 2, 1, 64, 2),
    # DeepSeek's format: blocks of 128 x 128, and 128 columns of a token. Neither width is a multiple of 128.
    "llama_fp8_blocks": ("blocks", 144, 160, 2, 1, 64, 1),
}

# The 127 sizes of the format in ascending order, so that the index is the number's lower seven bits.
SIZES = [m * 2.0**-9 if e == 0 else (8 + m) * 2.0 ** (e - 10) for e in range(16) for m in range(8)][:127]


def to_e4m3(value):
    """The nearest number's bits; ties go to the even one, and larger values become the largest."""
    size = min(abs(value), LARGEST)
    above = min(bisect.bisect_left(SIZES, size), 126)
    below = max(above - 1, 0)
    low, high = size - SIZES[below], SIZES[above] - size
    bits = above if high < low or (high == low and above % 2 == 0) else below
    return bits | (0x80 if math.copysign(1.0, value) < 0 else 0)


def from_e4m3(bits):
    return -SIZES[bits & 0x7F] if bits & 0x80 else SIZES[bits & 0x7F]


def float32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


def bfloat16(value):
    """Rounded to bfloat16 (ties away from zero, which random values do not meet)."""
    (bits,) = struct.unpack("<I", struct.pack("<f", value))
    return struct.unpack("<f", struct.pack("<I", (bits + 0x8000) & 0xFFFF0000))[0]


def scale_of(values):
    return float32(max(max(abs(value) for value in values), 1e-10) / LARGEST)


class Matrix:
    """A matrix in FP8 with its scales, as stored and as values."""

    def __init__(self, values, kind):
        self.rows, self.columns = len(values), len(values[0])
        if kind == "static":
            shares = lambda row, column: 0
        elif kind == "rows":
            shares = lambda row, column: row
        else:
            across = -(-self.columns // BLOCK)
            shares = lambda row, column: row // BLOCK * across + column // BLOCK
        groups = {}
        for row in range(self.rows):
            for column in range(self.columns):
                groups.setdefault(shares(row, column), []).append(values[row][column])
        self.scales = [scale_of(groups[at]) for at in range(len(groups))]
        self.bits = [[to_e4m3(values[r][c] / self.scales[shares(r, c)]) for c in range(self.columns)] for r in range(self.rows)]
        self.values = [[from_e4m3(b) * self.scales[shares(r, c)] for c, b in enumerate(row)] for r, row in enumerate(self.bits)]
        down, across = -(-self.rows // BLOCK), -(-self.columns // BLOCK)
        self.shape = {"static": [], "rows": [self.rows, 1], "blocks": [down, across]}[kind]


def quantised(row, kind, fixed):
    """A row of activations as a layer in FP8 reads it."""
    if kind == "weights":
        return row
    pieces = [row[at : at + BLOCK] for at in range(0, len(row), BLOCK)] if kind == "blocks" else [row]
    out = []
    for piece in pieces:
        scale = fixed if kind == "static" else scale_of(piece)
        out += [from_e4m3(to_e4m3(value / scale)) * scale for value in piece]
    return out


def product(matrix, row):
    return [sum(a * b for a, b in zip(weights, row)) for weights in matrix]


def norm(row, weights):
    factor = 1.0 / math.sqrt(sum(value * value for value in row) / len(row) + EPSILON)
    return [value * factor * weight for value, weight in zip(row, weights)]


def rotated(head, position):
    half = len(head) // 2
    angles = [position * THETA ** (-2.0 * i / len(head)) for i in range(half)]
    low = [head[i] * math.cos(a) - head[i + half] * math.sin(a) for i, a in enumerate(angles)]
    return low + [head[i + half] * math.cos(a) + head[i] * math.sin(a) for i, a in enumerate(angles)]


class Model:
    def __init__(self, name):
        self.kind, self.hidden, self.intermediate, self.heads, self.kv_heads, self.width, count = CHECKPOINTS[name]
        self.random = random.Random(f"{name} 2")
        queries, keys = self.heads * self.width, self.kv_heads * self.width
        shapes = {
            "self_attn.q_proj": (queries, self.hidden), "self_attn.k_proj": (keys, self.hidden), "self_attn.v_proj": (keys, self.hidden),
            "self_attn.o_proj": (self.hidden, queries), "mlp.gate_proj": (self.intermediate, self.hidden),
            "mlp.up_proj": (self.intermediate, self.hidden), "mlp.down_proj": (self.hidden, self.intermediate),
        }
        self.embedding, self.head = self.plain(VOCABULARY, self.hidden, 1.0), self.plain(VOCABULARY, self.hidden, 0.3)
        self.norm = self.weights_of_norm()
        self.layers = []
        for _ in range(count):
            layer = {name: Matrix(self.plain(*shape, 1.5 / math.sqrt(shape[1])), self.kind) for name, shape in shapes.items()}
            # Values above 448 times the scale are clamped, which some here are.
            inputs = {name: float32(self.random.uniform(0.004, 0.010)) for name in shapes}
            layer |= {"inputs": inputs, "norms": [self.weights_of_norm(), self.weights_of_norm()]}
            self.layers.append(layer)

    def plain(self, rows, columns, spread):
        return [[bfloat16(self.random.gauss(0.0, spread)) for _ in range(columns)] for _ in range(rows)]

    def weights_of_norm(self):
        return [bfloat16(self.random.uniform(0.5, 1.5)) for _ in range(self.hidden)]

    def linear(self, layer, readers, row, kind):
        """The outputs of layers that read the same row: their static scale is the largest of theirs."""
        row = quantised(row, kind, max(layer["inputs"][name] for name in readers))
        return [product(layer[name].values, row) for name in readers]

    def logits(self, tokens, kind):
        """Logits after each token."""
        caches, out = [[] for _ in self.layers], []
        for position, token in enumerate(tokens):
            x = list(self.embedding[token])
            for layer, cache in zip(self.layers, caches):
                names = ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"]
                q, k, v = self.linear(layer, names, norm(x, layer["norms"][0]), kind)
                split = lambda row: [row[at : at + self.width] for at in range(0, len(row), self.width)]
                cache.append(([rotated(head, position) for head in split(k)], split(v)))
                joined = []
                for at, head in enumerate(split(q)):
                    head, of = rotated(head, position), at * self.kv_heads // self.heads
                    scores = [sum(a * b for a, b in zip(head, keys[of])) / math.sqrt(self.width) for keys, _ in cache]
                    sizes = [math.exp(score - max(scores)) for score in scores]
                    for i in range(self.width):
                        joined.append(sum(size * values[of][i] for size, (_, values) in zip(sizes, cache)) / sum(sizes))
                (added,) = self.linear(layer, ["self_attn.o_proj"], joined, kind)
                x = [a + b for a, b in zip(x, added)]
                gate, up = self.linear(layer, ["mlp.gate_proj", "mlp.up_proj"], norm(x, layer["norms"][1]), kind)
                middle = [g / (1.0 + math.exp(-g)) * u for g, u in zip(gate, up)]
                (added,) = self.linear(layer, ["mlp.down_proj"], middle, kind)
                x = [a + b for a, b in zip(x, added)]
            out.append(product(self.head, norm(x, self.norm)))
        return out

    def tensors(self):
        flat = lambda rows: [value for row in rows for value in row]
        stored = {
            "model.embed_tokens.weight": ("BF16", [VOCABULARY, self.hidden], flat(self.embedding)),
            "lm_head.weight": ("BF16", [VOCABULARY, self.hidden], flat(self.head)),
            "model.norm.weight": ("BF16", [self.hidden], self.norm),
        }
        for at, layer in enumerate(self.layers):
            prefix = f"model.layers.{at}"
            for name, weights in zip(["input_layernorm", "post_attention_layernorm"], layer["norms"]):
                stored[f"{prefix}.{name}.weight"] = ("BF16", [self.hidden], weights)
            for name, matrix in layer.items():
                if not isinstance(matrix, Matrix):
                    continue
                stored[f"{prefix}.{name}.weight"] = ("F8_E4M3", [matrix.rows, matrix.columns], flat(matrix.bits))
                end = "weight_scale_inv" if self.kind == "blocks" else "weight_scale"
                stored[f"{prefix}.{name}.{end}"] = ("F32", matrix.shape, matrix.scales)
                if self.kind == "static":
                    stored[f"{prefix}.{name}.input_scale"] = ("F32", [], [layer["inputs"][name]])
        return stored

    def config(self):
        config = dict(architectures=["LlamaForCausalLM"], model_type="llama", vocab_size=VOCABULARY, hidden_size=self.hidden, intermediate_size=self.intermediate, num_hidden_layers=len(self.layers), num_attention_heads=self.heads, num_key_value_heads=self.kv_heads, head_dim=self.width, hidden_act="silu", rms_norm_eps=EPSILON, rope_theta=THETA, max_position_embeddings=512, tie_word_embeddings=False, bos_token_id=0, eos_token_id=1, torch_dtype="bfloat16")
        if self.kind == "rows":
            number = dict(num_bits=8, type="float", symmetric=True)
            group = dict(targets=["Linear"], weights=dict(number, strategy="channel", dynamic=False), input_activations=dict(number, strategy="token", dynamic=True))
            return dict(config, quantization_config=dict(quant_method="compressed-tensors", format="float-quantized", ignore=["lm_head"], config_groups=dict(group_0=group)))
        settings = dict(quant_method="fp8", fmt="e4m3", activation_scheme="static" if self.kind == "static" else "dynamic")
        if self.kind == "blocks":
            settings["weight_block_size"] = [BLOCK, BLOCK]
        return dict(config, quantization_config=settings)


def save(path, tensors):
    """Writes a safetensors file."""
    header, data = {}, b""
    for name, (dtype, shape, values) in sorted(tensors.items()):
        if dtype == "BF16":
            raw = b"".join(struct.pack("<f", value)[2:] for value in values)
        elif dtype == "F8_E4M3":
            raw = bytes(values)
        else:
            raw = struct.pack(f"<{len(values)}{'f' if dtype == 'F32' else 'q'}", *values)
        header[name] = dict(dtype=dtype, shape=shape, data_offsets=[len(data), len(data) + len(raw)])
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("names", nargs="*", default=list(CHECKPOINTS))
    arguments = parser.parse_args()
    for name in arguments.names:
        model = Model(name)
        prompt = [model.random.randrange(2, VOCABULARY) for _ in range(PROMPT)]
        text, logits = list(prompt), model.logits(prompt, model.kind)
        weights = model.logits(prompt, "weights")
        last, margins = logits[-1], []
        for _ in range(STEPS):
            best = sorted(last)
            margins.append(best[-1] - best[-2])
            text.append(last.index(best[-1]))
            last = model.logits(text, model.kind)[-1]
        folder = arguments.out / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(json.dumps(model.config(), indent=1) + "\n")
        save(folder / "model.safetensors", model.tensors())
        golden = dict(
            prompt=("I64", [PROMPT], prompt), tokens=("I64", [STEPS], text[PROMPT:]),
            logits=("F32", [PROMPT, VOCABULARY], sum(logits, [])), logits_of_weights=("F32", [PROMPT, VOCABULARY], sum(weights, [])),
        )
        save(folder / "golden.safetensors", golden)
        apart = max(abs(a - b) for a, b in zip(sum(logits, []), sum(weights, [])))
        print(f"{name}: modes are {apart:.3f} apart, the closest choice is {min(margins):.3f} apart")


if __name__ == "__main__":
    main()
