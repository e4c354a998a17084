#!/usr/bin/env bash
# The script of the action: prints annotations to standard output, writes SARIF to a file if one is named, and exits with
# the linter's code. Reads FILES, ARGUMENTS and SARIF from the environment, and GITHUB_OUTPUT if the runner sets it.
set -uo pipefail
shopt -s globstar nullglob

# Word splitting and globbing are intended.
# shellcheck disable=SC2206
files=($FILES) arguments=($ARGUMENTS)
if [ "${#files[@]}" -eq 0 ]; then
  echo "error: no file matches '$FILES'" >&2
  exit 2
fi

spectune lint --allow-no-launch "${arguments[@]}" --format github "${files[@]}"
code=$?
if [ -n "$SARIF" ]; then
  spectune lint --allow-no-launch --exit-zero "${arguments[@]}" --format sarif "${files[@]}" >"$SARIF" || code=$?
fi
[ "$code" -eq 1 ] && found=true || found=false
echo "findings=$found" >>"${GITHUB_OUTPUT:-/dev/null}"
exit "$code"
