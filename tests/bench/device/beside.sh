#!/bin/bash
# One GPU, at most 560 s: the whole suite, then the device and the CPU in turn.
. tests/bench/device/setup.sh
timeout 330 python3 -m bigsap warmup >"$OUT/warmup.log" 2>&1 &
tests suite 280 -n 8 tests/device/gpu
said suite
wait
said warmup
timeout 200 python3 tests/bench/device/figures.py beside 2>&1 | tee "$OUT/figures.log" | cut -c1-260
said figures
nvidia-smi --query-gpu=name,driver_version,memory.used,clocks.sm --format=csv,noheader
