"""Problems of ``adversarial.py`` on a device, simulated."""

from __future__ import annotations

from adversarial_ways import Place, found_by


def test_on_a_simulated_device(cupy, tmp_path):
    assert found_by("device", range(6), tmp_path, Place({"device": "cuda"}), most=16) == []
