# A wheel that is numbered by an old tag holds the newest code.
# expect: nothing
FROM lmsysorg/sglang:latest
RUN pip install "sglang==0.3.2.dev9039+pr-17247.g90c446848"
CMD ["python3", "-m", "sglang.launch_server", "--model-path", "target", "--tool-call-parser", "glm47", "--max-running-requests", "16"]
