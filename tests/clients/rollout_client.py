#!/usr/bin/env python3
"""What trainers that generate with an SGLang server do (slime, verl): token ids with log-probabilities from /generate, then
pause, replace the weights, and continue."""

import asyncio
import pathlib
import sys

import aiohttp

url, target, draft = sys.argv[1:]
LONG = 200
SAMPLING = {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "max_new_tokens": 24, "stop": None, "stop_token_ids": None,
            "skip_special_tokens": True, "no_stop_trim": True, "spaces_between_special_tokens": False}


async def post(session, page, body, status=200):
    async with session.post(f"{url}/{page}", json=body) as answer:
        assert answer.status == status, (page, answer.status, await answer.text())
        return await answer.json()


async def rollout(session, ids, **further):
    answer = await post(session, "generate", {"input_ids": ids, "sampling_params": SAMPLING | further, "return_logprob": True})
    told = answer["meta_info"]["output_token_logprobs"]
    assert [token for _, token, _ in told] == answer["output_ids"] and all(value <= 0 for value, _, _ in told)
    return answer


async def until_all_run(session, count):
    for _ in range(600):
        async with session.get(f"{url}/metrics") as page:
            lines = (await page.text()).splitlines()
        running = next(line for line in lines if line.startswith("spectune_requests_running"))
        if float(running.rsplit(" ", 1)[1]) == count:
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"{count} requests never ran at once")


async def update(session, mode):
    """Replaces the weights during a pause, as a trainer does after each step."""
    in_place = mode == "in_place"
    async with session.get(f"{url}/flush_cache") as answer:
        assert answer.status == (400 if in_place else 200), await answer.text()
    for folder in (target, draft):
        body = {"model_path": folder, "flush_cache": not in_place, "weight_version": mode}
        assert (await post(session, "update_weights_from_disk", body))["success"]
    refused = await post(session, "update_weights_from_disk", {"model_path": str(pathlib.Path(target).parent)}, status=400)
    assert not refused["success"] and refused["message"]


async def main():
    async with aiohttp.ClientSession() as session:
        await post(session, "update_weight_version", {"new_version": "first"})
        answers = await asyncio.gather(*(rollout(session, [5, 6, 7 + at], sampling_seed=at) for at in range(16)))
        assert all(answer["meta_info"]["finish_reason"]["type"] in ("length", "stop") for answer in answers)
        first = answers[0]
        assert first["meta_info"]["weight_version"] == "first"
        # Multi-turn: the output is part of the next prompt.
        await rollout(session, [5, 6, 7, *first["output_ids"], 9])
        for mode in ("abort", "retract", "in_place"):
            long = [asyncio.create_task(rollout(session, [5, 6, 7 + at], max_new_tokens=LONG, ignore_eos=True)) for at in range(8)]
            await until_all_run(session, 8)
            await post(session, "pause_generation", {"mode": mode})
            await update(session, mode)
            await post(session, "continue_generation", {})
            for answer in await asyncio.gather(*long):
                reason, count = answer["meta_info"]["finish_reason"]["type"], answer["meta_info"]["completion_tokens"]
                assert (reason == "abort" and count < LONG) if mode == "abort" else (reason == "length" and count == LONG), answer["meta_info"]
            again = await rollout(session, [5, 6, 7], sampling_seed=0)
            assert again["output_ids"] == first["output_ids"] and again["meta_info"]["weight_version"] == mode
            print("ok", mode)
        await post(session, "abort_request", {"abort_all": True})


asyncio.run(main())
