"""Decorator of all kernels.

numba compiles each function separately: optimised, turned into machine code, wrapped for Python.
Then it links the function into its caller and optimises again, at each level of calls. Here,
functions called by kernels are only lowered. The code is optimised once, in the kernel that Python
calls, with all that it links.
"""

from __future__ import annotations

import gc
import importlib
import operator
import pickle
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numba
from numba.core import ccallback as numba_ccallback
from numba.core import codegen as numba_codegen
from numba.core import compiler as numba_compiler
from numba.core import config as numba_config
from numba.core import dispatcher as numba_dispatcher
from numba.core import registry as numba_registry
from numba.core import typed_passes as numba_typed_passes
from numba.core import untyped_passes as numba_untyped_passes

from bigsap.compile.kernel_cache import KernelCache
from bigsap.errors import OptionError

ccallback: Any = numba_ccallback
codegen: Any = numba_codegen
compiler: Any = numba_compiler
config: Any = numba_config
dispatcher: Any = numba_dispatcher
registry: Any = numba_registry
typed_passes: Any = numba_typed_passes
untyped_passes: Any = numba_untyped_passes
types: Any = numba.types


class _PartLibrary(codegen.JITCodeLibrary):  # type: ignore[misc]
    """Library of a function that kernels call: lowered and simplified only."""

    _linking_libraries: list[Any]

    def finalize(self) -> None:
        self._raise_if_finalized()
        self._finalize_dynamic_globals()
        self._finalized = True


class _KernelLibrary(codegen.JITCodeLibrary):  # type: ignore[misc]
    """Library of a kernel: links its parts, and theirs, each once."""

    _linking_libraries: list[Any]

    def finalize(self) -> None:
        self._linking_libraries = _linked(self._linking_libraries)
        super().finalize()


def _linked(libraries: Iterable[Any]) -> list[Any]:
    """Return all libraries linked directly or through parts, callers first.

    LLVM takes from a library only functions called by code linked before.
    """
    found: list[Any] = []
    seen: set[int] = set()

    def visit(library: Any) -> None:
        if id(library) in seen:
            return
        seen.add(id(library))
        if isinstance(library, _PartLibrary):
            for callee in library._linking_libraries:
                visit(callee)
        found.append(library)

    for library in libraries:
        visit(library)
    return found[::-1]


def _compiler(library_class: Any) -> Any:
    class Compiler(compiler.Compiler):  # type: ignore[misc]
        def __init__(self, typingctx: Any, targetctx: Any, library: Any, args: Any, *rest: Any) -> None:
            if library is None:
                library = library_class(targetctx.codegen(), "bigsap")
                library.enable_object_caching()
            super().__init__(typingctx, targetctx, library, args, *rest)

        def define_pipelines(self) -> list[Any]:
            manager = compiler.DefaultPassBuilder.define_nopython_pipeline(self.state)
            manager.passes = [step for step in manager.passes if step[0] not in _UNUSED]
            manager.finalize()
            return [manager]

    return Compiler


#: Passes for features that no kernel uses: inner functions and comprehensions, arithmetic on
#: whole arrays, inlined overloads, ``with``. A tenth of the time of a compilation.
_UNUSED = frozenset(
    (
        untyped_passes.InlineClosureLikes,
        typed_passes.NopythonRewrites,
        typed_passes.InlineOverloads,
        untyped_passes.WithLifting,
    )
)


_PartCompiler = _compiler(_PartLibrary)
_KernelCompiler = _compiler(_KernelLibrary)


class _Typing(type(registry.cpu_target.typing_context)):  # type: ignore[misc]
    """numba's typing context, with cached results of operators and functions of numbers.

    numba searches dozens of templates again for each ``+`` of a function, several times.
    Everything else belongs to the original context: the two share their state.
    """

    def __init__(self, context: Any) -> None:
        self.__dict__ = context.__dict__

    def resolve_function_type(self, func: Any, args: Any, kws: Any) -> Any:
        context = registry.cpu_target.typing_context
        known = not kws and (isinstance(func, types.Function) or func in _OPERATORS)
        if not known or not all(isinstance(kind, _PLAIN) for kind in args):
            return context.resolve_function_type(func, args, kws)
        key = func, tuple(args)
        found = _resolved.get(key)
        if found is None:
            found = context.resolve_function_type(func, args, kws)
            if found is not None:
                _resolved[key] = found
        return found


_OPERATORS = frozenset(value for value in vars(operator).values() if callable(value))
_PLAIN = (types.Number, types.Boolean, types.IntegerLiteral, types.Array, types.BaseTuple)
_resolved: dict[Any, Any] = {}


class _Compiler(dispatcher._FunctionCompiler):  # type: ignore[misc]
    """Compiler of kernels; does not produce a C function."""

    part = False

    def __init__(self, function: Any, options: dict[str, Any], pipeline: Any) -> None:
        target = registry.cpu_target
        described = SimpleNamespace(
            options=target.options,
            typing_context=_Typing(target.typing_context),
            target_context=target.target_context,
        )
        super().__init__(function, described, options, {}, pipeline)

    def _customize_flags(self, flags: Any) -> Any:
        flags.no_cfunc_wrapper = True
        flags.no_cpython_wrapper = self.part
        flags.no_compile = self.part
        return flags


class _CompilerOfParts(_Compiler):
    part = True


class _Part(registry.CPUDispatcher):  # type: ignore[misc]
    """A function in the form in which kernels call it."""

    def __init__(self, function: Any, options: dict[str, Any]) -> None:
        super().__init__(function, {}, options, _PartCompiler)
        self._compiler = _CompilerOfParts(function, options, _PartCompiler)

    def add_overload(self, result: Any) -> None:
        # numba distinguishes functions by their entry point for Python, and a part has none.
        entry = _Entry()
        result = result._replace(entry_point=entry)
        self.overloads[tuple(result.signature.args)] = result
        self.targetctx.insert_user_function(entry, result.fndesc, [result.library])


class _Entry:
    """Stand-in for the entry address, which a part does not have."""


def _wide(kind: Any) -> Any:
    """Widen integer constants and narrower ids to int64, so that one version of a part serves all."""
    if isinstance(kind, types.IntegerLiteral) or kind == types.int32:
        return types.int64
    return kind


_collecting = threading.Lock()
_n_compiling = 0
_usual: tuple[int, int, int] = gc.get_threshold()


@contextmanager
def _rarely_collected() -> Iterator[None]:
    """Run the garbage collector less often within the context.

    The compiler creates millions of long-lived objects; traversing them repeatedly takes a tenth
    of its time.
    """
    global _n_compiling, _usual
    with _collecting:
        if not _n_compiling:
            _usual = gc.get_threshold()
            # 0 stays 0, if the process has disabled collection.
            gc.set_threshold(_usual[0] and max(_usual[0], _NEW_OBJECTS), *_usual[1:])
        _n_compiling += 1
    try:
        yield
    finally:
        with _collecting:
            _n_compiling -= 1
            if not _n_compiling:
                gc.set_threshold(*_usual)


#: Allocations between two collections while kernels are compiled.
_NEW_OBJECTS = 100_000


class Kernel(registry.CPUDispatcher):  # type: ignore[misc]
    """A function for Python to call; other kernels call its part."""

    def __init__(
        self, function: Any, locals: Any = None, targetoptions: Any = None, pipeline_class: Any = None
    ) -> None:
        options = dict(targetoptions or {})
        super().__init__(function, locals or {}, options, _KernelCompiler)
        self._compiler = _Compiler(function, options, _KernelCompiler)
        self._cache = KernelCache(function)
        self._part = _Part(function, options)

    def compile(self, sig: Any) -> Any:
        with _rarely_collected():
            return super().compile(sig)

    def get_call_template(self, args: Any, kws: Any) -> Any:
        wide = {name: _wide(kind) for name, kind in kws.items()}
        return self._part.get_call_template([_wide(kind) for kind in args], wide)

    def get_overload(self, sig: Any) -> Any:
        return self._part.get_overload(sig)

    def get_compile_result(self, sig: Any) -> Any:
        return self._part.get_compile_result(sig)


def kernel(function: Any = None, *, nrt: bool = False, **options: Any) -> Any:
    """Compile a kernel like ``numba.njit``: without the interpreter's lock, cached on disk by content.

    nrt: whether it creates arrays; otherwise numba's reference counts would cost time. options:
    others of ``numba.njit``.
    """
    if function is None:
        return lambda function: kernel(function, nrt=nrt, **options)
    if config.DISABLE_JIT:
        raise OptionError(
            "BigSAP solves by compiled code, and NUMBA_DISABLE_JIT says that nothing is compiled; unset it"
        )
    chosen = {"nopython": True, "nogil": True, "_nrt": nrt, **options}
    return Kernel(function, targetoptions=chosen)


def callback(signature: Any, function: Any) -> Any:
    """Compile a function that kernels call by address, like ``numba.cfunc``; cached like kernels."""
    made = ccallback.CFunc(
        function, numba.core.sigutils.normalize_signature(signature), {}, {}, _KernelCompiler
    )
    made._cache = KernelCache(function)
    made.compile()
    return made


def compile_record(record: tuple[str, str, bytes]) -> None:
    """Compile a kernel recorded in ``kernel_cache.records`` by another process, without running it."""
    module, name, packed = record
    found = getattr(importlib.import_module(module), name)
    signature = pickle.loads(packed)
    if isinstance(found, Kernel):
        found.compile(signature)
    else:
        callback(signature, found)
