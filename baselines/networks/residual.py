"""A residual connection, as a container that keeps samples apart."""

from torch import Tensor, nn

from panas.privacy.gradients.apart import keeps_samples_apart


@keeps_samples_apart
class Residual(nn.Module):
    """body(x) + shortcut(x); without a shortcut, body(x) + x."""

    def __init__(self, body: nn.Module, shortcut: nn.Module | None = None) -> None:
        super().__init__()
        self.body, self.shortcut = body, shortcut or nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """The sum, of the body's shape."""
        out: Tensor = self.body(x) + self.shortcut(x)
        return out
