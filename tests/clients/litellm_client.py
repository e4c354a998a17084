#!/usr/bin/env python3
"""LiteLLM: completion, stream, tools, JSON schema, with its OpenAI-like and its hosted-vLLM provider, and Anthropic's messages,
which it converts to Responses."""

import asyncio
import json
import os
import sys

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
import litellm

url = sys.argv[1]
messages = [{"role": "user", "content": "Is it done?"}]
tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {"at": {"enum": ["here"]}}, "required": ["at"], "additionalProperties": False}}}
schema = {"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"], "additionalProperties": False}}}
for provider in ("openai", "hosted_vllm"):
    base = dict(model=f"{provider}/target", api_base=f"{url}/v1", api_key="none", messages=messages, max_tokens=200, seed=1, num_retries=0)
    assert litellm.completion(**base).choices[0].message.content
    assert "".join(chunk.choices[0].delta.content or "" for chunk in litellm.completion(stream=True, **base))
    call = litellm.completion(tools=[tool], tool_choice="required", **base).choices[0].message.tool_calls[0].function
    # The provider for vLLM removes `additionalProperties` from requests.
    assert json.loads(call.arguments)["at"] == "here", call
    pieces = list(litellm.completion(tools=[tool], tool_choice="required", stream=True, **base))
    whole = litellm.stream_chunk_builder(pieces, messages=messages).choices[0].message.tool_calls[0].function
    assert whole.name == "look" and json.loads(whole.arguments)["at"] == "here", whole
    assert isinstance(json.loads(litellm.completion(response_format=schema, **base).choices[0].message.content)["ok"], bool)
    assert litellm.text_completion(model=f"text-completion-openai/target", api_base=f"{url}/v1", api_key="none", prompt="def f(", max_tokens=8).choices[0].text
    print("ok", provider)


async def messages_of_anthropic():
    base = dict(model="openai/target", api_base=f"{url}/v1", api_key="none", messages=messages, max_tokens=32)
    answer = await litellm.anthropic.messages.acreate(**base)
    # Some versions return objects, others plain values.
    first = answer["content"][0]
    assert (first["text"] if isinstance(first, dict) else first.text) and answer["usage"]["output_tokens"], answer
    events = [event async for event in await litellm.anthropic.messages.acreate(stream=True, **base)]
    assert events, events


asyncio.run(messages_of_anthropic())
print("ok /v1/messages")
