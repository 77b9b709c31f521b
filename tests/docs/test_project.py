"""Files by which the project is built, tested and released elsewhere: valid, and true of this tree."""

from __future__ import annotations

import importlib.util
import itertools
import os
import pickle
import re
import subprocess
import sys
import tomllib
import zipfile
import zlib
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

import bigsap

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
WORKFLOWS = ROOT / ".github" / "workflows"
FORMS = ROOT / ".github" / "ISSUE_TEMPLATE"
CHECKED = {
    "vendor.github-workflows": [*WORKFLOWS.glob("*.yml")],
    "custom.github-workflows-require-timeout": [
        file for file in WORKFLOWS.glob("*.yml") if file.name != "release.yml"
    ],
    "vendor.dependabot": [ROOT / ".github" / "dependabot.yml"],
    "vendor.github-issue-forms": [file for file in FORMS.glob("*.yml") if file.name != "config.yml"],
    "vendor.github-issue-config": [FORMS / "config.yml"],
    "vendor.citation-file-format": [ROOT / "CITATION.cff"],
}


def workflow(name):
    # "on" is a Boolean of YAML 1.1.
    return yaml.safe_load((WORKFLOWS / f"{name}.yml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("schema", CHECKED)
def test_files_follow_their_schemas(schema):
    check = pytest.importorskip("check_jsonschema").main
    done = CliRunner().invoke(check, ["--builtin-schema", schema, *map(str, CHECKED[schema])])
    assert done.exit_code == 0, done.output


def test_workflows_may_only_read_unless_they_publish():
    for file in WORKFLOWS.glob("*.yml"):
        found = workflow(file.stem)
        assert found["permissions"] == {"contents": "read"}, file.name
        more = {name: job["permissions"] for name, job in found["jobs"].items() if "permissions" in job}
        allowed = {"publish": {"id-token": "write"}, "notes": {"contents": "write"}}
        assert more == (allowed if file.stem == "release" else {}), file.name
        text = file.read_text(encoding="utf-8")
        assert not re.search(r"secrets\.|password:|pull_request_target", text), file.name
        for job, step in itertools.product(found["jobs"].values(), range(40)):
            steps = job.get("steps", [])
            # What others may write (titles, branches) never becomes part of a command.
            if step < len(steps):
                assert "github.event" not in steps[step].get("run", "")
                assert "${{ github.ref" not in steps[step].get("run", "")


def test_files_that_workflows_name_exist():
    for name in (ROOT / ".ci" / "unit_tests.txt").read_text().split():
        assert (ROOT / name).is_file(), name
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    for file in WORKFLOWS.glob("*.yml"):
        text = file.read_text(encoding="utf-8")
        assert set(re.findall(r"\bmake ([a-z-]+)", text)) <= targets
        for path in re.findall(r"(?<![\w/])(?:tests|\.ci|bigsap)/[\w/]+(?:\.\w+)?", text):
            assert (ROOT / path).exists(), (file.name, path)


def test_the_pull_request_of_a_release_makes_its_wheels():
    """A release changes CHANGELOG.md; what is in a wheel, and how it is built, is watched as well."""
    paths = workflow("wheels")[True]["pull_request"]["paths"]
    assert "CHANGELOG.md" in paths
    for path in paths:
        assert [*ROOT.glob(path)], path


def test_groups_are_installed_by_a_pip_that_knows_them():
    groups = 0
    for file in WORKFLOWS.glob("*.yml"):
        for job in workflow(file.stem)["jobs"].values():
            commands = [step.get("run", "") for step in job.get("steps", [])]
            for place, command in enumerate(commands):
                if "--group" in command:
                    groups += 1
                    assert 'pip install "pip>=25.1"' in "".join(commands[:place]), file.name
    assert groups == 3


def test_code_of_other_solvers_and_tensors_of_other_libraries_are_run_somewhere():
    steps = workflow("docs")["jobs"]["code"]["steps"]
    assert steps[-1]["env"] == {"BIGSAP_TEST_PEERS": "all"}
    installed = set(" ".join(step.get("run", "") for step in steps).split())
    assert installed >= {"lapx", "POT", "ortools", "torch", "jax"}
    assert installed >= {"tests/docs/test_document_code.py", "tests/unit/test_tensors.py"}


def test_only_what_is_ready_is_released(tmp_path):
    """The tag is the version, the changelog has it with a date, and no fragment is left."""
    (step,) = (found for found in workflow("release")["jobs"]["check"]["steps"] if "run" in found)
    for name in ("bigsap/__init__.py", "CHANGELOG.md", "changelog.d/README.md"):
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text((ROOT / name).read_text(encoding="utf-8"), encoding="utf-8")
    changes = tmp_path / "CHANGELOG.md"
    heading = re.compile(rf"(?<=^## \[{re.escape(bigsap.__version__)}\] - ).*$", re.M)
    changes.write_text(heading.sub("2099-01-02", changes.read_text()))

    def released(tag=f"v{bigsap.__version__}"):
        done = subprocess.run(["bash", "-e", "-c", step["run"]], cwd=tmp_path, env={**os.environ, "TAG": tag})
        return done.returncode == 0

    assert released()
    assert not released("v99.0.0")
    (tmp_path / "changelog.d" / "+new.added.md").write_text("New.\n")
    assert not released()
    (tmp_path / "changelog.d" / "+new.added.md").unlink()
    changes.write_text(heading.sub("not yet released", changes.read_text()))
    assert not released()


def test_the_readme_is_short():
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 150
    assert max(map(len, lines)) <= 100


def test_the_version_has_one_place():
    assert PROJECT["project"]["dynamic"] == ["version"]
    assert PROJECT["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "bigsap.__version__"}
    assert re.fullmatch(r"\d+\.\d+\.\d+", bigsap.__version__)
    assert "version:" not in (ROOT / "CITATION.cff").read_text().replace("cff-version:", "")
    # The pattern by which the release compares it with the tag.
    text = (ROOT / "bigsap" / "__init__.py").read_text()
    assert text.count(f'\n__version__ = "{bigsap.__version__}"\n') == 1


@pytest.fixture(scope="module")
def tagging():
    pytest.importorskip("elftools")
    if not sys.platform.startswith("linux"):
        pytest.skip("reads this system's glibc")
    specification = importlib.util.spec_from_file_location("tag_wheel", ROOT / ".ci" / "tag_wheel.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def machine_code(*names):
    """An object file that calls functions of these names."""
    from llvmlite import binding

    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    calls = "".join(f"call void @{name}()\n" for name in names)
    declared = "".join(f"declare void @{name}()\n" for name in names)
    module = binding.parse_assembly(f"{declared}define void @kernel() {{\n{calls}ret void\n}}\n")
    return binding.Target.from_default_triple().create_target_machine().emit_object(module)


def wheel_of(folder, *codes):
    file = folder / "bigsap-0.1.0-cp312-cp312-linux_x86_64.whl"
    with zipfile.ZipFile(file, "w") as archive:
        for k, code in enumerate(codes):
            packed = zlib.compress(pickle.dumps(("name", code)))
            archive.writestr(
                f"bigsap/compile/built/v3/k{k}.kernel", b"bigsap kernel 1\n" + bytes(32) + packed
            )
    return file


def test_a_wheels_tag_is_the_glibc_that_its_kernels_call(tagging, tmp_path):
    known = tagging.glibc_symbols()
    if (2, 34) not in known.values():
        pytest.skip("an old glibc")
    old = wheel_of(tmp_path, machine_code("usleep", "numba_gil_ensure"), machine_code("memcpy"))
    glibc, count, asked = tagging.needed(old)
    assert (count, set(asked)) == (2, {"usleep", "memcpy"})
    assert glibc <= (2, 5)
    late = next(name for name, version in sorted(known.items()) if version == (2, 34) and name.isidentifier())
    assert tagging.needed(wheel_of(tmp_path, machine_code("usleep", late)))[0] == (2, 34)


def test_a_wheel_that_calls_what_nobody_has_is_refused(tagging, tmp_path):
    with pytest.raises(SystemExit, match="'__svml_exp4', which neither numba nor glibc has"):
        tagging.needed(wheel_of(tmp_path, machine_code("__svml_exp4")))
    with pytest.raises(SystemExit, match="no kernels"):
        tagging.needed(wheel_of(tmp_path))


def test_fragments_become_a_section_above_the_last(tmp_path):
    pytest.importorskip("towncrier")
    for name in ("pyproject.toml", "CHANGELOG.md"):
        (tmp_path / name).write_text((ROOT / name).read_text(encoding="utf-8"), encoding="utf-8")
    (tmp_path / "changelog.d").mkdir()
    (tmp_path / "changelog.d" / "README.md").write_text("how")
    (tmp_path / "changelog.d" / "+words.added.md").write_text("A new thing.\n")
    (tmp_path / "changelog.d" / "12.fixed.md").write_text("An old thing.\n")
    command = [
        sys.executable,
        "-m",
        "towncrier",
        "build",
        "--yes",
        "--version",
        "9.8.7",
        "--date",
        "2099-01-02",
    ]
    subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    text = (tmp_path / "CHANGELOG.md").read_text()
    section = text[text.index("## [9.8.7] - 2099-01-02") : text.index("## [0.1.0]")]
    assert "### Added\n\n- A new thing." in section
    assert "### Fixed\n\n- An old thing. (#12)" in section
    assert text.index("<!-- towncrier") < text.index("## [9.8.7]")
    # What the release compares with the tag.
    assert f"\n## [{bigsap.__version__}]" in text
