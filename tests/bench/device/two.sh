#!/bin/bash
# Two GPUs and 32 cores, at most 590 s: tests on the second and figures on the first, then both.
# With CLUSTER=1 there are beside them four workers of a cluster with a cost function of 20 us a
# pair, which go on afterwards and whose log is /tmp/cluster.log.
. tests/bench/device/setup.sh
nvidia-smi topo -m 2>/dev/null | head -4
timeout 200 python3 -m bigsap warmup --processes 24 >"$OUT/warmup.log" 2>&1
said warmup
[ -z "${CLUSTER-}" ] || setsid nohup timeout 900 python3 examples/cluster.py \
    --full --workers 4 --no-shards >/tmp/cluster.log 2>&1 &
CUDA_VISIBLE_DEVICES=1 tests suite 280 -n 8 tests/device/gpu &
suite=$!
each() { # seconds, name, arguments
    local limit=$1 name=$2
    shift 2
    timeout "$limit" python3 "$@" 2>&1 | tee "$OUT/$name.log" | cut -c1-250
    said "$name"
}
each 150 methods tests/bench/device/figures.py methods
each 110 crossings tests/bench/device/trees.py crossings
wait $suite
said suite
tests slabs 90 -n 8 tests/device/gpu/test_slabs.py
said slabs
each 90 messages tests/bench/device/trees.py messages
each 65 two tests/bench/device/figures.py two
[ -z "${CLUSTER-}" ] || cat /tmp/cluster.log
