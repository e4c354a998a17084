# The program stops: it does not accept the flag.
# expect: LT09 error
spectune serve --model-path m --pp-size 2
