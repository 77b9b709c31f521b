#!/bin/bash
# One GPU, at most 300 s: the Hungarian method and the auction: tests, then figures.
. tests/bench/device/setup.sh
tests gpu 100 -n 4 tests/device/gpu/test_gpu_hungarian.py &
tests simulated 200 -n 11 tests/device/test_hungarian_simulated.py tests/device/test_auction_simulated.py tests/unit/test_auction.py tests/docs/test_bench.py -k "not report"
wait
said tests
timeout 100 python3 tests/bench/device/trees.py bars 2>&1 | tee "$OUT/bars.log" | cut -c1-420
said bars
timeout 80 python3 tests/bench/device/trees.py crossings 2>&1 | tee "$OUT/crossings.log" | cut -c1-300
said crossings
