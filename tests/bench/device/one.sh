#!/bin/bash
# One GPU, at most 330 s: slabs on one device, figures, the whole suite, 262,144 points beside.
. tests/bench/device/setup.sh
timeout 320 python3 -m bigsap warmup >"$OUT/warmup.log" 2>&1 &
timeout 310 python3 tests/bench/device/figures.py points 262144 >"$OUT/points.log" 2>&1 &
points=$!
tests slabs 100 -n 4 tests/gpu/test_slabs.py
said slabs
timeout 110 python3 tests/bench/device/figures.py one 2>&1 | tee "$OUT/figures.log" | cut -c1-230
said figures
tests suite 90 -n 5 tests/gpu/test_device.py
said suite
while kill -0 $points 2>/dev/null && [ $((SECONDS - clock)) -lt 322 ]; do sleep 1; done
cut -c1-300 "$OUT/points.log"
said points
nvidia-smi --query-gpu=name,driver_version,memory.used,clocks.sm --format=csv,noheader
