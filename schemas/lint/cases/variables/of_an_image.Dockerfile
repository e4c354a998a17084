# The shell that runs the command knows the image's variables. expect: SD021 error
FROM lmsysorg/sglang:v0.5.16
ENV STEPS=3 MODEL=org/m
CMD exec python3 -m sglang.launch_server --model-path $MODEL --max-running-requests 8 --speculative-algorithm EAGLE --speculative-num-steps ${STEPS}
