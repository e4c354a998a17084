#!/usr/bin/env bash
# Regenerates the README's images, docs/images/report.png and docs/images/ranking.png, from the report of a real sweep.
#
#   docs/images/make.sh                  runs sweeps/speedup.toml (two minutes on two cores), and uses its report
#   docs/images/make.sh results/speedup  uses the report of an existing sweep
#
# SPECTUNE is the program (default: cargo run --release), CHROMIUM the browser. Nothing is loaded from the network.
set -euo pipefail
cd "$(dirname "$0")/../.."

spectune() {
  if [ -n "${SPECTUNE:-}" ]; then "$SPECTUNE" "$@"; else cargo run --quiet --release -- "$@"; fi
}
browser=${CHROMIUM:-$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)}
[ -n "$browser" ] || { echo "no Chromium found: install it, or name it in CHROMIUM" >&2; exit 2; }

folder=${1:-}
if [ -z "$folder" ]; then
  folder=$(mktemp -d)/speedup
  spectune sweep sweeps/speedup.toml --out "$folder" > /dev/null
fi
spectune report "$folder" > /dev/null
page=$(realpath "$folder")/report.html
load=$(grep -o 'class="card race" id="section-1-[^"]*"' "$page" | head -n 1 | cut -d '"' -f 4)

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Only the first load, expanded: a headless browser cannot take a screenshot of a scrolled page.
alone="<style>.top, main > :not(.section), .section > :not(#$load), footer { display: none !important; }</style>"
sed -e "s|</head>|$alone</head>|" -e "s|<details class=\"inner\">|<details class=\"inner\" open>|" "$page" > "$work/load.html"

# picture NAME WIDTH HEIGHT PAGE: a screenshot of the upper part of a page in the light theme.
picture() {
  local profile=$work/profile-$1
  "$browser" --headless --no-sandbox --disable-gpu --disable-background-networking --hide-scrollbars \
    --blink-settings=preferredColorScheme=1 --user-data-dir="$profile" --window-size="$2,$3" \
    --virtual-time-budget=5000 --screenshot="$(pwd)/docs/images/$1" "file://$4" > /dev/null 2>&1
  echo "docs/images/$1"
}
picture report.png 1280 1000 "$page"
picture ranking.png 1280 1300 "$work/load.html"
