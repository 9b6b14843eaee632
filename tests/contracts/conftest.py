"""Makes `contracts.outside_topology` importable: a kind that a study names by its dotted path."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))
