"""What pyproject.toml cannot say: a wheel carries compiled kernels (see build_backend.py)."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py

sys.path.insert(0, str(Path(__file__).parent))
from build_backend import chosen_levels


class BuildKernels(build_py):
    """Copies the modules; then has those copies compile their kernels, beside them."""

    def run(self) -> None:
        super().run()
        levels = "" if self.editable_mode else chosen_levels()
        if not levels:
            return
        # Where the copies lie there is no other bigsap to be imported.
        target = Path(self.build_lib).resolve()
        # Of an earlier build, from other sources.
        shutil.rmtree(target / "bigsap" / "compile" / "built", ignore_errors=True)
        command = [sys.executable, "-m", "bigsap.building", "bigsap/compile/built", levels]
        command += ["--kinds", os.environ.get("BIGSAP_WHEEL_KINDS", "")]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(target), *sys.path]),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        subprocess.run(command, cwd=target, env=environment, check=True)


class Platform(Distribution):
    """Kernels are of one platform and one version of Python."""

    def has_ext_modules(self) -> bool:
        return bool(chosen_levels())


setup(cmdclass={"build_py": BuildKernels}, distclass=Platform)
