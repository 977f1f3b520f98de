"The modules of 0.1 by their old names, with a warning that names the new one. To be removed in 0.3."
import sys
import warnings
from collections.abc import Callable
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import CodeType, ModuleType
from typing import Any

PACKAGE = __name__.rpartition(".")[0]
ROOMS = {  # the modules that a room took in; OLD=NEW where the name changed, too
    "after": "alignment decoder_only encoder_only preferences span_corruption",
    "commands": "cli",
    "corpus": "batching corpora grammar sources synchronous_grammar vocabulary",
    "decoding": "scores translation",
    "drawing": "charts model_figures tables=result_tables",
    "engine": "architectures=kinds fast rounding=kernels",
    "inside": "attention_figures",
    "model": "attention embedding feed_forward layers",
    "paper": "paper_source=source",
    "parsing": "bracket_f1 treebanks trees",
    "tools": "files options processes records text_files",
    "training": "averaging checkpoints optimizer presets regularization runs watching",
}
MOVED = {f"{PACKAGE}.{old}": f"{PACKAGE}.{room}.{new or old}"
         for room, entries in ROOMS.items() for old, _, new in (entry.partition("=") for entry in entries.split())}


def warn(old: str, new: str, level: int) -> None:
    warnings.warn(f"{old} is now {new}: the old name goes in 0.3", DeprecationWarning, stacklevel=level)


class OldName(MetaPathFinder, Loader):
    "Finds the new module under a module's old name."

    def find_spec(self, name: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        return ModuleSpec(name, self) if name in MOVED else None

    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        old = module.__name__
        warn(old, MOVED[old], 6)
        sys.modules[old] = import_module(MOVED[old])

    def get_code(self, name: str) -> CodeType:
        "For `python -m` with an old name."
        warn(name, MOVED[name], 2)
        return compile(f"import runpy\nrunpy.run_module({MOVED[name]!r}, run_name='__main__', alter_sys=True)", name,
                       "exec")


def forward(room: str, module: str) -> Callable[[str], Any]:
    """The `__getattr__` of a room that has the name of a module of 0.1:

    what stood in that module comes from the room's `module`.
    """
    def getattr_(name: str) -> Any:
        own = name.startswith("__") or find_spec(f"{room}.{name}")  # a module of the room is no old name
        if not own and hasattr(found := import_module(f"{room}.{module}"), name):
            warn(f"{room}.{name}", f"{room}.{module}.{name}", 3)
            return getattr(found, name)
        raise AttributeError(f"module {room!r} has no attribute {name!r}")

    return getattr_


sys.meta_path.append(OldName())
