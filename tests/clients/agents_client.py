#!/usr/bin/env python3
"""OpenAI Agents SDK: an agent with a tool, and one with an output type too, over /v1/responses (its default) and over chat
completions, streamed and not streamed."""

import asyncio
import sys

import agents
import demo_server
import openai
from pydantic import BaseModel

agents.set_tracing_disabled(True)
client = openai.AsyncOpenAI(base_url=f"{sys.argv[1]}/v1", api_key="none", max_retries=0)
calls = []


@agents.function_tool
def look(at: bool) -> str:
    """Looks here, or elsewhere."""
    calls.append(at)
    return "dark"


class Answer(BaseModel):
    ok: bool


async def main():
    for model in (agents.OpenAIResponsesModel("target", client), agents.OpenAIChatCompletionsModel("target", client)):
        # The demo model neither stops calling nor stops writing, so only one call is requested.
        settings = agents.ModelSettings(max_tokens=120, temperature=0, tool_choice="required", parallel_tool_calls=False)
        agent = agents.Agent(name="a", instructions="Look.", tools=[look], model=model, model_settings=settings,
                             tool_use_behavior="stop_on_first_tool")
        before = len(calls)
        result = await agents.Runner.run(agent, "Is it dark?", max_turns=3)
        assert len(calls) > before and result.final_output is not None, result
        before = len(calls)
        streamed = agents.Runner.run_streamed(agent, "Is it dark?", max_turns=3)
        events = [event async for event in streamed.stream_events()]
        assert len(calls) > before and events and streamed.final_output is not None
        settings = agents.ModelSettings(max_tokens=200, temperature=0, extra_body=demo_server.no_calls(sys.argv[1]))
        agent = agents.Agent(name="a", instructions="Look.", tools=[look], model=model, model_settings=settings, output_type=Answer)
        result = await agents.Runner.run(agent, "Is it dark?", max_turns=3)
        assert isinstance(result.final_output, Answer), result
        streamed = agents.Runner.run_streamed(agent, "Is it dark?", max_turns=3)
        assert [event async for event in streamed.stream_events()] and isinstance(streamed.final_output, Answer), streamed
        print("ok", type(model).__name__)


asyncio.run(main())
