"""Files as the browser reads them: npy of every kind, CSV of many hands."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from page_service import Service

READ = """async ([url, bytes, name]) => {
  const { readFile, asLists } = await import(url + "/js/files.js");
  try {
    const table = await readFile(new File([new Uint8Array(bytes)], name));
    const [n] = table.shape;
    const parts = [await table.read(0, Math.ceil(n / 2)), await table.read(Math.ceil(n / 2), n)];
    return { shape: table.shape, dtype: table.dtype, vector: table.vector,
             bytes: parts.flatMap((part) => [...part]), lists: await asLists(table) };
  } catch (error) {
    return { error: error.message, kind: error.constructor.name };
  }
}"""


@pytest.fixture
def read(opened: Callable[..., Any], service: Service, tmp_path: Path) -> Callable[..., Any]:
    page = opened(service.url)

    def call(content: bytes | np.ndarray[Any, Any], name: str = "x.npy") -> Any:
        if isinstance(content, np.ndarray):
            np.save(tmp_path / "file.npy", content)
            content = (tmp_path / "file.npy").read_bytes()
        return page.evaluate(READ, [service.url, list(content), name])

    return call


def test_npy_of_every_kind_arrives_bit_by_bit(read: Callable[..., Any]) -> None:
    rng = np.random.default_rng(5)
    base = rng.uniform(-100, 100, (7, 3))
    for code in ("f8", "f4", "f2", "i8", "i4", "i2", "i1", "u8", "u4", "u2", "u1"):
        values = np.abs(base).astype(code) if code[0] == "u" else base.astype(code)
        for given in (values, np.asfortranarray(values), values.astype(">" + code), values[:, 0]):
            found = read(given)
            assert bytes(found["bytes"]) == np.ascontiguousarray(given, "<" + code).tobytes()
            assert found["shape"] == [7, given.shape[1] if given.ndim == 2 else 1]
            assert np.dtype(found["dtype"]) == np.dtype(code)
            assert found["vector"] == (given.ndim == 1)


def test_integers_beyond_json_are_left_to_the_upload(read: Callable[..., Any]) -> None:
    assert read(np.array([[2**53 + 1]]))["lists"] is None
    assert read(np.array([[2**53 - 1, -3]]))["lists"] == [[2**53 - 1, -3]]
    assert read(np.array([[np.inf, -np.inf, 1.5]]))["lists"] == [["Infinity", "-Infinity", 1.5]]
    assert read(np.array([[np.nan]]))["lists"] is None


def test_unusable_npy_is_explained(read: Callable[..., Any], tmp_path: Path) -> None:
    for content, says in [
        (np.array([["a"]]), "numbers are needed"),
        (np.zeros((2, 2, 2)), "3 dimensions"),
        (np.zeros((2, 2), complex), "numbers are needed"),
        (np.zeros(2, [("a", "f8")]), "numbers are needed"),
        (b"PK\x03\x04 and so on", "archive"),
        (b"", "empty"),
    ]:
        found = read(content)
        assert found["kind"] == "FileProblem"
        assert says in found["error"]
    np.save(tmp_path / "whole.npy", np.zeros((10, 2)))
    whole = (tmp_path / "whole.npy").read_bytes()
    assert "cut off" in read(whole[:-1])["error"]
    assert "header" in read(whole[:10])["error"]


def test_csv_of_many_hands(read: Callable[..., Any]) -> None:
    for text in [
        "1,2\n3,4.5\n",
        "1;2\r\n3;4.5\r\n",
        "1\t2\n3\t4.5",
        "  1   2\n 3 4.5  \n",
        "\ufeff1, 2\n3, 4.5\n\n",
        "x,y\n1,2\n3,4.5\n",
        "# made by hand\n1,2,\n3,4.5,\n",
        '"1","2"\n"3","4.5"\n',
    ]:
        found = read(text.encode(), "x.csv")
        assert found.get("lists") == [[1, 2], [3, 4.5]], (text, found)
        assert bytes(found["bytes"]) == np.array([[1, 2], [3, 4.5]]).tobytes()
    assert read(b"1\n2\n3\n", "x.csv")["shape"] == [3, 1]
    assert read(b"inf,1\n-Infinity,2\n", "x.csv")["lists"] == [["Infinity", 1], ["-Infinity", 2]]


def test_csv_errors_name_the_place(read: Callable[..., Any]) -> None:
    for text, says in [
        ("1,2\n3,abc\n", "line 2, column 2: “abc” is not a number"),
        ("1,2\n3\n", "line 2: 1 numbers, but the lines above have 2"),
        ("1,2\n,4\n", "line 2, column 1: the cell is empty"),
        ("1,nan\n", "line 1, column 2: “nan” is not a number"),
        ("x,y\n", "no numbers"),
    ]:
        assert says in read(text.encode(), "x.csv")["error"]
