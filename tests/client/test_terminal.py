"""What others wrote never reaches a terminal as it is, and closed streams harm nothing."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bigsap
from bigsap.cli import commands as cli
from bigsap.cli import job_commands
from bigsap.display.text import result_text, shown
from bigsap.errors import InputError
from gate import SUPPORT

# Clears the screen, forges a line, colours, moves up; as C0, C1 and marks of direction.
EVIL = "a\x1b[2J\nb\x9b31m\r\x07\x85c\u2028d\u202ee\x7f\udc80"
TAME = r"a\x1b[2J\nb\x9b31m\r\x07\x85c\u2028d\u202ee\x7f\udc80"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", "plain"),
        ("Zürich 東京 \u3000\xa0x", "Zürich 東京 \u3000\xa0x"),
        (EVIL, TAME),
        ("", ""),
        ("\t", r"\t"),
        ("a\\x1b", "a\\x1b"),
        (Path("x\ny"), r"x\ny"),
        (3, "3"),
        ("\U000e0001", r"\U000e0001"),
    ],
)
def test_shown(text: object, expected: str) -> None:
    assert shown(text) == expected


def run(*argv: object) -> int:
    return cli.main([str(arg) for arg in argv])


def check(text: str) -> str:
    """No control character but line breaks, and nothing forged at the start of a line."""
    assert all(c == "\n" or c.isprintable() for c in text), ascii(text)
    assert not re.search(r"^(forged|b.?x9b)", text, re.M), text
    return text


JOB: dict[str, Any] = {
    "id": "job_1",
    "state": "succeeded",
    "attempt": 1,
    "created": f"2026-01-01{EVIL}",
    "started": None,
    "finished": None,
    "label": f"label\nforged {EVIL}",
    "cost": "array",
    "shape": [2, 2],
    "progress": {},
    "cancel": None,
    "links": {},
    "problem": {"title": EVIL, "detail": f"detail {EVIL}"},
    "outcome": {"status": EVIL, "success": True, "objective": 1, "bound": 1, "gap": 0},
}


class Told:
    """A client of a service that says what it likes."""

    def __enter__(self) -> Told:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to close."""

    def job(self, job_id: str) -> Any:
        from bigsap.client import Job

        return Job(self, dict(JOB, id=EVIL))  # type: ignore[arg-type]

    def jobs(self, **_: Any) -> Any:
        from bigsap.client import Job

        return [Job(self, JOB), Job(self, dict(JOB, id=EVIL, state=EVIL))]  # type: ignore[arg-type]

    def cancel(self, *_: Any, **__: Any) -> Any:
        return self.job("")

    submit = cancel

    def estimate(self, _: Any) -> Any:
        return {"spec": {}, "estimate": {"memory": {EVIL: 1}, "memory_bytes": 1, "notes": [EVIL]}}

    def upload(self, *_: Any, **__: Any) -> str:
        return EVIL


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("httpx", reason="extra http")
    monkeypatch.setattr(job_commands, "client_of", lambda args: Told())


def test_labels_and_all_else_of_a_service(told: None, capsys: Any, tmp_path: Path) -> None:
    assert run("jobs") == 0
    lines = check(capsys.readouterr().out).splitlines()
    assert len(lines) == 3, "a header and two jobs"
    assert rf"label\nforged {TAME}" in lines[1]
    for command in (["jobs", "job_1"], ["cancel", "job_1"]):
        assert run(*command) == 0
        out = check(capsys.readouterr().out)
        assert rf"label\nforged {TAME}" in out
        assert TAME in out
    evil = tmp_path / "b\x1b[31m\nforged.npy"
    np.save(evil, np.eye(2))
    assert run("submit", evil) == 0
    out, err = capsys.readouterr()
    assert TAME in check(out)
    assert r"b\x1b[31m\nforged.npy is " in check(err)
    assert run("submit", evil, "--dry-run") == 0
    assert TAME in check(capsys.readouterr().out)
    # For programs JSON says everything, in ASCII.
    assert run("jobs", "--json") == 0
    out = capsys.readouterr().out
    assert json.loads(out)["jobs"][0]["label"] == JOB["label"]
    assert out.isascii()
    check(out)


def test_a_refusal_of_a_service(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    from bigsap.client.http import ServiceError

    def refuse(args: Any) -> Any:
        raise ServiceError({"type": EVIL, "detail": EVIL, "pointer": "/a\x1bb"}, 500)

    monkeypatch.setattr(job_commands, "client_of", refuse)
    assert run("jobs") == 6
    assert r"a\x1b[2J b\x9b31m" in check(capsys.readouterr().err)


def test_a_result_and_its_file(capsys: Any, tmp_path: Path) -> None:
    from dataclasses import replace

    np.save(tmp_path / "c.npy", np.eye(2))
    name = tmp_path / "b\x1b[31m\nforged.npz"
    assert run("solve", tmp_path / "c.npy", "-o", name) == 0
    out, err = capsys.readouterr()
    check(out)
    assert r"b\x1b[31m\nforged.npz" in check(err)
    assert run("verify", tmp_path / "c.npy", name) == 0
    assert r"b\x1b[31m\nforged.npz" in check(capsys.readouterr().out)
    result = replace(bigsap.Result.load(name), message=EVIL)
    assert TAME in check(result_text(result))
    assert run("solve", tmp_path / "c.npy", "--resume", "--checkpoint", tmp_path / "b\nforged") == 0
    assert "b\\nforged" in check(capsys.readouterr().err)


@pytest.mark.parametrize("debug", ["0", "1"])
def test_errors_and_warnings(
    monkeypatch: pytest.MonkeyPatch, capsys: Any, tmp_path: Path, debug: str
) -> None:
    np.save(tmp_path / "c.npy", np.eye(2))

    def failing(*_: Any, **__: Any) -> Any:
        warnings.simplefilter("always")
        warnings.warn(f"warned {EVIL}", stacklevel=2)
        raise InputError(f"failed \x1b[31m{EVIL}".replace("\n", " "))

    monkeypatch.setenv("BIGSAP_DEBUG", debug)
    monkeypatch.setattr(bigsap, "solve", failing)
    assert run("solve", tmp_path / "c.npy") == 1
    err = check(capsys.readouterr().err)
    assert "warning: warned a\\x1b[2J b" in err
    assert "error: failed \\x1b[31ma" in err
    assert ("Traceback" in err) == (debug == "1")


def test_wrong_usage(capsys: Any) -> None:
    with pytest.raises(SystemExit):
        run("solve", "c.npy", f"--{EVIL}")
    assert TAME in check(capsys.readouterr().err)
    assert run("solve", f"x\nforged {EVIL}") == 1
    check(capsys.readouterr().err)


# Closed and broken streams


@pytest.fixture(scope="module")
def costs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("streams")
    np.save(folder / "c.npy", np.array([[4.0, 1, 3], [2, 0, 5], [3, 2, 2]]))
    return folder


def shell(words: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", f'"{sys.executable}" -m bigsap {words}'],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env=os.environ | environment,
    )


@pytest.mark.some(1)
@pytest.mark.parametrize("closed", ["2>&-", "<&-", "2>&- <&-", "2>/dev/full", "2> >(exit 0)"])
def test_solve_does_not_need_stderr_or_stdin(costs: Path, closed: str) -> None:
    done = shell(f"solve c.npy -o out --resume --checkpoint ck {closed}", costs)
    assert done.returncode == 0, done
    assert "cost             5\n" in done.stdout
    assert "saved" not in done.stdout, "notes do not go to stdout in stderr's place"
    assert bigsap.Result.load(costs / "out.npz").fun == 5
    (costs / "out.npz").unlink()
    (costs / "ck").unlink(missing_ok=True)


@pytest.mark.some(1)
@pytest.mark.parametrize(("closed", "code"), [(">&-", 0), (">&- 2>&- <&-", 0), (">/dev/full", 1)])
def test_solve_without_stdout_saves(costs: Path, closed: str, code: int) -> None:
    """A closed one is as the null device; one that is full loses the answer, which is an error."""
    done = shell(f"solve c.npy -o out {closed}", costs)
    assert done.returncode == code, done
    assert bigsap.Result.load(costs / "out.npz").fun == 5
    (costs / "out.npz").unlink()
    assert "Exception" not in done.stderr
    assert "Traceback" not in done.stderr
    assert ("No space left" in done.stderr) == (code == 1)


@pytest.mark.some(1)
@pytest.mark.parametrize("closed", ["2>&-", "2>&- <&-"])
def test_failures_tell_their_code_without_stderr(costs: Path, closed: str) -> None:
    done = shell(f"solve none.npy --json {closed}", costs)
    assert done.returncode == 1
    assert json.loads(done.stdout)["exit_code"] == 1, "JSON alone"


def test_labels_need_no_encoding(told: None, costs: Path) -> None:
    code = (
        "import sys; sys.path[:0] = sys.argv[1:]; import test_terminal as t;"
        "t.JOB['label'] = 'Zürich'; t.job_commands.client_of = lambda args: t.Told();"
        "sys.exit(t.run('jobs'))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(Path(__file__).parent), str(SUPPORT)],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONIOENCODING": "ascii"},
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert r"Z\xfcrich" in done.stdout
