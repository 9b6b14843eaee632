"""What the brax environments share: its models as XML edited in memory, and the physics that steps them."""

import contextlib
import io

# mujoco.mjx prints a line to stdout for each optional package that is not there; a command's output is for its user.
with contextlib.redirect_stdout(io.StringIO()):
    import mujoco.mjx  # noqa: F401
