"""Compiled kernels on the disk: found by content, built for levels, and never wrong ones."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import bigsap
from bigsap.compile import cpu_levels, digest, kernel_files

COMPILE = Path(bigsap.__file__).parent / "compile"

# A package of two modules with the means of the real one.
LOW = """
from bigsap.compile.decorator import kernel
from bigsap.constants import STEP

@kernel
def more(x):
    return x + STEP
"""
HIGH = """
from bigsap.compile.decorator import kernel
from bigsap.low import more

@kernel
def twice(values, plain=0):
    total = plain
    for value in values:
        total += more(value) + more(1)
    return total

@kernel(nrt=True)
def squares(values):
    return values * values
"""
MAIN = """
import json, sys
import numpy as np
from bigsap.compile import kernel_cache
from bigsap.high import twice, squares
{before}
found = [int(twice(np.arange(4))), squares(np.ones(3)).tolist()]
print(json.dumps([found, kernel_cache.COUNTS.compiled, kernel_cache.COUNTS.loaded]))
"""
ANSWER = [6 + 4 + 8, [1.0, 1.0, 1.0]]  # STEP = 1


def written(folder: Path) -> Path:
    root = folder / "bigsap"
    shutil.copytree(COMPILE, root / "compile", ignore=shutil.ignore_patterns("__pycache__", "built"))
    shutil.copy(COMPILE.parent / "errors.py", root)
    (root / "__init__.py").write_text("")
    (root / "constants.py").write_text("STEP = 1\n")
    (root / "low.py").write_text(LOW)
    (root / "high.py").write_text(HIGH)
    return root


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """Nothing of it is compiled."""
    return written(tmp_path)


@pytest.fixture(scope="module")
def first_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = written(tmp_path_factory.mktemp("compiled"))
    assert run(root) == (ANSWER, 2, 0)
    assert len(kernels(root)) == 2  # what kernels call has no file
    return root


@pytest.fixture
def compiled(first_run: Path, tmp_path: Path) -> Path:
    """One that has run once."""
    return Path(shutil.copytree(first_run, tmp_path / "bigsap"))


def start(package: Path, before: str = "", **env: str) -> subprocess.Popen[str]:
    given = {k: v for k, v in os.environ.items() if not k.startswith(("NUMBA_", "PYTHON"))}
    given |= {"PYTHONPATH": str(package.parent), "HOME": str(package.parent / "home"), **env}
    return subprocess.Popen(
        [sys.executable, "-B", "-c", MAIN.format(before=before)],
        cwd=package.parent,
        env=given,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> tuple[list[object], int, int]:
    out, err = process.communicate(timeout=200)
    assert process.returncode == 0, err
    found, compiled, loaded = json.loads(out)
    return found, compiled, loaded


def run(package: Path, before: str = "", **env: str) -> tuple[list[object], int, int]:
    return finish(start(package, before, **env))


def kernels(package: Path) -> list[Path]:
    return sorted((package / "__pycache__").glob("*.kernel"))


def test_content_decides_and_not_times(compiled):
    package = compiled
    # Another text of something that is only called, or of a constant.
    (package / "constants.py").write_text("STEP = 3\n")
    assert run(package) == ([6 + 12 + 16, ANSWER[1]], 2, 0)
    (package / "low.py").write_text(LOW.replace("x + STEP", "x - STEP"))
    assert run(package) == ([6 - 12 - 8, ANSWER[1]], 2, 0)
    # A module beside them, and the first text once more: both are still there.
    (package / "low.py").write_text(LOW)
    (package / "constants.py").write_text("STEP = 1\n")
    (package / "other.py").write_text("NOTHING = 0\n")
    for file in package.rglob("*.py"):
        os.utime(file, (1, 1))
    assert run(package) == (ANSWER, 0, 2)


def test_damaged_files_are_compiled_again(compiled):
    package = compiled
    first, second = kernels(package)
    whole = first.read_bytes()
    first.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    second.write_bytes(second.read_bytes()[: len(whole) // 2])
    assert run(package) == (ANSWER, 2, 0)
    assert run(package) == (ANSWER, 0, 2)


@pytest.mark.slow
@pytest.mark.parametrize("other", ["numba", "llvmlite", "np"])
def test_other_versions_make_other_kernels(compiled, other):
    package = compiled
    before = f"kernel_cache.{other}.__version__ = '99.0.0'"
    assert run(package, before)[1:] == (2, 0)
    assert run(package)[1:] == (0, 2)


@pytest.mark.slow
@pytest.mark.parametrize("setting", [{"NUMBA_BOUNDSCHECK": "1"}, {"NUMBA_LOOP_VECTORIZE": "0"}])
def test_settings_of_numba_make_other_kernels(compiled, setting):
    """Slow ones, made to find a mistake, do not stay for later runs."""
    assert run(compiled, **setting) == (ANSWER, 2, 0)
    assert run(compiled) == (ANSWER, 0, 2)


@pytest.mark.slow
def test_two_processes_at_once(package):
    both = [start(package) for _ in range(2)]
    assert [finish(process)[0] for process in both] == [ANSWER, ANSWER]
    assert run(package) == (ANSWER, 0, 2)
    assert not list((package / "__pycache__").glob("*.tmp"))


@pytest.mark.slow
def test_places(package, tmp_path):
    """The chosen folder, beside the package, the user's own; or nowhere, which only costs time."""
    assert run(package, NUMBA_CACHE_DIR=str(tmp_path / "chosen")) == (ANSWER, 2, 0)
    assert len(list((tmp_path / "chosen" / "bigsap").glob("*.kernel"))) == 2
    assert not kernels(package)
    (package / "__pycache__").mkdir(exist_ok=True)
    deny = "import tempfile; from bigsap.compile import kernel_files\n"
    deny += "def deny(real=tempfile.TemporaryFile, dir=None):\n"
    deny += "    if {where} in str(dir): raise PermissionError(13, 'no')\n    return real(dir=dir)\n"
    deny += "tempfile.TemporaryFile = deny"
    assert run(package, deny.format(where="'__pycache__'")) == (ANSWER, 2, 0)
    assert len(list((tmp_path / "home" / ".cache" / "bigsap").glob("*.kernel"))) == 2
    assert run(package, deny.format(where="''")) == (ANSWER, 2, 0)
    assert not kernels(package)


def test_places_are_absolute(tmp_path, monkeypatch):
    """A chosen folder stays where it was; without a home none is made up in the working folder."""
    monkeypatch.chdir(tmp_path)
    kernel_files._writable.cache_clear()
    try:
        assert kernel_files._writable("chosen") == tmp_path / "chosen" / "bigsap"
        monkeypatch.setattr(kernel_files, "PACKAGE", tmp_path / "chosen" / "bigsap" / "gone")
        monkeypatch.setattr(kernel_files.os.path, "expanduser", lambda path: path)
        monkeypatch.setenv("XDG_CACHE_HOME", "relative")
        (tmp_path / "chosen" / "bigsap" / "gone").write_text("no folder")
        assert kernel_files._writable("") is None
        assert [path.name for path in tmp_path.iterdir()] == ["chosen"]
    finally:
        kernel_files._writable.cache_clear()


@pytest.mark.slow
def test_kernels_that_came_along(package, tmp_path):
    """Built for a level, used where that runs; below a folder that nobody writes to."""
    level = cpu_levels.usable_levels()[-1]  # the lowest: every machine that runs this has it
    built = package / "compile" / "built" / kernel_files.folder_of(level)
    target = (
        f"kernel_cache.target = kernel_cache.Target(__import__('pathlib').Path({str(built)!r}), {level!r})"
    )
    cpu = {"NUMBA_CPU_NAME": level, "NUMBA_CPU_FEATURES": ""} if level in cpu_levels.X86 else {}
    assert run(package, target, **cpu) == (ANSWER, 2, 0)
    assert len(list(built.glob("*.kernel"))) == 2
    assert not kernels(package)
    for path in [package, *package.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        assert run(package) == (ANSWER, 0, 2)
        assert not kernels(package)
        # A processor that numba is told, and another version.
        processor = "x86-64" if level in cpu_levels.X86 else "generic"
        assert run(package, NUMBA_CPU_NAME=processor, NUMBA_CPU_FEATURES="")[1:] == (2, 0)
        assert run(package, "kernel_cache.made_with = lambda: ('other',)")[1:] == (2, 0)
    finally:
        for path in [package, *package.rglob("*")]:
            path.chmod(0o755)


def features(*names: str) -> str:
    return ",".join(f"+{name}" for level in names for name in cpu_levels.X86[level]) + ",-sse4a"


def test_levels_are_what_the_processor_can_do():
    v2, v3, v4 = cpu_levels.X86
    for machine in ("x86_64", "amd64"):
        assert cpu_levels._usable(machine, features(v2, v3, v4)) == [v4, v3, v2]
        assert cpu_levels._usable(machine, features(v2, v3)) == [v3, v2]
        assert cpu_levels._usable(machine, features(v2)) == [v2]
        assert cpu_levels._usable(machine, "+sse2") == []
        for level in cpu_levels.X86:
            for name in cpu_levels.X86[level]:
                less = features(v2, v3, v4).replace(f"+{name},", f"-{name},")
                assert level not in cpu_levels._usable(machine, less), name
        # Hidden by the system, or by a virtual machine: each needs those below.
        assert cpu_levels._usable(machine, features(v2, v4)) == [v2]
    assert cpu_levels._usable("aarch64", features(v2, v3, v4)) == []


def test_content_follows_imports():
    search = "bigsap.engine.lists.search"
    found = digest.imports_of(search)
    assert "bigsap.compile.decorator" in found
    assert digest.content(search) != digest.content("bigsap.engine.rows.square")
    assert digest.content("bigsap") is None
    assert digest.content("numba") is None
    assert digest.content("bigsap.nowhere") is None


def test_docstrings_and_comments_do_not_count():
    def of(text):
        return digest.digest_of(ast.parse(text))

    plain = "def f(x):\n    return x + 1\n"
    told = "'''What it is.'''\n\ndef f(x):\n    'One more.'\n    return (x  # why\n        + 1)\n"
    assert of(plain) == of(told)
    assert of(plain) != of(plain.replace("1", "2"))
    assert of("x = 'a'\n") != of("x = 'b'\n")
    assert of("class A:\n    'is'\n    x = 1\n") == of("class A:\n    x = 1\n")
    # Only the first statement is a docstring: what follows is code.
    assert of("x = 1\n'a'\n") != of("x = 1\n")


def test_a_module_is_read_again_if_another_thread_disturbs_the_parser(monkeypatch):
    """The first solves of two threads may both look for kernels."""
    parse, search = ast.parse, "bigsap.engine.lists.search"
    disturbed = [SystemError("AST constructor recursion depth mismatch (before=318, after=53)")]

    def disturbing(*given, **named):
        if disturbed:
            raise disturbed.pop()
        return parse(*given, **named)

    expected = digest._module(search)
    monkeypatch.setattr(digest, "_known", dict)
    monkeypatch.setattr(digest, "_new", [])
    monkeypatch.setattr(ast, "parse", disturbing)
    assert digest._module.__wrapped__(search) == expected
    assert not disturbed


def test_summaries_are_kept_and_damaged_ones_made_again(tmp_path, monkeypatch):
    monkeypatch.setattr(digest.kernel_files, "kept_in", lambda: tmp_path)
    search = "bigsap.engine.lists.search"

    def afresh():
        for function in (digest.imports_of, digest._module, digest._known):
            function.cache_clear()
        return digest.content(search)

    try:
        first = afresh()
        kept = tmp_path / "syntax.json"
        assert search.rpartition(".")[0] in kept.read_text()
        for text in ("", "{", '{"version": "0"}', "[]", kept.read_text()):
            kept.write_text(text)
            assert afresh() == first
    finally:
        monkeypatch.undo()
        afresh()


def test_old_versions_go(tmp_path):
    for k in range(7):
        kernel_files.write(tmp_path, f"f-aa-{k}", b"x" * k)
        os.utime(tmp_path / f"f-aa-{k}.kernel", (k, k))
    kernel_files.write(tmp_path, "f-bb-0", b"another")
    names = sorted(path.stem for path in tmp_path.iterdir())
    assert "f-bb-0" in names
    assert [name for name in names if "aa" in name] == [f"f-aa-{k}" for k in range(3, 7)]
    assert kernel_files.read(tmp_path, "f-aa-6") == b"x" * 6
    assert kernel_files.read(tmp_path, "f-aa-0") is None


def test_levels_of_a_wheel(monkeypatch):
    pytest.importorskip("setuptools")
    monkeypatch.syspath_prepend(str(COMPILE.parents[1]))
    import build_backend

    monkeypatch.setattr(build_backend.platform, "machine", lambda: "x86_64")
    for chosen, expected in {
        "": "",
        "all": "x86-64-v2,x86-64-v3,x86-64-v4",
        "v3": "x86-64-v3",
        "v2,v4": "x86-64-v2,x86-64-v4",
        "none": "",
    }.items():
        monkeypatch.setenv("BIGSAP_WHEEL_KERNELS", chosen)
        assert build_backend.chosen_levels() == expected
    for wrong in ("v5", "native", "v3,"):
        monkeypatch.setenv("BIGSAP_WHEEL_KERNELS", wrong)
        with pytest.raises(SystemExit, match="must be"):
            build_backend.chosen_levels()
    # numba is needed to build a wheel, and only a wheel with kernels.
    monkeypatch.setattr(build_backend.build_meta, "get_requires_for_build_wheel", lambda s: [])
    monkeypatch.chdir(COMPILE.parents[1])
    monkeypatch.setenv("BIGSAP_WHEEL_KERNELS", "none")
    assert build_backend.get_requires_for_build_wheel() == []
    monkeypatch.setenv("BIGSAP_WHEEL_KERNELS", "v3")
    assert any(name.startswith("numba") for name in build_backend.get_requires_for_build_wheel())
