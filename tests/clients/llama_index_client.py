#!/usr/bin/env python3
"""llama-index with its OpenAI-like model: chat and completion, streamed and not streamed."""

import sys

from llama_index.core.llms import ChatMessage
from llama_index.llms.openai_like import OpenAILike

for is_chat in (True, False):
    model = OpenAILike(model="target", api_base=f"{sys.argv[1]}/v1", api_key="none", is_chat_model=is_chat, max_tokens=32, max_retries=0)
    assert model.complete("hi").text
    assert "".join(piece.delta for piece in model.stream_complete("hi"))
    message = [ChatMessage(role="user", content="hi")]
    assert model.chat(message).message.content
    assert "".join(piece.delta or "" for piece in model.stream_chat(message))
print("ok")
