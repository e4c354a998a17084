#!/usr/bin/env python3
"""Streams over keep-alive connections: events arrive one by one, and the first text with the first chunk."""

import asyncio
import json
import sys
import time

import aiohttp


async def main(url):
    first, reads, gap = [], [], []
    async with aiohttp.ClientSession() as session:
        for _ in range(10):
            body = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 32, "stream": True, "ignore_eos": True}
            begin, count, role, text = time.perf_counter(), 0, None, None
            async with session.post(f"{url}/v1/chat/completions", json=body) as answer:
                assert answer.status == 200, await answer.text()
                async for line in answer.content:
                    if not line.startswith(b"data: {"):
                        continue
                    count += 1
                    delta = json.loads(line[6:])["choices"][0]["delta"]
                    now = time.perf_counter() - begin
                    role = role or (now if "role" in delta else None)
                    text = text or (now if delta.get("content") else None)
            first.append(text)
            reads.append(count)
            gap.append(text - role)
    print(f"first text after {min(first) * 1e3:.1f} to {max(first) * 1e3:.1f} ms, {min(reads)} to {max(reads)} events per stream, "
          f"role to text at most {max(gap) * 1e3:.1f} ms")
    assert min(reads) > 3
    # Sent together; a delayed acknowledgement would add 40 ms.
    assert sorted(gap)[len(gap) // 2] < 0.02


asyncio.run(main(sys.argv[1]))
