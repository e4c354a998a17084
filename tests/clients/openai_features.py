#!/usr/bin/env python3
"""What evaluations and agents use through the OpenAI client: tools, structured output, scoring, responses."""

import json
import sys

import openai
from pydantic import BaseModel


class Answer(BaseModel):
    ok: bool
    size: int


URL = sys.argv[1]
CLIENT = openai.OpenAI(base_url=f"{URL}/v1", api_key="none", max_retries=0)
MESSAGES = [{"role": "user", "content": "Is it done?"}]
TOOL = {"type": "function", "function": {"name": "look", "parameters": {
    "type": "object", "properties": {"at": {"enum": ["here", "there"]}}, "required": ["at"], "additionalProperties": False,
}}}


def tools():
    answer = CLIENT.chat.completions.create(model="target", messages=MESSAGES, tools=[TOOL], tool_choice="required", max_tokens=200)
    call = answer.choices[0].message.tool_calls[0].function
    assert call.name == "look" and json.loads(call.arguments)["at"] in ("here", "there"), answer


def parsed():
    answer = CLIENT.chat.completions.parse(model="target", messages=MESSAGES, response_format=Answer, max_tokens=200, seed=1)
    assert isinstance(answer.choices[0].message.parsed, Answer), answer


def json_object():
    answer = CLIENT.chat.completions.create(
        model="target", messages=MESSAGES, response_format={"type": "json_object"}, max_tokens=400, temperature=0)
    text, reason = answer.choices[0].message.content, answer.choices[0].finish_reason
    assert reason == "length" or isinstance(json.loads(text), dict), answer


def scoring():
    answer = CLIENT.completions.create(model="target", prompt="def read(self", max_tokens=0, echo=True, logprobs=1)
    lists = answer.choices[0].logprobs
    assert len(lists.tokens) == answer.usage.prompt_tokens and lists.token_logprobs[0] is None, answer


def penalties():
    base = dict(model="target", prompt="def read(self", max_tokens=32, temperature=0)
    plain = CLIENT.completions.create(**base).choices[0].text
    assert CLIENT.completions.create(**base, presence_penalty=2, frequency_penalty=1).choices[0].text != plain


def responses():
    whole = CLIENT.responses.create(model="target", input="What is a mutex?", max_output_tokens=16, temperature=0)
    pieces = [event.delta for event in CLIENT.responses.create(
        model="target", input="What is a mutex?", max_output_tokens=16, temperature=0, stream=True)
        if event.type == "response.output_text.delta"]
    assert whole.output_text == "".join(pieces) != "", whole


for check in (tools, parsed, json_object, scoring, penalties, responses):
    check()
    print(f"ok      {check.__name__}")
