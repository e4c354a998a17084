"""Where a round's time goes, from a recording of `spectune bench` by timeline.c.

timeline.py FILE [KERNELS]: the kernels, copies and fills of a round, sorted by the time in which nothing that started earlier is
still running ("alone"), over six rounds of the median length; with KERNELS, also lists the first KERNELS of one round.
"""

import sys
from collections import OrderedDict


def main():
    kernels = []
    for line in open(sys.argv[1]):
        fields = line.rstrip("\n").split("\t")
        if len(fields) == 6:
            start, end, grid, threads, registers, name = fields
            kernels.append((int(start), int(end), grid, threads, registers, name.strip()))
    kernels.sort()
    # Every round has one kernel that accepts drafts; rounds with prompts between them are far longer than the median.
    marks = [at for at, kernel in enumerate(kernels) if kernel[5].startswith("accept")]
    rounds = list(zip(marks, marks[1:]))
    if not rounds:
        sys.exit(f"{sys.argv[1]}: fewer than two rounds")
    length = lambda pair: kernels[pair[1]][0] - kernels[pair[0]][0]
    median = sorted(map(length, rounds))[len(rounds) // 2]
    near = [pair for pair in rounds if abs(length(pair) / median - 1) < 0.02][-6:]
    totals, idle = OrderedDict(), 0
    for first, last in near:
        covered = kernels[first][1]
        for start, end, *what in kernels[first + 1 : last + 1]:
            sums = totals.setdefault(tuple(what), [0, 0, 0])
            sums[0] += 1
            sums[1] += end - start
            sums[2] += max(0, end - max(start, covered))
            idle += max(0, start - covered)
            covered = max(covered, end)
    count = len(near) * 1000
    print(f"{len(near)} rounds of {sum(map(length, near)) / count:.0f} µs, of which {idle / count:.0f} without a kernel or copy")
    for (grid, threads, registers, name), (runs, spent, alone) in sorted(totals.items(), key=lambda item: -item[1][2]):
        print(
            f"{runs / len(near):7.1f} × {spent / runs / 1e3:8.2f} µs, alone {alone / runs / 1e3:8.2f}, a round {alone / count:8.1f}"
            f"  {grid:>12} × {threads} threads, {registers} registers  {name}"
        )
    if len(sys.argv) > 2:
        first = near[-1][0]
        begin = kernels[first][0]
        for start, end, grid, _, _, name in kernels[first : first + int(sys.argv[2])]:
            print(f"{(start - begin) / 1e3:9.2f} {(end - begin) / 1e3:9.2f} {grid:>12} {name}")


main()
