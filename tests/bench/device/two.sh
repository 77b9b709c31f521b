#!/bin/bash
# Two GPUs, at most 210 s: slabs on two devices, their tests, the whole suite.
. tests/bench/device/setup.sh
nvidia-smi topo -m 2>/dev/null | head -4
timeout 65 python3 tests/bench/device/figures.py two 2>&1 | tee "$OUT/figures.log" | cut -c1-230
said figures
tests slabs 55 -n 6 tests/gpu/test_slabs.py
said slabs
tests suite 75 -n 10 tests/gpu/test_device.py
said suite
