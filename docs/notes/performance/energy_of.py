"""GPU energy of each part of a program that prints `begin NAME` and `end NAME: N passes …`, such as
`energy_of.py linear_time cuda:0 8,32 llama-3.1-8b 2`: one line per part with its watts, and joules per pass. Needs `nvidia-ml-py`."""

import subprocess
import sys
import time

import pynvml

pynvml.nvmlInit()
gpu = pynvml.nvmlDeviceGetHandleByIndex(0)


def energy():
    """Joules since the driver was loaded, at the next change of the counter, which is coarse."""
    first = pynvml.nvmlDeviceGetTotalEnergyConsumption(gpu)
    while (now := pynvml.nvmlDeviceGetTotalEnergyConsumption(gpu)) == first:
        pass
    return now / 1e3, time.time()


program = subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE, text=True)
for line in program.stdout:
    if line.startswith("begin "):
        joules, began = energy()
    elif line.startswith("end "):
        clock = pynvml.nvmlDeviceGetClockInfo(gpu, pynvml.NVML_CLOCK_SM)
        more, ended = energy()
        name, rest = line[4:].strip().split(": ")
        taken, passes = more - joules, int(rest.split()[0])
        print(f"{name}: {rest}, {taken / (ended - began):.0f} W, {taken / passes:.3f} J a pass, {clock} MHz", flush=True)
    else:
        print(line, end="")
sys.exit(program.wait())
