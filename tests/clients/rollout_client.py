#!/usr/bin/env python3
"""What trainers that generate with an SGLang server do (slime, verl): token ids with log-probabilities from /generate, then
a pause, other weights, and on."""

import asyncio
import pathlib
import sys

import aiohttp

url, target, draft = sys.argv[1:]
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


async def main():
    async with aiohttp.ClientSession() as session:
        answers = await asyncio.gather(*(rollout(session, [5, 6, 7 + at], sampling_seed=at) for at in range(16)))
        assert all(answer["meta_info"]["finish_reason"]["type"] in ("length", "stop") for answer in answers)
        assert answers[0]["meta_info"]["weight_version"] == "default"
        # Multi-turn: what has come goes on.
        first = answers[0]
        await rollout(session, [5, 6, 7, *first["output_ids"], 9])
        for mode in ("abort", "retract"):
            long = [asyncio.create_task(rollout(session, [5, 6, 7 + at], max_new_tokens=400, ignore_eos=True)) for at in range(8)]
            await asyncio.sleep(0.1)
            await post(session, "pause_generation", {"mode": mode})
            for _ in range(60):
                async with session.get(f"{url}/flush_cache") as answer:
                    if answer.status == 200:
                        break
                await asyncio.sleep(0.1)
            else:
                raise AssertionError("the cache is not flushed")
            for folder in (target, draft):
                body = {"model_path": folder, "flush_cache": True, "weight_version": mode}
                assert (await post(session, "update_weights_from_disk", body))["success"]
            refused = await post(session, "update_weights_from_disk", {"model_path": str(pathlib.Path(target).parent)}, status=400)
            assert not refused["success"] and refused["message"]
            await post(session, "continue_generation", {})
            for answer in await asyncio.gather(*long):
                reason, count = answer["meta_info"]["finish_reason"]["type"], answer["meta_info"]["completion_tokens"]
                assert (reason == "abort" and count < 400) if mode == "abort" else (reason == "length" and count == 400), answer["meta_info"]
            assert (await rollout(session, [5, 6, 7], sampling_seed=0))["output_ids"] == first["output_ids"]
        await post(session, "abort_request", {"abort_all": True})
    print("ok")


asyncio.run(main())
