"""Stand-ins for libraries that an engine imports but its argument parser does not need, such as torch.

An engine's wheel without what it requires is a few hundred megabytes, and with it ten gigabytes. Everything that is
taken from a stand-in is a class: it can be subclassed, called, subscripted and compared, and means nothing.
"""

import functools
import sys
from abc import ABCMeta
from collections.abc import Collection, Iterator, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import FunctionType, ModuleType
from typing import Any

VERSION = "999.0"
"""Version of every stand-in: new enough for whoever compares."""
ACCELERATORS = frozenset({"hpu", "mlu", "musa", "npu"})
"""Parts that other makers add to torch; engines ask for them to find out where they are."""


class _Meaningless(ABCMeta):
    """Gives a placeholder for whatever is asked of one; abstract, so that subclasses may mix in ``abc.ABC``."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _make(f"{cls.__module__}.{cls.__name__}", name)

    def __call__(cls, *args: Any, **options: Any) -> Any:
        if "is_placeholder" not in cls.__dict__:
            return super().__call__(*args, **options)
        decorated = args[0] if len(args) == 1 and not options else None
        return decorated if isinstance(decorated, FunctionType | type) else _make(cls.__module__, f"{cls.__name__}()")

    def __getitem__(cls, _key: object) -> Any:
        return cls

    def __iter__(cls) -> Iterator[Any]:
        return iter(())

    def __bool__(cls) -> bool:
        return False

    def __int__(cls) -> int:
        return 0

    def _combine(cls, _other: object) -> Any:
        return cls

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __floordiv__ = __pow__ = _combine
    __ge__ = __lt__ = __gt__ = __le__ = _combine


class _Placeholder(metaclass=_Meaningless):
    is_placeholder = True

    @classmethod
    def __get_pydantic_core_schema__(cls, *_: Any) -> Any:
        from pydantic_core import core_schema  # noqa: PLC0415

        return core_schema.any_schema()


@functools.cache
def _make(module: str, name: str) -> Any:
    return _Meaningless(name, (_Placeholder,), {"__module__": module, "is_placeholder": True})


class _Module(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name == "__version__":
            return VERSION
        if name.startswith("__") or name in ACCELERATORS:
            raise AttributeError(name)
        return _make(self.__name__, name)


class Placeholders(MetaPathFinder, Loader):
    """Finds a placeholder for a module that an engine imports and nobody installed."""

    def __init__(self, engine: str, *, without: Collection[str] = (), unneeded: Collection[str] = ()) -> None:
        """Serve what the package ``engine`` imports.

        ``without`` are libraries that stay missing, because the engine chooses its device by them; ``unneeded``
        are parts of the engine itself that do not load on placeholders and say nothing about its options.
        """
        self._engine = engine
        self._without = without
        self._unneeded = unneeded

    def find_spec(self, name: str, path: Sequence[str] | None, _target: ModuleType | None = None) -> ModuleSpec | None:
        """Find a module, as import asks."""
        top, _, below = name.partition(".")
        spec = ModuleSpec(name, self, is_package=True)
        if name in self._unneeded:
            return spec
        if top in sys.stdlib_module_names or top in self._without or PathFinder.find_spec(name, path) is not None:
            return None
        if below:
            return spec if isinstance(sys.modules.get(top), _Module) else None
        return spec if _name_importer().partition(".")[0] == self._engine else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Make the module; there is nothing to execute."""
        made = _Module(spec.name)
        made.__path__ = []
        return made

    def exec_module(self, module: ModuleType) -> None:
        """Leave the module as it is."""


def _name_importer() -> str:
    """Give the module whose import statement is under way: installed libraries have to miss what they may miss."""
    frame = sys._getframe(2)  # noqa: SLF001 - import tells a finder nothing about who asks
    while frame.f_back is not None and "importlib" in frame.f_globals.get("__name__", ""):
        frame = frame.f_back
    name: str = frame.f_globals.get("__name__", "")
    return name
