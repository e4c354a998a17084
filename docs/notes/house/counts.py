"""Counts the house: sizes, comments, names. Prints one table; docs/notes/house.md has the results.

    python3 docs/notes/house/counts.py [FOLDER]

Only non-test Rust is counted: no `tests` and `benches` folders, no `tests.rs` and `fixtures`, no items under `#[cfg(test)]`, no
examples and fuzz targets. A file's size is its number of lines; a function's is from its `fn` to its closing brace. A line
is code if it is neither blank nor only a comment; an inline comment is a line that is only a `//` comment, or code with
one after it.
"""

import collections
import os
import re
import sys

ROOT = sys.argv[1] if len(sys.argv) > 1 else "."
SKIPPED = {".git", "target", "tests", "benches", "examples", "fuzz", "fixtures", "book"}
# Aliases only at the start of a line: below an `impl`, `type` is an item of a trait.
TYPE = re.compile(r"^(?:\s*(?:pub(?:\([^)]*\))?\s+)?(?:struct|enum|trait|union)|(?:pub(?:\([^)]*\))?\s+)?type)\s+(\w+)", re.M)
FUNCTION = re.compile(r"^\s*(?:pub(?:\([^)]*\))?\s+)?(?:const\s+|async\s+|unsafe\s+|extern\s+\"C\"\s+)*fn\s+(\w+)", re.M)
PUBLIC = re.compile(r"^\s*pub\s+(?:const|async|unsafe|fn|struct|enum|trait|type|mod|use|static)\b", re.M)
NOUN_CLAUSE = re.compile(r"^\s*//[/!]\s+(?:What|Whether|How|Which|Where|Who|Whose|Why)\b")


def sources():
    for folder, folders, files in os.walk(ROOT):
        folders[:] = sorted(name for name in folders if name not in SKIPPED)
        for name in sorted(files):
            if name.endswith(".rs") and name not in ("tests.rs", "build.rs"):
                yield os.path.join(folder, name)


def blank(text):
    """The text with strings and comments replaced by blanks, so that braces in them do not count."""
    pattern = r'//[^\n]*|/\*.*?\*/|r#*".*?"#*|"(?:\\.|[^"\\])*"|\'(?:\\.|[^\\\'])\''
    return re.sub(pattern, lambda m: re.sub(r"[^\n]", " ", m.group(0)), text, flags=re.S)


def end_of_item(code, start):
    """The end of the item at a position: its closing brace, or its semicolon."""
    depth = 0
    for at in range(start, len(code)):
        letter = code[at]
        if letter in "([{":
            depth += 1
        elif letter in ")]}":
            depth -= 1
            if depth == 0 and letter == "}":
                return at + 1
        elif letter == ";" and depth == 0:
            return at + 1
    return len(code)


def without_tests(text):
    code, kept, at = blank(text), [], 0
    for match in re.finditer(r"#\[cfg\(test\)\]", code):
        if match.start() >= at:
            kept.append(text[at : match.start()])
            at = end_of_item(code, match.end())
    return "".join(kept) + text[at:]


def percentile(values, share):
    values = sorted(values)
    return values[min(int(share * len(values)), len(values) - 1)] if values else 0


def count():
    lines_of, functions, count = [], [], collections.Counter()
    types = collections.defaultdict(set)
    for path in sources():
        with open(path, encoding="utf-8") as file:
            text = without_tests(file.read())
        code = blank(text)
        lines = text.splitlines()
        lines_of.append(len(lines))
        for line, stripped in zip(lines, code.splitlines()):
            bare = line.strip()
            if bare.startswith(("///", "//!")):
                count["doc"] += 1
                count["noun clauses"] += bool(NOUN_CLAUSE.match(line))
            elif bare.startswith("//"):
                count["inline"] += 1
            elif bare:
                count["code"] += 1
                # A comment after code.
                rest = line[len(stripped.rstrip()) :]
                count["inline"] += bool(stripped.strip()) and rest.strip().startswith("//")
            if bare.startswith("//") and len(line) > 100:
                count["long comments"] += 1
            count["long lines"] += len(line) > 100
        count["lines"] += len(lines)
        count["public"] += len(PUBLIC.findall(code))
        for match in FUNCTION.finditer(code):
            name = match.group(1)
            count["of"] += name == "of" or name.startswith("of_")
            end = end_of_item(code, match.end())
            if code[end - 1 : end] == "}":
                functions.append(code.count("\n", match.start(1), end) + 1)
        for name in TYPE.findall(code):
            types[name].add(path)
        for name in collections.Counter(TYPE.findall(code)).items():
            if name[1] > 1:
                types[name[0]].add(path + "#2")
    several = {name: sorted(places) for name, places in types.items() if len(places) > 1}
    code_lines = max(count["code"], 1)
    rows = [
        ("files / k lines", f"{len(lines_of)} / {count['lines'] / 1000:.0f}"),
        ("file median / p90 / max", " / ".join(str(percentile(lines_of, s)) for s in (0.5, 0.9, 1.0))),
        ("function p90 / p99 / max", " / ".join(str(percentile(functions, s)) for s in (0.9, 0.99, 1.0))),
        ("doc lines / code line", f"{count['doc'] / code_lines:.2f}"),
        ("inline comments / code line", f"{count['inline'] / code_lines:.3f}"),
        ("lines over 100 columns", f"{100 * count['long lines'] / max(count['lines'], 1):.1f}%"),
        ("comment lines over 100 columns", str(count["long comments"])),
        ("`pub` items / k lines", f"{1000 * count['public'] / max(count['lines'], 1):.0f}"),
        ("doc lines that open with a noun clause", f"{100 * count['noun clauses'] / max(count['doc'], 1):.1f}%"),
        ("functions named `of`, `of_*`", str(count["of"])),
        (
            "type names used for two things or more",
            f"{len(several)} of {len(types)} ({100 * len(several) / max(len(types), 1):.1f}%)",
        ),
    ]
    for name, value in rows:
        print(f"| {name} | {value} |")
    if "--names" in sys.argv:
        for name, places in sorted(several.items(), key=lambda one: -len(one[1])):
            print(f"{len(places)} {name}: {' '.join(os.path.relpath(place, ROOT) for place in places)}")


count()
