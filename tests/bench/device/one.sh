#!/bin/bash
# One GPU, at most 590 s: trees, matrices, large point sets, threads of the host.
. tests/bench/device/setup.sh
nvidia-smi --query-gpu=name,driver_version,memory.used,clocks.sm --format=csv,noheader
timeout 200 python3 -m bigsap warmup --processes 14 >"$OUT/warmup.log" 2>&1
said warmup
each() { # seconds, name, arguments
    local limit=$1 name=$2
    shift 2
    timeout "$limit" python3 "$@" 2>&1 | tee "$OUT/$name.log" | cut -c1-330
    said "$name"
}
each 80 bars tests/bench/device/trees.py bars
each 60 matrices tests/bench/device/figures.py matrices
each 70 disjoint tests/bench/device/figures.py points disjoint 262144
each 60 geometric tests/bench/device/figures.py points geometric 262144
each 200 million tests/bench/device/figures.py points disjoint 1048576
left=$((580 - SECONDS + clock))
each $((left > 20 ? left : 20)) threads tests/bench/device/figures.py threads
