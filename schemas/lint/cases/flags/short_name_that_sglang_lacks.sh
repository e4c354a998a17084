# A flag that the engine does not know has no bounds.
# expect: LT09 error
sglang serve --model-path org/m -tp 0
