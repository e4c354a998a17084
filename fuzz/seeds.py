#!/usr/bin/env python3
"""Writes the first seeds of every target from the repository's data; `cargo fuzz cmin` minimises them afterwards."""

import hashlib
import io
import json
import pathlib
import pickle
import struct
import zipfile

HERE = pathlib.Path(__file__).parent
REPOSITORY = HERE.parent
TINY = REPOSITORY / "models/tiny"


def seed(target: str, content: str | bytes) -> None:
    content = content.encode() if isinstance(content, str) else content
    folder = HERE / "corpus" / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / hashlib.sha1(content).hexdigest()).write_bytes(content)


def header(path: pathlib.Path) -> bytes:
    """A safetensors file without its data."""
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    return content[: 8 + length]


def small_tokenizer(text: str) -> str:
    tokenizer = json.loads(text)
    tokenizer["model"]["vocab"] = dict(list(tokenizer["model"]["vocab"].items())[:20])
    tokenizer["model"]["merges"] = tokenizer["model"].get("merges", [])[:5]
    return json.dumps(tokenizer)


def toml(words: list[str]) -> str:
    """Flags in spectune's TOML."""
    lines = []
    for word in words:
        if word.startswith("--"):
            lines.append(word[2:].replace("-", "_") + " = true")
        elif lines and lines[-1].endswith(" = true"):
            value = word if word.replace(".", "").isdigit() else json.dumps(word)
            lines[-1] = lines[-1].removesuffix("true") + value
    return "\n".join(lines) + "\n"


def launches() -> None:
    comments = ["# spectune: ignore[SD081]", "# spectune: ignore-file[graph, SD07]", "# spectune:ignore[LT10, x] why"]
    for number, line in enumerate((REPOSITORY / "tests/data/launches.jsonl").read_text().splitlines()):
        record = json.loads(line)
        launch, words = record["launch"], record.get("argv") or []
        seed("launch", launch)
        seed("launch", toml(words))
        seed("launch", "args:\n" + "".join(f"  - {json.dumps(word)}\n" for word in words))
        seed("launch", "Run this:\n```bash\n" + launch + "\n```\n")
        seed("suppression", launch + "  " + comments[number % 3] + "\n")
        seed("suppression", comments[number % 3] + "\n" + toml(words))
        parts = [launch + "\n"]
        for side in ("target", "draft"):
            fields = (((record.get(side) or {}).get("config") or {}).get("fields")) or None
            if fields:
                seed("config", json.dumps(fields))
                parts.append(f"==== {side}\n{json.dumps(fields)}\n")
        if number % 3 == 0:
            parts.append("==== version\n0.5.9\n==== memory\n81559\n==== concurrency\n64\n")
        seed("lint", "".join(parts))
        if "--speculative-config" in words[:-1]:
            seed("vllm_speculation", words[words.index("--speculative-config") + 1])
    for path in (REPOSITORY / "tests/data/launches").iterdir():
        seed("launch", path.read_text())
        seed("lint", path.read_text())


def checkpoints() -> None:
    for folder in TINY.iterdir():
        files = {}
        for path in sorted(folder.iterdir()):
            if path.name == "model.safetensors":
                files[path.name] = header(path)
                seed("tensors", files[path.name])
                seed("tensors", files[path.name][8:])
                names = list(json.loads(files[path.name][8:]))
                index = {"metadata": {"total_size": 99}, "weight_map": {name: path.name for name in names}}
                seed("tensors", json.dumps(index))
            elif path.name == "tokenizer.json":
                files[path.name] = small_tokenizer(path.read_text()).encode()
                seed("tokenizer", files[path.name])
            elif path.name in ("config.json", "generation_config.json"):
                files[path.name] = path.read_bytes()
                seed("config" if path.name == "config.json" else "tokenizer", files[path.name])
        seed("checkpoint", b"".join(b"==== %s\n%s\n" % (name.encode(), files[name]) for name in files))
    seed("tensors", struct.pack("<4q", 0, 3, 70, 200))
    seed("tokenizer", '{"eos_token_id": [1, 2], "temperature": 0.6, "top_p": 0.95, "top_k": 20}')


def others() -> None:
    seed("sweep", (REPOSITORY / "sweeps/demo.toml").read_text())
    seed("tuned", (REPOSITORY / "reports/tests/data/tuned.toml").read_text())
    seed("settings", '[lint]\nselect = ["SD", "graph"]\nignore = ["SD081"]\nengine_version = "0.5.9"\n')
    seed("settings", '[lint]\nengine = "vllm"\ngpu_memory = 81559\nexpected_concurrency = 64\n')
    seed("token_map", "[2, 0, 70000]")
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        archive = io.BytesIO()
        with zipfile.ZipFile(archive, "w", method) as entries:
            entries.writestr("freq_3/data.pkl", pickle.dumps([2, 0, 70000, 5], protocol=2))
        seed("token_map", archive.getvalue())
    for config in (
        '{"method": "eagle3", "model": "a/b", "num_speculative_tokens": 3}',
        '{"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 4}',
        '{"model": "it\'s", "draft_tensor_parallel_size": 1}',
    ):
        seed("vllm_speculation", config)


if __name__ == "__main__":
    launches()
    checkpoints()
    others()
