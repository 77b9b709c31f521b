#!/bin/bash
# Two GPUs, at most 330 s: their tests, slabs on two devices, the methods on one in turn.
. tests/bench/device/setup.sh
nvidia-smi topo -m 2>/dev/null | head -4
timeout 200 python3 -m bigsap warmup --processes 12 >"$OUT/warmup.log" 2>&1 &
tests slabs 100 -n 8 tests/gpu/test_slabs.py
said slabs
wait
said compiled
timeout 65 python3 tests/bench/device/figures.py methods 2>&1 | tee "$OUT/methods.log" | cut -c1-140
said methods
timeout 65 python3 tests/bench/device/figures.py two 2>&1 | tee "$OUT/figures.log" | cut -c1-230
said figures
