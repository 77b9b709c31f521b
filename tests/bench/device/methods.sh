#!/bin/bash
# One GPU, at most 590 s: the two methods on the device in turn, then 524,288 points.
. tests/bench/device/setup.sh
timeout 100 python3 tests/bench/device/figures.py points 3000 >/dev/null 2>&1
said compiled
timeout 130 python3 tests/bench/device/figures.py methods 2>&1 | tee "$OUT/methods.log" | cut -c1-230
said methods
timeout 410 python3 tests/bench/device/figures.py points 524288 2>&1 | tee "$OUT/points.log" | cut -c1-900
said points
