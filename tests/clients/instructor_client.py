#!/usr/bin/env python3
"""instructor: tools, JSON schema, and both over Responses."""

import sys

import instructor
import openai
from pydantic import BaseModel, ConfigDict


class Answer(BaseModel):
    # Otherwise the demo model would add properties until it runs out of tokens.
    model_config = ConfigDict(extra="forbid")
    ok: bool


client = openai.OpenAI(base_url=f"{sys.argv[1]}/v1", api_key="none", max_retries=0)
for mode in (instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA):
    answer = instructor.from_openai(client, mode=mode).chat.completions.create(
        model="target", messages=[{"role": "user", "content": "done?"}], response_model=Answer, max_tokens=200, max_retries=0)
    assert isinstance(answer, Answer), mode
    print("ok", mode)
answer = instructor.from_openai(client, mode=instructor.Mode.RESPONSES_TOOLS).responses.create(
    model="target", input="done?", response_model=Answer, max_output_tokens=200, max_retries=0)
assert isinstance(answer, Answer), answer
print("ok", instructor.Mode.RESPONSES_TOOLS)
