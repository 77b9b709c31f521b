"""Settings of the operator: environment ``BIGSAP_*``, a TOML file, command line.

Precedence: command line over environment over file over the defaults here. Nested settings
are written ``BIGSAP_LIMITS__BODY_BYTES`` in the environment and ``[limits]`` in the file.
"""

from __future__ import annotations

import ipaddress
import os
import re
import tomllib
from pathlib import Path
from typing import Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from bigsap.system import usable_cores

MIB = 1 << 20
GIB = 1 << 30


class Limits(BaseModel):
    """Limits of one request or one key. Shown by ``GET /v1/capabilities``."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    body_bytes: int = Field(4 * MIB, ge=1024, description="largest JSON body")
    block_bytes: int = Field(64 * MIB, ge=1024, description="largest body of one row block")
    inline_numbers: int = Field(10_000, ge=0, description="numbers in one inline array")
    array_bytes: int = Field(64 * GIB, ge=1, description="largest uploaded array")
    stored_bytes: int = Field(256 * GIB, ge=1, description="all uploaded arrays of one key")
    array_days: float | None = Field(
        None, gt=0, description="days after which an uploaded array that no job has used is deleted"
    )
    job_days: float | None = Field(
        None, gt=0, description="days after its end when a job is deleted with its result"
    )
    arrays: int = Field(1000, ge=1, description="uploaded arrays of one key")
    active_jobs: int = Field(1000, ge=1, description="unfinished jobs of one key")
    running_jobs: int | None = Field(
        None, ge=1, description="jobs of one key that run at a time; the others wait; default: all"
    )
    requests_per_s: float = Field(100.0, gt=0, description="sustained requests of one key")
    burst: int = Field(200, ge=1, description="requests of one key at once")
    streams: int = Field(500, ge=1, description="open event streams, long polls and row blocks of one key")
    idle_s: float = Field(60.0, gt=0, description="longest silence within a body")
    rows: int = Field(4_000_000, ge=1, description="largest number of rows")
    columns: int = Field(4_000_000, ge=1, description="largest number of columns")
    pairs: int = Field(10**13, ge=1, description="largest number of pairs, rows times columns")
    memory_bytes: int | None = Field(None, ge=MIB, description="estimated memory of one job")
    time_limit_s: float | None = Field(None, gt=0, description="longest time limit of a job, and the default")
    threads: int | None = Field(None, ge=1, description="threads of one job; default: the cores")
    spread_workers: int | None = Field(
        None, ge=0, description="workers of one spread job; 0: none is spread; default: all"
    )
    zarr_chunk_bytes: int = Field(256 * MIB, ge=1024, description="largest decoded zarr chunk")
    depth: int = Field(16, ge=1, le=64, description="nesting of sum, scale, mask, forbid_above")
    wait_s: float = Field(60.0, ge=0, description="longest long poll and Prefer: wait; 0: none")
    check_s: float = Field(30.0, gt=0, description="longest costs:check")
    checks: int = Field(2, ge=1, description="costs:check at a time")
    page_size: int = Field(500, ge=1, description="most entries of one page")


# Argument of ``Settings`` that holds the values of a file.
_OF_A_FILE = "__file__"
_HOST = re.compile(r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?")
_SCHEDULER = re.compile(
    r"((tcp|tls|ucxx?|wss?)://)?([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.%]+\]):(?P<port>[0-9]{1,5})/?"
)
#: Schemes of object stores.
STORES = ("s3", "gs", "az")
#: Settings that a running server takes from its file and environment at SIGHUP.
RELOADED = (
    *("keys", "limits", "log_level", "attempts", "checkpoint_s", "webhook_hosts", "webhook_secret"),
    *("stores", "zarr_uris", "result_uris", "http_rows_hosts", "credentials", "plugins"),
)


class Settings(BaseSettings):
    """Everything that can be set.

    ``stores`` names folders that ``zarr`` and ``array`` costs may read. ``zarr_uris`` and
    ``result_uris`` are prefixes (``https://host/path/``) that addresses must begin with;
    ``http_rows_hosts`` are ``host`` or ``host:port``; ``credentials`` are headers that a spec asks
    for by name, never shown. ``plugins`` are names of entry points in the group ``bigsap.costs``.
    """

    model_config = SettingsConfigDict(
        env_prefix="BIGSAP_",
        env_nested_delimiter="__",
        # An empty variable counts as unset, as is usual in shells and compose files.
        env_ignore_empty=True,
        extra="forbid",
        frozen=True,
        allow_inf_nan=False,
    )

    host: str = Field("127.0.0.1", description="address to listen on")
    port: int = Field(8765, ge=0, le=65535, description="port to listen on; 0: any free one")
    root_path: str = Field("", description="prefix of all paths that a proxy takes away, as `/bigsap`")
    proxies: list[str] = Field(
        default_factory=list, description="proxies whose `X-Forwarded-For` and `-Proto` are believed"
    )
    data: Path = Field(Path("bigsap-data"), description="folder of jobs, results and uploads")
    scheduler: str | None = Field(None, description="address of a Dask scheduler; default: own")
    executor: Literal["dask", "inline"] = Field("dask", description="inline: threads, for tests")
    workers: int | None = Field(None, ge=1, description="worker processes; default: half the cores")
    devices: list[Literal["cpu", "cuda"]] = Field(
        ["cpu"], min_length=1, description="what the workers have, for jobs to ask for"
    )
    threads_per_job: int | None = Field(
        None, ge=1, description="threads of one job; default: cores over workers"
    )
    worker_memory_bytes: int | None = Field(
        None,
        ge=GIB,
        description="memory of one of our own worker processes; default: what the machine or container has",
    )
    attempts: int = Field(5, ge=1, description="attempts of a job whose worker gets lost")
    checkpoint_s: float = Field(60.0, gt=0, description="seconds between checkpoints")
    heartbeat_s: float = Field(0.8, gt=0, le=1.0, description="seconds between progress reports")
    drain_s: float = Field(30.0, ge=0, description="seconds to stop gracefully")
    keys: Path | None = Field(None, description="TOML file of hashed keys")
    stores: dict[str, Path] = Field(
        default_factory=dict, description="named folders whose zarr stores and .npy files jobs may read"
    )
    zarr_uris: list[str] = Field(
        default_factory=list, description="allowed prefixes of addresses of zarr arrays and .npy files"
    )
    result_uris: list[str] = Field(
        default_factory=list, description="allowed prefixes of addresses that results are written to"
    )
    http_rows_hosts: list[str] = Field(default_factory=list, description="allowed providers")
    credentials: dict[str, dict[str, str]] = Field(
        default_factory=dict, description="headers for providers, by name", repr=False
    )
    webhook_hosts: list[str] = Field(default_factory=list, description="hosts that may receive webhooks")
    webhook_secret: str | None = Field(
        None, min_length=16, description="signs webhooks; without it there are none", repr=False
    )
    plugins: list[str] = Field(
        default_factory=list, description="enabled cost plugins, entry points `bigsap.costs`"
    )
    limits: Limits = Field(default_factory=Limits, description="what requests may take")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="of logs: debug, info, warning or error"
    )
    page: bool = Field(True, description="serve the web page at /")

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[Any, ...]:
        """Return the sources: arguments, environment, values of a file; no ``.env`` of the current folder."""
        assert isinstance(init_settings, InitSettingsSource)
        values = init_settings.init_kwargs.pop(_OF_A_FILE, {})
        return init_settings, env_settings, lambda: values

    @field_validator("root_path")
    @classmethod
    def _plain_path(cls, path: str) -> str:
        found = path.rstrip("/")
        if not re.fullmatch(r"(/(?!\.{1,2}(/|$))[A-Za-z0-9._~-]+)*", found):
            raise ValueError(
                f"{path!r} is no path such as /bigsap: names of letters, digits, '.', '_', '~' and"
                " '-', each after a slash"
            )
        return found

    @field_validator("scheduler")
    @classmethod
    def _address(cls, address: str | None) -> str | None:
        found = None if address is None else _SCHEDULER.fullmatch(address)
        if address is not None and (found is None or not 0 < int(found["port"]) < 65536):
            raise ValueError(f"{address!r} is no address of a scheduler, such as tcp://host:8786")
        return address

    @field_validator("data", "keys", "stores", mode="before")
    @classmethod
    def _no_empty_path(cls, given: Any) -> Any:
        # It would name the current folder.
        if given == "" or (isinstance(given, dict) and "" in given.values()):
            raise ValueError("a path is empty")
        return given

    @field_validator("http_rows_hosts", "webhook_hosts")
    @classmethod
    def _hosts(cls, hosts: list[str]) -> list[str]:
        for host in hosts:
            if not _HOST.fullmatch(host):
                raise ValueError(f"{host!r}: must be a host, or host:port, and nothing else")
        return hosts

    @field_validator("stores")
    @classmethod
    def _names(cls, stores: dict[str, Path]) -> dict[str, Path]:
        for name in stores:
            if not name.replace("-", "").replace("_", "").isalnum():
                raise ValueError(f"store name {name!r} may have letters, digits, - and _ only")
        return {name: Path(path).absolute() for name, path in stores.items()}

    @field_validator("zarr_uris", "result_uris")
    @classmethod
    def _prefixes(cls, prefixes: list[str], info: ValidationInfo) -> list[str]:
        schemes = STORES if info.field_name == "result_uris" else ("http", "https", *STORES)
        for prefix in prefixes:
            scheme, separator, rest = prefix.partition("://")
            if scheme not in schemes or not separator:
                raise ValueError(f"{prefix!r}: must begin with one of {', '.join(schemes)}, and ://")
            if "/" not in rest or "::" in prefix or "@" in rest:
                raise ValueError(f"{prefix!r}: must be scheme://host/ and perhaps a path")
        return prefixes

    @model_validator(mode="after")
    def _keys_where_needed(self) -> Settings:
        if self.keys is None and not is_loopback(self.host):
            raise ValueError(
                f"listening on {self.host} without keys would open the service to everybody: "
                "name a file of keys (BIGSAP_KEYS), or listen on 127.0.0.1"
            )
        return self

    @property
    def has_cluster(self) -> bool:
        """Whether there are, as far as is known, several workers for a spread job."""
        return self.executor != "inline" and (self.scheduler is not None or self.default_workers > 1)

    def check_stores(self) -> None:
        """Raise ValueError for a store whose folder does not exist."""
        for name, path in self.stores.items():
            if not path.is_dir():
                raise ValueError(f"stores.{name}: there is no folder {path}")

    def reloaded(self, other: Settings) -> Settings:
        """Return these settings with those of ``other`` that a running server may take."""
        return self.model_copy(update={name: getattr(other, name) for name in RELOADED})

    @property
    def default_workers(self) -> int:
        """Worker processes by default: half the cores, at least one."""
        return self.workers or max(1, usable_cores() // 2)

    @property
    def most_threads(self) -> int | None:
        """Most threads that a job may request; None if the workers' machine is unknown."""
        return self.limits.threads or (usable_cores() if self.scheduler is None else None)

    @property
    def default_threads(self) -> int:
        """Threads of one job by default: the cores divided by the workers."""
        share = max(1, usable_cores() // self.default_workers)
        return self.threads_per_job or min(share, self.most_threads or 1024)


def load(file: str | os.PathLike[str] | None = None, **given: Any) -> Settings:
    """Return settings from a TOML file, the environment and arguments (None: not given).

    Raises ValueError naming the setting, without its value, which may be a secret; and OSError for the file.
    """
    values: dict[str, Any] = {}
    if file is not None:
        values = read_toml(file, "settings")
        unknown = sorted(set(values) - set(Settings.model_fields))
        if unknown:
            raise ValueError(f"{os.fspath(file)}: unknown settings {', '.join(unknown)}")
    arguments: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    try:
        return Settings(**arguments | {_OF_A_FILE: values})
    except ValidationError as error:
        raise ValueError(complaints(error)) from None
    except SettingsError as error:
        raise ValueError(f"{error}: lists and tables are JSON there") from None


def read_toml(file: str | os.PathLike[str], what: str) -> dict[str, Any]:
    """Return what a file says. Raises ValueError naming the file, or OSError naming ``what`` it is, too."""
    try:
        return tomllib.loads(Path(file).read_text(encoding="utf-8"))
    except OSError as error:
        raise OSError(f"{what}: cannot read {os.fspath(file)}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{os.fspath(file)}: not TOML: {error}") from error


def complaints(error: ValidationError) -> str:
    """Return what is wrong, each error as its place and reason, without the values."""
    texts = []
    for found in error.errors(include_url=False, include_input=False, include_context=False):
        place, reason = ".".join(map(str, found["loc"])), found["msg"].removeprefix("Value error, ")
        texts.append(f"{place}: {reason}" if place else reason)
    return "; ".join(texts)


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach ``host``."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
