#!/usr/bin/env python3
"""Talks to a running `spectune serve` through the official OpenAI client: pip install openai, then
    spectune serve --model-path models/tiny/target --speculative-algorithm EAGLE3 \\
        --speculative-draft-model-path models/tiny/eagle3 &
    python tests/openai/client.py http://127.0.0.1:30000/v1 [API_KEY]

Prints one line per check; exits with 1 if one fails. It starts nothing, and works with any model that has a chat template.
"""

import sys
import traceback

import openai

PROMPT = "def read(self"
MESSAGES = [
    {"role": "system", "content": "You explain code."},
    {"role": "user", "content": "What does a mutex do?"},
]
TOKENS = 48


class Checks:
    """Everything that a server must do; each method whose name begins with `check_` is one check."""

    def __init__(self, client, model):
        self.client, self.model = client, model

    def chat(self, **options):
        options = {"model": self.model, "messages": MESSAGES, "max_tokens": TOKENS, "temperature": 0, **options}
        return self.client.chat.completions.create(**options)

    def complete(self, **options):
        options = {"model": self.model, "prompt": PROMPT, "max_tokens": TOKENS, "temperature": 0, **options}
        return self.client.completions.create(**options)

    def check_models(self):
        listed = [model.id for model in self.client.models.list()]
        equal(listed, [self.model])
        equal(self.client.models.retrieve(self.model).id, self.model)

    def check_chat(self):
        answer = self.chat()
        choice, usage = answer.choices[0], answer.usage
        equal((answer.object, answer.model, choice.message.role), ("chat.completion", self.model, "assistant"))
        holds(choice.finish_reason in ("stop", "length"), choice.finish_reason)
        holds(0 < usage.completion_tokens <= TOKENS, usage)
        equal(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens)

    def check_chat_streams_what_it_answers(self):
        whole = self.chat()
        text, reasons, roles, usage = "", [], [], None
        for chunk in self.chat(stream=True, stream_options={"include_usage": True}):
            usage = chunk.usage or usage
            for choice in chunk.choices:
                text += choice.delta.content or ""
                roles += [choice.delta.role] if choice.delta.role else []
                reasons += [choice.finish_reason] if choice.finish_reason else []
        equal(text, whole.choices[0].message.content)
        equal((roles, reasons, usage), (["assistant"], [whole.choices[0].finish_reason], whole.usage))

    def check_parts_of_a_message_are_joined(self):
        parts = [{"type": "text", "text": "What does "}, {"type": "text", "text": "a mutex do?"}]
        answer = self.chat(messages=[MESSAGES[0], {"role": "user", "content": parts}])
        equal(answer.choices[0].message.content, self.chat().choices[0].message.content)

    def check_stop_strings(self):
        text = self.complete().choices[0].text
        stop = text[len(text) // 2 :][:3]
        for given in (stop, ["never said\0", stop]):
            choice = self.complete(stop=given).choices[0]
            equal((choice.text, choice.finish_reason), (text.split(stop)[0], "stop"))
        streamed = self.complete(stop=stop, stream=True)
        equal("".join(chunk.choices[0].text for chunk in streamed), text.split(stop)[0])

    def check_chat_logprobs(self):
        answer = self.chat(logprobs=True, top_logprobs=3)
        entries = answer.choices[0].logprobs.content
        equal(len(entries), answer.usage.completion_tokens)
        for entry in entries:
            holds(entry.logprob <= 0 and len(entry.top_logprobs) == 3, entry)
            # Greedy: the token is the best alternative.
            equal((entry.top_logprobs[0].token, entry.top_logprobs[0].logprob), (entry.token, entry.logprob))
        streamed = [
            entry
            for chunk in self.chat(logprobs=True, top_logprobs=3, stream=True)
            for choice in chunk.choices
            if choice.logprobs
            for entry in choice.logprobs.content
        ]
        equal(streamed, entries)

    def check_completion_logprobs(self):
        answer = self.complete(logprobs=2)
        logprobs = answer.choices[0].logprobs
        count = answer.usage.completion_tokens
        equal([len(logprobs.tokens), len(logprobs.token_logprobs), len(logprobs.text_offset)], [count] * 3)
        for token, value, top in zip(logprobs.tokens, logprobs.token_logprobs, logprobs.top_logprobs):
            equal(top[token], value)

    def check_several_choices(self):
        answer = self.chat(n=3, temperature=1, seed=7)
        equal([choice.index for choice in answer.choices], [0, 1, 2])
        holds(len({choice.message.content for choice in answer.choices}) > 1, "three samples are alike")
        texts = {}
        for chunk in self.chat(n=3, temperature=1, seed=7, stream=True):
            for choice in chunk.choices:
                texts[choice.index] = texts.get(choice.index, "") + (choice.delta.content or "")
        equal([texts[index] for index in range(3)], [choice.message.content for choice in answer.choices])

    def check_a_seed_repeats_and_another_does_not(self):
        def sample(seed):
            return self.complete(temperature=1, seed=seed).choices[0].text

        equal(sample(1), sample(1))
        holds(len({sample(seed) for seed in range(4)}) > 1, "four seeds gave one text")

    def check_completions(self):
        one = self.complete()
        equal((one.object, one.choices[0].index), ("text_completion", 0))
        several = self.complete(prompt=[PROMPT, "fn main", PROMPT], echo=True)
        equal([choice.index for choice in several.choices], [0, 1, 2])
        equal(several.choices[0].text, PROMPT + one.choices[0].text)
        equal(several.choices[2].text, several.choices[0].text)
        pieces = [chunk.choices[0].text for chunk in self.complete(stream=True)]
        equal("".join(pieces), one.choices[0].text)
        holds(len(pieces) > 1, "the stream came in one piece")

    def check_most_tokens(self):
        for name in ("max_tokens", "max_completion_tokens"):
            options = {"max_tokens": openai.omit, name: 3}
            equal(self.chat(**options, extra_body={"ignore_eos": True}).usage.completion_tokens, 3)

    def check_errors(self):
        fails(404, "model", lambda: self.chat(model="no-such-model"))
        fails(404, "model", lambda: self.client.models.retrieve("no-such-model"))
        fails(400, "temperature", lambda: self.chat(temperature=-1))
        fails(400, "max_tokens", lambda: self.chat(max_tokens=0))
        fails(400, "messages", lambda: self.chat(messages=[]))
        fails(400, "messages[0].content", lambda: self.chat(messages=[{"role": "user"}]))
        fails(400, "n", lambda: self.complete(n=0))
        fails(400, "stop", lambda: self.complete(stop=[1]))
        fails(400, "priority", lambda: self.chat(extra_body={"priority": 1}))
        fails(400, "top_logprobs", lambda: self.chat(top_logprobs=2))
        fails(400, "tempratur", lambda: self.complete(extra_body={"tempratur": 1}))
        error = fails(400, "prompt", lambda: self.complete(prompt="word " * 1_000_000))
        equal(error.code, "context_length_exceeded")
        # After an error the server works as before.
        self.check_chat()


def equal(found, expected):
    if found != expected:
        raise AssertionError(f"found {found!r}, expected {expected!r}")


def holds(condition, found):
    if not condition:
        raise AssertionError(f"found {found!r}")


def fails(status, parameter, request):
    """Runs a request that must fail, and returns its error."""
    try:
        answer = request()
    except openai.APIStatusError as error:
        equal((error.status_code, error.param), (status, parameter))
        holds(error.type == "invalid_request_error" and len(error.message) > 10, error)
        return error
    raise AssertionError(f"no error about {parameter}: {answer!r}")


def main(arguments):
    if not 1 <= len(arguments) <= 2:
        sys.exit(__doc__)
    client = openai.OpenAI(base_url=arguments[0], api_key=arguments[1] if len(arguments) > 1 else "none", max_retries=0)
    checks = Checks(client, next(iter(client.models.list())).id)
    names = [name for name in dir(checks) if name.startswith("check_")]
    failed = 0
    for name in names:
        try:
            getattr(checks, name)()
            print(f"ok      {name.removeprefix('check_').replace('_', ' ')}")
        except Exception:
            failed += 1
            print(f"FAILED  {name.removeprefix('check_').replace('_', ' ')}\n{traceback.format_exc()}")
    print(f"{len(names) - failed} of {len(names)} checks passed, openai {openai.__version__}, model {checks.model}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
