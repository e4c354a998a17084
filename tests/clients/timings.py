"""First-token and inter-token times as a client reports them, next to the server's own for the same requests."""

import urllib.request

# A client's clock starts before the server's and stops after it. On a two-core machine the difference is 0.7 ms for a
# bare socket, and 1.5 to 2.5 ms for a Python client that opens a connection for each request and reads two responses at
# a time, regardless of the prompt length. So benchmarks here send prompts of 512 tokens, whose prefill takes much
# longer than that, instead of 64, which the demo pair prefills in 7 ms.
SHARE, SLACK = 0.10, 0.0015
NAMES = {"first token": "spectune_time_to_first_token_seconds", "between tokens": "spectune_inter_token_latency_seconds"}


def totals(url):
    """Sum and count of each of the server's histograms."""
    found = {}
    for line in urllib.request.urlopen(f"{url}/metrics", timeout=30).read().decode().splitlines():
        name, _, value = line.rpartition(" ")
        for word, metric in NAMES.items():
            for kind in ("sum", "count"):
                if name.startswith(f"{metric}_{kind}"):
                    found[word, kind] = float(value)
    return found


def compare(before, after, client):
    """Prints both, and whether they agree; `client` has the means in seconds."""
    agree = True
    for word in NAMES:
        count = after[word, "count"] - before.get((word, "count"), 0)
        server = (after[word, "sum"] - before.get((word, "sum"), 0)) / max(count, 1)
        off = abs(client[word] - server)
        # Absolute slack only if the times are short enough for it to matter.
        fine = off <= SHARE * server or (word == "first token" and off <= SLACK)
        agree &= fine
        print(f"{word}: client {client[word] * 1e3:.2f} ms, server {server * 1e3:.2f} ms ({client[word] / server - 1:+.1%}) "
              f"over {count:.0f}{'' if fine else '  DIFFERS'}")
    return agree
