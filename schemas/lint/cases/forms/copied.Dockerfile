# expect: SD001 error
FROM lmsysorg/sglang:v0.5.16
COPY <<"EOF" /start.sh
#!/bin/bash
python3 -m sglang.launch_server --model-path org/m --speculative-algorithm NGRM
EOF
RUN chmod +x /start.sh
CMD ["/start.sh"]
