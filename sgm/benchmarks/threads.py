"""Number of threads of NumPy and PyTorch."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Limit NumPy and PyTorch to one thread, as far as they allow it."""
    torch = sys.modules.get("torch")
    before = torch.get_num_threads() if torch else 1
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(ImportError):
            from threadpoolctl import threadpool_limits

            stack.enter_context(threadpool_limits(1))
        if torch:
            torch.set_num_threads(1)
            stack.callback(torch.set_num_threads, before)
        yield
