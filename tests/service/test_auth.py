"""Keys: scopes, owners, quotas, rates."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bigsap_server import auth
from bigsap_server.auth import Bucket, Keys, hashed, new_key
from bigsap_server.settings import Limits, Settings, load
from checks import NOW, SQUARE, problem, solved, upload

SCOPES = {"alice": "read submit", "bob": "read submit", "eve": "read", "sue": "submit", "root": "admin"}
KEYS = {name: new_key() for name in SCOPES}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "keys.toml"
    lines = []
    for name, key in KEYS.items():
        scopes = ", ".join(f'"{scope}"' for scope in SCOPES[name].split())
        lines += [f"[{name}]", f'hash = "{hashed(key)}"', f"scopes = [{scopes}]"]
        if name == "bob":
            lines += ["active_jobs = 0", "stored_bytes = 100"]
        if name == "eve":
            lines += ["requests_per_s = 0.5", "burst = 3"]
    path.write_text("\n".join(lines))
    return path


class As:
    """A client with somebody's key."""

    def __init__(self, client: Any, key: str | None) -> None:
        self._client = client
        self._headers = {} if key is None else {"Authorization": f"Bearer {key}"}

    def __getattr__(self, method: str) -> Any:
        def call(*args: Any, headers: dict[str, str] | None = None, **named: Any) -> Any:
            return getattr(self._client, method)(*args, headers=self._headers | (headers or {}), **named)

        return call


@pytest.fixture
def keyed(make_app: Callable[..., Any], file: Path) -> dict[str, As]:
    client = make_app(keys=file)
    return {name: As(client, key) for name, key in KEYS.items()} | {"nobody": As(client, None)}


def test_nothing_without_a_key(keyed: dict[str, As]) -> None:
    nobody = keyed["nobody"]
    for path in ("/v1/jobs", "/v1/capabilities", "/v1/kernels", "/metrics", "/v1/arrays"):
        answer = nobody.get(path)
        problem(answer, 401, "unauthorized")
        assert answer.headers["WWW-Authenticate"].startswith("Bearer")
    problem(nobody.post("/v1/jobs", json=SQUARE), 401, "unauthorized")
    assert nobody.get("/healthz").status_code == 200
    assert nobody.get("/openapi.json").status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": "Bearer wrong"},
        {"Authorization": "Bearer "},
        {"Authorization": ""},
        {"Authorization": f"Basic {KEYS['alice']}"},
        {"X-API-Key": "wrong"},
        {"X-API-Key": ""},
        {"Authorization": "Bearer wrong", "X-API-Key": KEYS["alice"]},
        {"Authorization": f"Bearer {hashed(KEYS['alice'])}"},
    ],
)
def test_wrong_keys(keyed: dict[str, As], headers: dict[str, str]) -> None:
    problem(keyed["nobody"].get("/v1/jobs", headers=headers), 401, "unauthorized")


def test_a_key_beside_the_login_of_a_proxy(keyed: dict[str, As]) -> None:
    headers = {"Authorization": "Basic bG9naW46b2YgaXRz", "X-API-Key": KEYS["alice"]}
    assert keyed["nobody"].get("/v1/jobs", headers=headers).status_code == 200


def test_scopes(keyed: dict[str, As]) -> None:
    eve = keyed["eve"]
    assert eve.get("/v1/jobs").status_code == 200
    problem(eve.post("/v1/jobs", json=SQUARE), 403, "forbidden")


def test_a_key_that_only_submits_sees_no_result(keyed: dict[str, As]) -> None:
    sue, key = keyed["sue"], {"Idempotency-Key": "once"}
    made = sue.post("/v1/jobs", json=SQUARE, headers=NOW | key)
    again = sue.post("/v1/jobs", json=SQUARE, headers=NOW | key)
    job = made.json()
    assert (made.status_code, job["state"]) == (200, "succeeded")
    for seen in (job, again.json()):
        assert not {"result", "outcome"} & {name for name, value in seen.items() if value is not None}
        assert seen["progress"] is None
    problem(sue.get(job["links"]["result"]), 403, "forbidden")
    assert keyed["alice"].post("/v1/jobs", json=SQUARE, headers=NOW).json()["result"]["objective"] == 5


def test_owners_see_their_own(keyed: dict[str, As]) -> None:
    alice, eve, root = keyed["alice"], keyed["eve"], keyed["root"]
    job = solved(alice, SQUARE)
    array = upload(alice, np.eye(2))
    link = job["links"]["self"]
    problem(eve.get(link), 404, "not-found")
    problem(keyed["bob"].get(job["links"]["result"]), 404, "not-found")
    problem(keyed["bob"].get(job["links"]["events"]), 404, "not-found")
    problem(keyed["bob"].delete(link), 404, "not-found")
    problem(keyed["bob"].post(link + "/cancel"), 404, "not-found")
    problem(keyed["bob"].get(f"/v1/arrays/{array}"), 404, "not-found")
    problem(keyed["bob"].put(f"/v1/arrays/{array}/rows/0", content=b"x"), 404, "not-found")
    problem(keyed["bob"].post(f"/v1/arrays/{array}/seal"), 404, "not-found")
    assert keyed["bob"].get("/v1/jobs").json()["jobs"] == []
    assert keyed["bob"].get("/v1/arrays").json()["arrays"] == []
    # Nor can another's array be used, or even told from one that does not exist.
    use = {"cost": {"type": "array", "values": {"array": array}}}
    found = problem(keyed["bob"].post("/v1/jobs", json=use), 422, "invalid-spec", "/cost/values")
    none = {"cost": {"type": "array", "values": {"array": "arr_0"}}}
    other = problem(keyed["bob"].post("/v1/jobs", json=none), 422, "invalid-spec")
    assert found["detail"].replace(array, "arr_0") == other["detail"]
    warm = SQUARE | {"warm_start": {"job": job["id"]}}
    problem(keyed["bob"].post("/v1/jobs", json=warm), 422, "invalid-spec", "/warm_start/job")
    assert root.get(link).status_code == 200
    assert len(root.get("/v1/jobs").json()["jobs"]) == 1
    assert root.delete(link).status_code == 204


@pytest.mark.parametrize(
    ("more", "pointer"),
    [
        ({"assignment": {"col4row": "ARRAY"}}, "/assignment/col4row"),
        ({"assignment": {"col4row": [0, 1], "v": "ARRAY"}}, "/assignment/v"),
        ({"assignment": {"col4row": [0, 1], "v": [0, 0], "v_low": "ARRAY"}}, "/assignment/v_low"),
        ({"warm_start": {"v": "ARRAY"}}, "/warm_start/v"),
        ({"warm_start": {"v": [0, 0], "col4row": "ARRAY"}}, "/warm_start/col4row"),
        ({"options": {"unassigned_cost": "ARRAY"}}, "/options/unassigned_cost"),
        ({"options": {"capacity": "ARRAY"}}, "/options/capacity"),
        ({"options": {"demand": "ARRAY"}}, "/options/demand"),
    ],
)
def test_arrays_of_others_are_not_there_whatever_the_shape(
    make_app: Callable[..., Any], file: Path, more: dict[str, Any], pointer: str
) -> None:
    client = make_app(keys=file, zarr_uris=["https://data.example/"])
    alice, bob, root = (As(client, KEYS[name]) for name in ("alice", "bob", "root"))
    hers = {"array": upload(alice, np.array([1, 0]))}
    body = {"cost": {"type": "npy", "uri": "https://data.example/costs.npy"}} | more
    text = json.dumps(body).replace('"ARRAY"', json.dumps(hers))
    dry = "/v1/jobs?dry_run=true"
    for path in ("/v1/jobs", dry):
        problem(bob.post(path, json=json.loads(text)), 422, "invalid-spec", pointer)
    for who in (alice, root):
        assert who.post(dry, json=json.loads(text)).status_code == 200


def test_admin_may_start_from_anybodys_job(keyed: dict[str, As]) -> None:
    first = solved(keyed["alice"], SQUARE)
    job = solved(keyed["root"], SQUARE | {"warm_start": {"job": first["id"]}})
    assert job["state"] == "succeeded", job["problem"]
    assert job["result"]["objective"] == 5


@pytest.mark.parametrize("streams", [0, 1])
def test_an_accepted_job_is_said_to_be(make_app: Callable[..., Any], tmp_path: Path, streams: int) -> None:
    """Where nothing more may stay open, ``Prefer: wait`` goes unheeded: 202, with Location."""
    key = new_key()
    file = tmp_path / "keys.toml"
    file.write_text(f'[al]\nhash = "{hashed(key)}"\nscopes = ["read", "submit"]\nstreams = {streams}\n')
    client = make_app(keys=file)
    alice = As(client, key)
    caller = client.app._keys.caller(None, key)
    headers = {"Prefer": "wait=30", "Idempotency-Key": "once"}
    caller.streams = streams  # so many are open
    first = alice.post("/v1/jobs", json=SQUARE, headers=headers)
    assert first.status_code == 202
    assert first.headers["Location"] == first.json()["links"]["self"]
    assert "Preference-Applied" not in first.headers
    caller.streams = 0
    again = alice.post("/v1/jobs", json=SQUARE, headers=headers)
    assert (again.status_code, again.content) == (202, first.content)
    assert again.headers["Idempotency-Replayed"] == "true"
    assert len(alice.get("/v1/jobs").json()["jobs"]) == 1


def test_quotas_of_a_key(keyed: dict[str, As]) -> None:
    answer = keyed["bob"].post("/v1/jobs", json=SQUARE)
    problem(answer, 429, "quota-exceeded")
    array = {"dtype": "f8", "shape": [100]}
    problem(keyed["bob"].post("/v1/arrays", json=array), 429, "quota-exceeded")
    found = keyed["bob"].get("/v1/capabilities").json()["caller"]
    assert (found["name"], found["active_jobs"], found["stored_bytes"]) == ("bob", 0, 100)


def test_rates(keyed: dict[str, As]) -> None:
    answers = [keyed["eve"].get("/v1/jobs") for _ in range(5)]
    assert [answer.status_code for answer in answers[:3]] == [200] * 3
    problem(answers[4], 429, "too-many-requests")
    assert 1 <= int(answers[4].headers["Retry-After"]) <= 3
    # Others are not slowed down.
    assert keyed["alice"].get("/v1/jobs").status_code == 200


def test_strangers_are_slowed_down(make_app: Callable[..., Any], file: Path) -> None:
    client = make_app(keys=file, limits={"requests_per_s": 1, "burst": 5})
    codes = [As(client, f"guess{k}").get("/v1/jobs").status_code for k in range(20)]
    assert codes[:5] == [401] * 5
    assert codes[-1] == 429


def test_no_body_is_read_without_a_key(keyed: dict[str, As]) -> None:
    sent = []

    def body() -> Any:
        for _ in range(100):
            sent.append(1)
            yield b" " * 1000

    problem(keyed["nobody"].post("/v1/jobs", content=body()), 401, "unauthorized")


def test_bucket(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(auth.time, "monotonic", lambda: now[0])
    bucket = Bucket(2.0, 3)
    assert [bucket.take() for _ in range(3)] == [0, 0, 0]
    assert bucket.take() == pytest.approx(0.5)
    now[0] += 0.5
    assert bucket.take() == 0
    now[0] += 1000
    assert [bucket.take() > 0 for _ in range(4)] == [False, False, False, True]


def test_keys_files_that_are_wrong(tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    good = f'hash = "{hashed("x")}"\nscopes = ["read"]\n'
    for text in (
        "",
        "[a",
        "a = " + "[" * 5000,
        "[a]\n",
        f"[a]\n{good}more = 1\n",
        "[a]\nhash = 'x'\nscopes = ['read']\n",
        f"[a]\n{good}[b]\n{good}",
        '[a]\nhash = "sha256:00"\nscopes = []\n',
        "[a]\nkey = 'secret'\n",
    ):
        file.write_text(text)
        with pytest.raises(ValueError, match=r"keys\.toml") as refused:
            Keys.read(file, Limits())
        assert "pydantic" not in str(refused.value)
    with pytest.raises(OSError, match="missing"):
        Keys.read(tmp_path / "missing.toml", Limits())


@pytest.mark.parametrize("name", ["a.b", "bob@x.org", "al ice", 'q"x', "b\\s", "zoë", "7", "🙂"])
def test_any_name_makes_a_table_that_can_be_read(name: str, tmp_path: Path) -> None:
    key, entry = auth.new_entry(name)
    file = tmp_path / "keys.toml"
    file.write_text(entry, encoding="utf-8")
    caller = Keys.read(file, Limits()).caller(None, key)
    assert (caller.owner, caller.scopes) == (name, {"read", "submit"})


@pytest.mark.parametrize("given", [["al", ["write"]], ["al", ["read", ""]], [""], ["two\nlines"]])
def test_keys_that_cannot_be_made(given: list[Any]) -> None:
    with pytest.raises(ValueError, match=r"unknown scope|is not a valid name"):
        auth.new_entry(*given)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.2", "example.org"])
def test_others_are_not_served_without_keys(host: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="without keys"):
        Settings(host=host)
    assert Settings(host=host, keys=tmp_path / "keys.toml").host == host


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.8.8.8"])
def test_loopback_needs_no_keys(host: str) -> None:
    assert Settings(host=host).keys is None


def test_precedence_of_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "config.toml"
    file.write_text("port = 1\nworkers = 1\nattempts = 1\n[limits]\nrows = 1\ncolumns = 1\n")
    monkeypatch.setenv("BIGSAP_PORT", "2")
    monkeypatch.setenv("BIGSAP_WORKERS", "2")
    monkeypatch.setenv("BIGSAP_LIMITS__ROWS", "2")
    monkeypatch.setenv("BIGSAP_KEY", "the client's, not ours")
    found = load(file, port=3, workers=None)
    assert (found.port, found.workers, found.attempts) == (3, 2, 1)
    assert (found.limits.rows, found.limits.columns) == (2, 1)
    assert found.limits.pairs == Limits().pairs


@pytest.mark.parametrize(
    "text",
    [
        "port = 'x'",
        "[limits]\nodd = 1",
        "x",
        "[stores]\n'a/b' = '/x'",
        "zarr_uris = ['https://host']",
        "host = '0.0.0.0'",
        "drain_s = inf",
        "[limits]\ntime_limit_s = inf",
        "devices = []",
        "data = ''",
        "keys = ''",
        "[stores]\nlab = ''",
        "webhook_hosts = ['https://host']",
        "http_rows_hosts = ['host/path']",
        "scheduler = ''",
        "scheduler = 'host'",
        "scheduler = 'tcp://host:87x'",
        "scheduler = 'tcp://host:0'",
        "scheduler = 'tcp://host:65536'",
        "scheduler = 'http://host:8786'",
    ],
)
def test_wrong_settings(tmp_path: Path, text: str) -> None:
    file = tmp_path / "config.toml"
    file.write_text(text)
    with pytest.raises(ValueError):  # noqa: PT011  each says something else
        load(file)


@pytest.mark.parametrize("address", ["tcp://scheduler:8786", "tls://[::1]:8786", "127.0.0.1:8786"])
def test_addresses_of_schedulers(address: str) -> None:
    assert load(scheduler=address).scheduler == address


@pytest.mark.parametrize(
    ("text", "name"),
    [("webhook_secret = 'hush'", "webhook_secret"), ("[credentials]\nrows = 'hush'", "credentials.rows")],
)
def test_a_wrong_secret_is_named_and_not_shown(tmp_path: Path, text: str, name: str) -> None:
    file = tmp_path / "config.toml"
    file.write_text(text)
    with pytest.raises(ValueError, match=f"^{name}: ") as caught:
        load(file)
    assert "hush" not in str(caught.value)


def test_a_key_in_place_of_its_hash_is_not_shown(tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    file.write_text("[ann]\nhash = 'hush'\nscopes = ['read']\n")
    with pytest.raises(ValueError, match=r"keys\.toml: ann\.hash: ") as caught:
        Keys.read(file, Limits())
    assert "hush" not in str(caught.value)


def test_empty_variables_count_as_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PORT", "DATA", "KEYS", "STORES", "LIMITS__ROWS"):
        monkeypatch.setenv(f"BIGSAP_{name}", "")
    assert load() == Settings()
    monkeypatch.setenv("BIGSAP_STORES", "lab=/lab")
    with pytest.raises(ValueError, match=r"stores.*JSON"):
        load()


def test_credentials_are_not_shown(make_app: Callable[..., Any]) -> None:
    secret = {"rows": {"Authorization": "Bearer hush"}}
    api = make_app(credentials=secret, http_rows_hosts=["rows.example"])
    for path in ("/v1/capabilities", "/v1/kernels", "/metrics", "/openapi.json"):
        assert "hush" not in api.get(path).text
    assert "hush" not in repr(Settings(credentials=secret))
    cost = {"type": "http_rows", "url": "http://rows.example/", "dtype": "f8"}
    body = {"shape": [2, 2], "cost": cost | {"credentials": "other"}}
    problem(api.post("/v1/jobs", json=body), 422, "invalid-spec", "/cost/credentials")
    body = {"shape": [2, 2], "cost": cost | {"credentials": "rows"}}
    answer = api.post("/v1/jobs?dry_run=true", json=body)
    assert answer.status_code == 200
    assert "hush" not in answer.text
