#!/usr/bin/env bash
# What the action runs: annotations on standard output, SARIF in a file where one is asked for, the linter's exit code.
# Reads FILES, ARGUMENTS and SARIF from the environment, and GITHUB_OUTPUT where the runner sets it.
set -uo pipefail
shopt -s globstar nullglob

# Patterns and words are meant to be split and expanded.
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
