# expect: LT13 error
# expect: LT13 error
# expect: LT13 error
# expect: LT13 error
python3 -m sglang.launch_server --model-path org/m --tp 0 --port 99999 --page-size 0 --mem-fraction-static 80 --max-running-requests 8
