"""What is trained: a small network on a GPU, or a single layer on the CPU."""

from typing import Protocol

import numpy as np

from mnist_job.digits import SIDE, Digits


class Model(Protocol):
    """Learns digits."""

    gpu: str | None
    """The GPU's name; None on the CPU."""

    def step(self, batch: Digits) -> None:
        """Learn from a batch."""
        ...

    def accuracy(self, digits: Digits) -> float:
        """Return the share of digits that it reads right."""
        ...


class SoftmaxRegression:
    """One layer, trained by gradient descent."""

    def __init__(self, rate: float = 0.1) -> None:
        self.gpu: str | None = None
        self._rate = rate
        self._weights = np.zeros((SIDE * SIDE, 10), dtype=np.float32)
        self._bias = np.zeros(10, dtype=np.float32)

    def step(self, batch: Digits) -> None:
        """Learn from a batch."""
        scores = batch.pixels @ self._weights + self._bias
        chances = np.exp(scores - scores.max(axis=1, keepdims=True))
        chances /= chances.sum(axis=1, keepdims=True)
        chances[np.arange(len(batch.labels)), batch.labels] -= 1
        chances /= len(batch.labels)
        self._weights -= self._rate * (batch.pixels.T @ chances)
        self._bias -= self._rate * chances.sum(axis=0)

    def accuracy(self, digits: Digits) -> float:
        """Return the share of digits that it reads right."""
        best = (digits.pixels @ self._weights + self._bias).argmax(axis=1)
        return float((best == digits.labels).mean())


class Network:
    """Two layers of convolution and two more, trained with Adam on a GPU.

    Raises:
        ImportError: torch is not installed.
        RuntimeError: there is no GPU.
    """

    def __init__(self) -> None:
        import torch
        from torch import nn

        if not torch.cuda.is_available():
            raise RuntimeError("torch finds no GPU")
        self._torch = torch
        self.gpu: str | None = torch.cuda.get_device_name()
        self._net = nn.Sequential(
            *(nn.Unflatten(1, (1, SIDE, SIDE)), nn.Conv2d(1, 32, 5, padding=2), nn.ReLU()),
            *(nn.MaxPool2d(2), nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Flatten(), nn.Linear(64 * 7 * 7, 1024), nn.ReLU(), nn.Linear(1024, 10)),
        ).to("cuda")
        self._adam = torch.optim.Adam(self._net.parameters(), lr=1e-3)

    def step(self, batch: Digits) -> None:
        """Learn from a batch."""
        pixels = self._torch.from_numpy(batch.pixels).to("cuda")
        labels = self._torch.from_numpy(batch.labels).to("cuda")
        loss = self._torch.nn.functional.cross_entropy(self._net(pixels), labels)
        self._adam.zero_grad()
        loss.backward()
        self._adam.step()

    def accuracy(self, digits: Digits) -> float:
        """Return the share of digits that it reads right."""
        with self._torch.inference_mode():
            best = self._net(self._torch.from_numpy(digits.pixels).to("cuda")).argmax(dim=1)
        return float((best.cpu().numpy() == digits.labels).mean())
