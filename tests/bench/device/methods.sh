#!/bin/bash
# One GPU, at most 350 s: the two methods on the device and the CPU in turn.
. tests/bench/device/setup.sh
timeout 160 python3 -m bigsap warmup --processes 12 >"$OUT/warmup.log" 2>&1
said compiled
timeout 150 python3 tests/bench/device/figures.py methods 2>&1 | tee "$OUT/methods.log" | cut -c1-230
said methods
tests auto 30 tests/gpu/test_device.py -k "auto or Tight"
