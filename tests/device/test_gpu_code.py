"""Device code without a device: it compiles, its formulas are the host's, its indices right."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from functools import cache
from unittest import mock

import numpy as np
import pytest

import bigsap
import device_twins as twins
from bigsap import policy
from bigsap.engine.cuda.batch import SIDE
from bigsap.engine.cuda.device_lists import span
from bigsap.engine.cuda.kernel_texts import DENSE, ROWS
from bigsap.engine.cuda.shares import geometry
from bigsap.errors import DeviceMemoryError, DtypeError, KernelError, OptionError
from bigsap.progress import Monitor
from bigsap.sources.clipped import ClippedCosts
from bigsap.sources.cuda.code import PRELUDE, DeviceCode, PairCode, matrix_code, source_code
from bigsap.sources.cuda.device_kernels import OPTIONS, PRODUCT_PROOF, PROOF, TILES, compile_error, full_text
from bigsap.sources.cuda.function import cuda_kernel
from bigsap.sources.cuda.placed import StreamedToDevice, device_numbers
from bigsap.strategies import placement
from bigsap.strategies.placement import device_method, place_costs, refuse_streaming
from pairwise import each

GENERATOR = np.random.default_rng(11)
X, Y = GENERATOR.random((9, 2)), GENERATOR.random((13, 2))
WIDE = GENERATOR.random((9, 12))
with mock.patch.object(policy, "UNIT_VECTORS", 0):
    SINGLE_UNITS = bigsap.points(*GENERATOR.normal(size=(2, 13, 130)).astype(np.float32), "cosine")
KERNEL = """\
static __device__ double square(double a) { return a * a; }
__device__ double cost(long long i, long long j, const double *x, const double *y, double s) {
    return s * (square(x[2 * i] - y[2 * j]) + square(x[2 * i + 1] - y[2 * j + 1]));
}
"""


def sources() -> dict[str, object]:
    wide = GENERATOR.random((9, 12)), GENERATOR.random((13, 12))
    found: dict[str, object] = {
        metric: bigsap.points(X, Y, metric)
        for metric in ("sqeuclidean", "euclidean", "cityblock", "chebyshev", "cosine", "haversine")
    }
    found["minkowski"] = bigsap.points(X, Y, "minkowski", p=3)
    found["weighted"] = bigsap.points(X, Y, "euclidean", w=[0.5, 2.0])
    found["wide"] = bigsap.points(*wide)
    found["float32 cosine"] = SINGLE_UNITS
    found["float32"] = bigsap.points(*GENERATOR.normal(size=(2, 13, 20)).astype(np.float32))
    found["lowrank"] = bigsap.lowrank(X, Y, row_terms=np.arange(9.0))
    found["expression"] = bigsap.expression(
        "abs(x[i,0]-y[j,1]) + (x[i,1] if i < j else 0.5) % 0.3", (9, 13), x=X, y=Y
    )
    return found


def code_of(source: object) -> DeviceCode:
    code = source_code(source)
    assert code is not None
    return code.code() if isinstance(code, PairCode) else code


FILES = {"dense": DENSE, "rows": ROWS, "proof": PROOF, "product proof": PRODUCT_PROOF, "tiles": TILES}


def full(file: str, code: DeviceCode, **settings: int) -> str:
    usual = {
        "dense": {"GROUP": 8, "THREADS": 512, "COLS": 4, "USE_CLUSTER": 1, "VIRTUAL": 0},
        "rows": {"SPAN": 32, "ROWS": 8, "WITH_FREE": 0},
        "proof": {},
        "product proof": {},
        "tiles": {},
    }[file]
    merged = {"PRICE_IS_INT": 0, "SIGN": 1, "WIDTH": code.width, **usual, **settings}
    return full_text(FILES[file], code.text, tuple(sorted(merged.items())))


@cache
def has_nvrtc() -> bool:
    if importlib.util.find_spec("cuda") is None:  # a process takes a second
        return False
    has = subprocess.run(
        [sys.executable, "-c", "from cuda.bindings import nvrtc; nvrtc.nvrtcVersion()"],
        capture_output=True,
        timeout=200,
        check=False,
    )
    return has.returncode == 0


def compile_text(text: str, arch: str, folder: object) -> None:
    """By NVRTC where its package is installed, else by nvcc."""
    code = (
        "import sys; from cuda.bindings import nvrtc as n; t = open(sys.argv[1], 'rb').read();"
        "e, p = n.nvrtcCreateProgram(t, b'k.cu', 0, [], []);"
        "o = [x.encode() for x in sys.argv[2:]];"
        "r, = n.nvrtcCompileProgram(p, len(o), o);"
        "s = n.nvrtcGetProgramLogSize(p)[1]; log = b' ' * s; n.nvrtcGetProgramLog(p, log);"
        "print(log.decode()) if int(r) else None; sys.exit(int(r) != 0)"
    )
    path = folder / "kernel.cu"  # type: ignore[operator]
    path.write_text(text)
    options = [*OPTIONS, f"-arch={arch}"]
    if has_nvrtc():
        command = [sys.executable, "-c", code, str(path), *options]
    elif shutil.which("nvcc"):
        target = str(folder / "kernel.cubin")  # type: ignore[operator]
        command = ["nvcc", "-w", "-cubin", "-o", target, *options, str(path)]
    else:
        pytest.skip("neither NVRTC (cuda-bindings, nvidia-cuda-nvrtc) nor nvcc is installed")
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


# Of the costs those whose texts differ most; all formulas are run on the host below.
TOLD = ("lowrank", "minkowski", "haversine", "expression")
F8 = matrix_code(np.dtype("f8"), 0, 4096, 1, 4096)
U1 = matrix_code(np.dtype("u1"), 0, 1, 77, 50)


@pytest.mark.some(3)
# Both sides of each test of the architecture for each file; sm_80 takes the one or the other. A
# compilation takes seconds, where there is a compiler.
@each(
    **{
        "file, code, settings": [
            ("dense", F8, {}),
            ("dense", F8, {"GROUP": 16, "COLS": 2, "VIRTUAL": 1}),
            ("dense", U1, {"PRICE_IS_INT": 1, "SIGN": -1, "VIRTUAL": 1, "COLS": 64, "WIDTH": 1}),
            ("dense", code_of(bigsap.points(X, Y)), {"COLS": 8, "WIDTH": 1}),
            ("dense", F8, {"GROUP": 16, "COLS": 2, "VIRTUAL": 1, "DEVICES": 2}),
            ("dense", U1, {"PRICE_IS_INT": 1, "SIGN": -1, "COLS": 64, "WIDTH": 1, "DEVICES": 8}),
            ("rows", F8, {}),
            ("rows", U1, {"PRICE_IS_INT": 1, "SIGN": -1, "WITH_FREE": 1, "SPAN": 8}),
            ("proof", F8, {"SIGN": -1}),
            ("proof", U1, {"PRICE_IS_INT": 1}),
            ("product proof", code_of(bigsap.points(WIDE, WIDE)), {"PHI": 1, "SIGN": -1}),
            ("tiles", code_of(bigsap.points(WIDE, WIDE)), {}),
            ("tiles", code_of(SINGLE_UNITS), {}),
            ("rows", code_of(SINGLE_UNITS), {"HALF_INNER": 1, "PHI": 2}),
        ]
    },
    arch=["sm_90", "sm_75"],
)
def test_kernels_compile(file: str, code: DeviceCode, settings: dict[str, int], arch: str, tmp_path) -> None:
    if arch != "sm_90":
        settings = {**settings, "USE_CLUSTER": 0} if file == "dense" else settings
    compile_text(full(file, code, **settings), arch, tmp_path)


@pytest.mark.some(1)
@pytest.mark.parametrize(
    "name",
    [
        *(pytest.param(name, marks=pytest.mark.slow) for name in sources() if name not in TOLD),
        *TOLD,
        "cuda_kernel",
        "part of an expression",
    ],
)
def test_costs_compile(name: str, tmp_path) -> None:
    if name == "cuda_kernel":
        code = cuda_kernel(KERNEL, (9, 13), (X, Y, 2.0)).pair.code()
    elif name == "part of an expression":
        whole = source_code(sources()["expression"])
        assert isinstance(whole, PairCode)
        code = whole.turned().part(np.array([3, 1]), np.array([2, 0, 5])).code()
    else:
        code = code_of(sources()[name])
    compile_text(full("rows", code), "sm_80", tmp_path)


@pytest.mark.some(3)
@pytest.mark.parametrize("name", list(sources()))
def test_device_formulas_are_the_hosts(name: str, tmp_path) -> None:
    source = sources()[name]
    n, m = source.shape  # type: ignore[attr-defined]
    code = code_of(source)
    kept = [np.ascontiguousarray(w) if isinstance(w, np.ndarray) else w for w in code.words]
    words = []
    for word in kept:
        if isinstance(word, np.ndarray):
            words.append(word.ctypes.data)
        elif isinstance(word, float):
            words.append(int(np.array([word]).view(np.int64)[0]))
        else:
            words.append(int(word))
    wanted = np.empty((1, m))
    for row in (0, n - 1):
        folder = tmp_path / str(row)
        folder.mkdir()
        found = twins.on_host(PRELUDE + code.text, folder, row, m, words)
        if found is None:
            pytest.skip("no C++ compiler")
        source.read(np.array([row]), slice(0, m), wanted)  # type: ignore[attr-defined]
        if code.exact or name == "expression":
            assert found.tobytes() == wanted[0].tobytes()
        else:
            np.testing.assert_allclose(found, wanted[0], rtol=1e-14)


@each(n_columns=[1, 31, 257, 1000, 4096, 5000, 16384, 40_001, 131_072], major=[7, 8, 9, 12])
def test_every_column_has_one_owner(n_columns: int, major: int) -> None:
    shape = geometry(n_columns, major)
    group, threads, columns = shape["GROUP"], shape["THREADS"], shape["COLS"]
    assert shape["USE_CLUSTER"] == (major >= 9)
    assert group * threads * columns >= n_columns
    for width in {1, min(2, columns), min(4, columns)}:
        t = np.repeat(np.arange(group * threads), columns)
        e = np.tile(np.arange(columns), group * threads)
        found = (e // width) * (group * threads * width) + t * width + e % width
        assert found[5] == twins.column_of(int(t[5]), int(e[5]), group, threads, width)
        assert np.array_equal(np.sort(found), np.arange(group * threads * columns))


@pytest.mark.parametrize("m", [1, 300, 2048, 5000, 70_000])
def test_every_column_is_in_one_group(m: int) -> None:
    size = span(m)
    groups = -(-m // (SIDE * size)) * SIDE
    assert groups <= 8192
    columns = twins.columns_of(np.arange(groups), size)
    assert np.array_equal(np.sort(columns.ravel()), np.arange(groups * size))
    assert (twins.group_of(columns, size) == np.arange(groups)[:, None]).all()


@pytest.mark.parametrize("kind", ["uniform", "ties", "negative", "near", "infinite", "few"])
@pytest.mark.parametrize("m", [200, 3000, 20_000])
def test_selection_finds_the_best(kind: str, m: int) -> None:
    g = np.random.default_rng(m)
    tau = {
        "uniform": lambda: g.random(m),
        "ties": lambda: g.integers(0, 5, m).astype(float),
        "negative": lambda: g.normal(size=m) * 1e6,
        "near": lambda: 1e9 + g.random(m) * 1e-3,
        "infinite": lambda: np.where(g.random(m) < 0.9, np.inf, g.random(m)),
        "few": lambda: np.where(np.arange(m) % 97 > 0, np.inf, g.random(m)),
    }[kind]()
    k = 128
    found, theta, opened = twins.select(tau, k, span(m))
    ordered = np.sort(tau[tau < np.inf])
    assert np.array_equal(tau[found], ordered[:k])
    assert np.unique(found).size == found.size
    assert theta == (ordered[k] if ordered.size > k else np.inf)
    if kind == "uniform" and m == 20_000:
        assert opened < 0.2 * m


def test_scrambling_is_undone() -> None:
    from importlib import resources

    text = resources.files("bigsap.engine.cuda").joinpath("kernels_lists.cu").read_text()
    names = dict(re.findall(r"#define (\w*SCRAMBLE) (0x[0-9A-F]+)u", text))
    factor, inverse = int(names["SCRAMBLE"], 16), int(names["UNSCRAMBLE"], 16)
    assert factor * inverse % 2**32 == 1


def test_rounding_down_and_bits() -> None:
    values = np.concatenate([GENERATOR.normal(size=1000) * 10.0 ** np.arange(1000) ** 0.5, [0, -0.0]])
    low = twins.rounded_down(values)
    assert (low <= values).all()
    assert (np.nextafter(low, np.float32(np.inf)).astype(float) > values)[values != low].all()
    order = np.argsort(low, kind="stable")
    assert (np.diff(twins.bits_of(low[order]).astype(np.int64)) >= 0).all()
    assert twins.float_of(int(twins.bits_of(np.array([-3.5]))[0])) == -3.5


class TestWidth:
    def test_wide_loads_need_alignment(self) -> None:
        f8, f4 = np.dtype("f8"), np.dtype("f4")
        assert matrix_code(f8, 0, 1000, 1, 1000).width == 2
        assert matrix_code(f8, 8, 1000, 1, 1000).width == 1
        assert matrix_code(f8, 0, 1001, 1, 1000).width == 1
        assert matrix_code(f8, 0, 1000, 1, 999).width == 1  # the last load would leave the row
        assert matrix_code(f4, 0, 1000, 1, 1000).width == 4
        assert matrix_code(np.dtype("u1"), 0, 64, 1, 64).width == 16
        assert matrix_code(f8, 0, 1, 1000, 1000).width == 1


class TestCudaKernel:
    def test_arguments(self) -> None:
        source = cuda_kernel(KERNEL, (9, 13), (X, Y, 2.0))
        assert source.shape == (9, 13)
        assert source.pair.kinds == ("const double*", "const double*", "double")
        assert source.transposed().shape == (13, 9)
        assert source.transposed().pair.swapped
        assert source.fingerprint() == cuda_kernel(KERNEL, (9, 13), (X, Y, 2.0)).fingerprint()
        assert source.fingerprint() != cuda_kernel(KERNEL, (9, 13), (X, Y, 3.0)).fingerprint()
        integers = cuda_kernel(
            "__device__ int cost(long long i, long long j, const int *a, long long b){ return a[i] + b; }",
            (9, 13),
            (np.arange(9, dtype="i4"), 5),
            dtype="i4",
        )
        assert integers.pair.kinds == ("const int*", "long long")
        assert integers.dtype == np.int32

    def test_refusals(self) -> None:
        with pytest.raises(OptionError, match="defines"):
            cuda_kernel("1 + 1", (3, 3))
        with pytest.raises(DtypeError, match="bool"):
            cuda_kernel(KERNEL, (3, 3), (True,))
        with pytest.raises(DtypeError, match=r"args\[0\]"):
            cuda_kernel(KERNEL, (3, 3), ("x",))
        with pytest.raises(DtypeError, match="dtype"):
            cuda_kernel(KERNEL, (3, 3), dtype="f2")
        with pytest.raises(OptionError, match="needs device"):
            bigsap.solve(cuda_kernel(KERNEL, (9, 13), (X, Y, 2.0)))

    def test_a_compile_error_shows_the_users_line(self) -> None:
        code = "__device__ double cost(long long i, long long j) {\n  return i +* j;\n}"
        source = cuda_kernel(code, (3, 3))
        text = full("rows", source.pair.code())
        log = 'cuda_kernel(2): error: operand of "*" must be a pointer\n\n1 error detected'
        error = compile_error(log, text)
        assert isinstance(error, KernelError)
        assert error.line == 2
        assert "2 | return i +* j;" in str(error)
        assert compile_error("kernels_rows.cu(7): error: x", text).line is None


class TestChoice:
    def test_names(self) -> None:
        assert device_numbers("cuda") == (0,)
        assert device_numbers("cuda:3") == (3,)
        assert device_numbers("cuda:0,2,1") == (0, 2, 1)
        assert device_numbers(["cuda:1", "cuda:0"]) == (1, 0)
        for name in ("gpu", "cuda:", "cuda:x", "CUDA", "cuda:1000", 3, "cuda:1,", [], ["cpu"], [1]):
            with pytest.raises(OptionError, match="device must be"):
                device_numbers(name)  # type: ignore[arg-type]
        with pytest.raises(OptionError, match="device must be"):
            bigsap.solve(np.eye(3), device="tpu")

    def test_auto_leaves_gated_costs_to_the_cpu(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(policy, "DEVICE_ROWS", 2)
        monkeypatch.setattr(placement, "has_device", lambda: True)
        gated = ClippedCosts(bigsap.points(X, Y), 0.5)
        assert place_costs(gated, "auto", None, Monitor()) is gated
        plain = bigsap.points(X, Y)
        assert place_costs(plain, "auto", None, Monitor()) is not plain

    def test_without_cupy_the_extra_is_named(self) -> None:
        try:
            import cupy  # noqa: F401
        except ImportError:
            with pytest.raises(OptionError, match=r"bigsap\[gpu13\]"):
                bigsap.solve(np.eye(3), device="cuda")
        else:
            pytest.skip("CuPy is installed")

    def test_streamed_costs_need_lists(self) -> None:
        source = StreamedToDevice(bigsap.sources.ArraySource(np.zeros((40, 50))), 1)
        assert device_method(source) == ("compressed", "the costs do not fit the device")
        with pytest.raises(DeviceMemoryError, match="16000 bytes") as caught:
            refuse_streaming(source)
        assert caught.value.nbytes == 16000
        out = np.ones((1, 50))
        source.read(np.array([3]), slice(0, 50), out)
        assert not out.any()
