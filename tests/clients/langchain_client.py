#!/usr/bin/env python3
"""langchain-openai: invoke, stream, tools, structured output, a tool together with a schema, penalties."""

import sys

import demo_server
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel, ConfigDict


class Answer(BaseModel):
    """An answer."""

    # Otherwise the demo model would add properties until it runs out of tokens.
    model_config = ConfigDict(extra="forbid")
    ok: bool


model = ChatOpenAI(model="target", base_url=f"{sys.argv[1]}/v1", api_key="none", max_tokens=200, seed=1, frequency_penalty=0.1)
assert model.invoke("hi").content
assert "".join(chunk.content for chunk in model.stream("hi"))
assert model.bind_tools([Answer], tool_choice="any").invoke("done?").tool_calls
for method in ("function_calling", "json_schema"):
    assert isinstance(model.with_structured_output(Answer, method=method).invoke("done?"), Answer), method


@tool
def look(at: bool) -> str:
    """Looks here, or elsewhere."""
    return "dark"


for use_responses_api in (False, True):
    both = ChatOpenAI(model="target", base_url=f"{sys.argv[1]}/v1", api_key="none", max_tokens=200, temperature=0,
                      use_responses_api=use_responses_api, extra_body=demo_server.no_calls(sys.argv[1]))
    answer = both.bind_tools([look], response_format=Answer, strict=True).invoke("done?")
    assert isinstance(answer.additional_kwargs["parsed"], Answer), answer
print("ok")
