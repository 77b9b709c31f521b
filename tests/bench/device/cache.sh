#!/bin/bash
# One GPU, at most 230 s: the row cache in device memory, figures and tests.
. tests/bench/device/setup.sh
timeout 165 python3 tests/bench/device/cache.py 2>&1 | tee "$OUT/cache.log" | cut -c1-260
said figures
tests cache 60 -n 8 tests/device/gpu/test_cache.py tests/device/gpu/test_slabs.py::TestOutcomes tests/device/gpu/test_device.py::TestMemory
said tests
