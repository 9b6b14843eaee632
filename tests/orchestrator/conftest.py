"""Makes `toys` importable, so that a study can name a workload from outside the package: `toys.bowl`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
