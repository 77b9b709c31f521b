#!/bin/bash
# One GPU, at most 480 s: rounds of searches on lists: their tests, and the curve of large point sets.
# Compile first, side by side; then nothing else runs beside what is timed.
. tests/bench/device/setup.sh
timeout 100 python3 -m bigsap warmup >"$OUT/warmup.log" 2>&1 &
timeout 90 python3 tests/bench/device/figures.py points 3000 >/dev/null 2>&1 &
tests rounds 120 -n 8 tests/gpu/test_device.py -k Rounds
wait
said tests
for n in 262144 65536; do
    timeout 200 python3 tests/bench/device/figures.py points $n 2>&1 | cut -c1-600
    said $n
done
timeout 70 python3 tests/bench/device/figures.py small 2>&1 | cut -c1-300
said figures
