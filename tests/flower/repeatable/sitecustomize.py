"""First on PYTHONPATH, this makes the noise of a process repeatable, and keeps it from the network;
for tests alone.

Python imports a module of this name when it starts. Of production code nothing asks for it.
"""

import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType

import no_network


class _Finder(MetaPathFinder):
    """Lets `repeatable_noise` change one module once it is loaded."""

    def find_spec(self, name: str, path: object, target: object = None) -> ModuleSpec | None:
        if name != "dprbft.methods.serve":
            return None
        sys.meta_path.remove(self)
        spec = find_spec(name)
        assert spec is not None
        assert spec.loader is not None
        load = spec.loader.exec_module

        def load_and_change(module: ModuleType) -> None:
            load(module)
            import repeatable_noise

            repeatable_noise.change(module)

        spec.loader.exec_module = load_and_change  # type: ignore[method-assign]
        return spec


sys.meta_path.insert(0, _Finder())
no_network.forbid()
