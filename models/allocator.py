"""How the C library hands out memory on a CPU: a training step frees what the next one asks for again."""

from __future__ import annotations

import ctypes

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # malloc.h of glibc


def keep_freed_memory() -> bool:
    """Keep memory that this process frees, for it to use again, until it ends.

    By default glibc returns large pieces to the kernel at once, and gets them back page by page, each filled with zeros
    first: a tenth of a training step on a CPU. Kept memory counts as the process's own; its peak stays the same, up to
    fragments.

    Returns:
        False where the C library is another one; nothing changes then.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(M_MMAP_MAX, 0) and mallopt(M_TRIM_THRESHOLD, -1))
