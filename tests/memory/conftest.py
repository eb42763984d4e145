"""What tests of the memory share."""

from __future__ import annotations

import pytest

import sgm
from sgm.memory import build, compiled


@pytest.fixture(scope="module", params=["NumPy", "compiled", "compiled, from a table"])
def decider(request):
    """How blocks are decided: with NumPy; compiled, from distances that were asked for; or read from a table."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "NumPy":
            patch.setenv(compiled.SWITCH, "0")
        else:
            pytest.importorskip("numba")
            patch.setattr(build, "_COMPILE", 0)
        if request.param == "compiled":
            patch.setattr(sgm.TableDistance, "table", lambda *_: None)
        yield request.param
