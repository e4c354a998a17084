#!/usr/bin/env bash
# Builds the book into target/book. Uses `mdbook` from the path, or else installs it from crates.io under target/tools,
# which takes two minutes the first time. `--install` only does that.
set -euo pipefail
cd "$(dirname "$0")/.."

version=0.5.4
mdbook=$(command -v mdbook || true)
if [ -z "$mdbook" ]; then
  mdbook=target/tools/bin/mdbook
  # Without features: no server, no watching, no search index. A debug build takes half the time.
  [ -x "$mdbook" ] || cargo install mdbook --version "$version" --locked --no-default-features --debug --quiet --root target/tools
fi
[ "${1:-}" != --install ] || exit 0
"$mdbook" build docs
echo "the book is in target/book/index.html"
