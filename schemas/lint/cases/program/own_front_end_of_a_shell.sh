# Options of the repository's own script.
# expect: nothing
./launch.sh train --sglang-checkout /opt/sglang --sglang-max-running-requests 64
