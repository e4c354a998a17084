#!/usr/bin/env python3
"""pydantic-ai: output by a tool and native output (a JSON schema), both with a function tool, over chat and Responses."""

import sys

import demo_server
from openai import AsyncOpenAI
from pydantic import BaseModel, ConfigDict
from pydantic_ai import Agent, NativeOutput, ToolOutput
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider


class Answer(BaseModel):
    # Otherwise the demo model would add properties until it runs out of tokens.
    model_config = ConfigDict(extra="forbid")
    ok: bool


provider = OpenAIProvider(openai_client=AsyncOpenAI(base_url=f"{sys.argv[1]}/v1", api_key="none", max_retries=0))
SETTINGS = {"max_tokens": 200, "temperature": 0, "extra_body": demo_server.no_calls(sys.argv[1])}
for kind in (OpenAIChatModel, OpenAIResponsesModel):
    model = kind("target", provider=provider)
    for output in (NativeOutput(Answer), ToolOutput(Answer)):
        settings = SETTINGS if isinstance(output, NativeOutput) else {"max_tokens": 200, "temperature": 0}
        agent = Agent(model, output_type=output, model_settings=settings, retries=0)

        if isinstance(output, NativeOutput):

            @agent.tool_plain
            def look(at: bool) -> str:
                """Looks here, or elsewhere."""
                return "dark"

        answer = agent.run_sync("Is it dark?").output
        assert isinstance(answer, Answer), answer
        print("ok", kind.__name__, type(output).__name__)
