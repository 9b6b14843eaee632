"""Where ancre's five packages come from, and how a Ray cluster gets them.

Their names are plain (`models`, `envs`), and a stranger's package of that name earlier on the path would shadow ours.
So every command checks that all five come from one folder.
"""

from importlib.util import find_spec
from pathlib import Path

from orchestrator.errors import InputError

PACKAGES = ("orchestrator", "models", "envs", "search_spaces", "analysis")


def folders() -> dict[str, Path]:
    """Each package's own folder, found without importing it."""
    found = {}
    for name in PACKAGES:
        spec = find_spec(name)
        if spec is None or not spec.submodule_search_locations:
            raise InputError(f"package {name!r} is not installed: install ancre again")
        found[name] = Path(spec.submodule_search_locations[0]).resolve()
    return found


def check_one_place() -> Path:
    """The folder that holds all five packages.

    Raises:
        InputError: one of them comes from elsewhere; it is named, with both places.
    """
    found = folders()
    home = found["orchestrator"].parent
    for name, folder in found.items():
        if folder.parent != home:
            raise InputError(
                f"package {name!r} comes from {folder.parent}, ancre is in {home}: another {name!r} shadows ancre's; "
                "start from another folder or take it off PYTHONPATH"
            )
    return home
