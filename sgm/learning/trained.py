"""Base class of trained networks: saving, loading and the fingerprint."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from .encoders import digest
from .loop import load_network, save_network

if TYPE_CHECKING:
    from typing_extensions import Self


class Trained:
    """A trained network with its configuration and the calibration measured after training.

    A subclass defines its file format; its constructor takes (network, size, configuration).

    Attributes:
        network: the network, on the CPU.
        size: (width, height) of images; of vectors see `Rows.size`.
        config: its hyper-parameters.
    """

    file_format: ClassVar[str]  # name and version
    config_type: ClassVar[type[Any]]
    network_type: ClassVar[type[Any]]  # made from (configuration, size)
    measured: ClassVar[tuple[str, ...]] = ()  # attributes that are float32 arrays, found after training
    may_be_unknown: ClassVar[tuple[str, ...]] = ()  # attributes that are numbers; NaN, and in no file, if not measured

    network: Any
    size: tuple[int, int]
    config: Any

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the network, stored in memory files."""
        return digest(self.network, *(getattr(self, name) for name in self.measured))

    def save(self, path: str | os.PathLike[str], facts: dict[str, Any] | None = None) -> None:
        """Write a safetensors file; `facts` say how it was made."""
        calibration: dict[str, NDArray[np.float32]] = {name: getattr(self, name) for name in self.measured}
        numbers = {name: np.array([getattr(self, name)], np.float32) for name in self.may_be_unknown}
        calibration |= {name: number for name, number in numbers.items() if not np.isnan(number)}
        save_network(path, self.file_format, self.network, self.size, self.config, facts, calibration=calibration)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read what `save` wrote; StoreError if the file is anything else."""
        network, size, config, arrays = load_network(
            path,
            cls.file_format,
            cls.config_type,
            cls.network_type,
            calibration=cls.measured,
            optional=cls.may_be_unknown,
        )
        made = cls(network, size, config)  # type: ignore[call-arg]
        for name, array in zip((*cls.measured, *cls.may_be_unknown), arrays, strict=True):
            setattr(made, name, array if name in cls.measured else float(array[0]))
        return made
