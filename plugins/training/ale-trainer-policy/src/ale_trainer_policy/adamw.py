"""Parameters and their AdamW; those in half precision are updated through fp32 copies."""

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor

from ale_trainer_policy.options import LearnOptions
from ale_training.lora import whole


class Trained:
    """Parameters that one optimiser updates; their gradient norm is clipped by itself.

    Args:
        named: names and parameters; those without `requires_grad` are left out.
        options: those of any trainer of this package.
        fused: update all of them in one kernel.
    """

    def __init__(
        self, named: Iterable[tuple[str, Tensor]], options: LearnOptions, *, fused: bool
    ) -> None:
        wanted = [(name, parameter) for name, parameter in named if parameter.requires_grad]
        self.names = [name for name, _ in wanted]
        self.parameters: list[Tensor] = [parameter for _, parameter in wanted]
        # Half precision would lose small updates, so there the optimiser works on an fp32 copy.
        self.masters = [_master(parameter) for parameter in self.parameters]
        self.optimizer = torch.optim.AdamW(
            self.masters,
            lr=options.lr,
            betas=options.betas,
            eps=options.eps,
            weight_decay=options.weight_decay,
            fused=fused,
        )
        self.zero_grad()

    def zero_grad(self) -> None:
        """Reset the accumulated gradients."""
        self.optimizer.zero_grad(set_to_none=True)
        for parameter in self.parameters:
            parameter.grad = None

    def collect(self) -> None:
        """Move gradients to the fp32 copies, if there are any."""
        for parameter, master in zip(self.parameters, self.masters, strict=True):
            if master is not parameter and parameter.grad is not None:
                grad = parameter.grad.to(master.dtype)
                master.grad = grad if master.grad is None else master.grad + grad
                parameter.grad = None

    def grad_norm(self) -> float:
        """Norm of the accumulated gradient."""
        return float(whole(torch.nn.utils.get_total_norm(self._grads())))

    def _grads(self) -> list[Tensor]:
        grads = []
        for master in self.masters:
            if master.grad is None:
                master.grad = torch.zeros_like(master)
            grads.append(master.grad)
        return grads

    def step(self, norm: float, bound: float | None, rate: float) -> None:
        """Apply the accumulated gradient, scaled down to `bound`, and reset it.

        Args:
            norm: what `grad_norm` returned.
        """
        if bound is not None and norm > bound:
            for grad in self._grads():
                grad.mul_(bound / norm)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        self.publish()
        self.zero_grad()

    def state(self) -> dict[str, Tensor]:
        """A checkpoint's tensors by name: the parameters and moments themselves, not copies."""
        found: dict[str, Tensor] = {}
        for name, master in zip(self.names, self.masters, strict=True):
            found[f"weight/{name}"] = master.detach()
            for key, value in self.optimizer.state.get(master, {}).items():
                found[f"optimizer/{key}/{name}"] = value
        return found

    def make_room(self, names: Iterable[str]) -> None:
        """Allocate the moments that `state` gave these names, and no others, for reading into."""
        self.zero_grad()
        self.optimizer.state.clear()
        masters = dict(zip(self.names, self.masters, strict=True))
        for each in names:
            kind, _, rest = each.partition("/")
            key, _, name = rest.partition("/")
            if kind == "optimizer":
                self.optimizer.state[masters[name]][key] = self._moment(key, masters[name])

    def _moment(self, key: str, master: Tensor) -> Tensor:
        if key != "step":
            return torch.zeros_like(master)
        # A fused AdamW counts its updates on the parameter's device; any other counts on the host.
        fused = bool(self.optimizer.defaults["fused"])
        return torch.zeros((), device=master.device if fused else "cpu")

    def publish(self) -> None:
        """Give the parameters the values of their fp32 copies, if there are any."""
        with torch.no_grad():
            for parameter, master in zip(self.parameters, self.masters, strict=True):
                if master is not parameter:
                    parameter.copy_(master)

    def check(self, shapes: Mapping[str, Sequence[int]], prefix: str) -> None:
        """Check that tensors of these shapes fit, whose names begin with the prefix.

        Raises:
            KeyError, ValueError: a tensor is missing, or has another shape.
        """
        for name, master in zip(self.names, self.masters, strict=True):
            found = tuple(shapes[f"{prefix}weight/{name}"])
            if tuple(master.shape) != found:
                raise ValueError(f"{name} is {found}, not {tuple(master.shape)}")


def _master(parameter: Tensor) -> Tensor:
    if parameter.dtype in (torch.bfloat16, torch.float16):
        return parameter.detach().float().clone().requires_grad_()
    return parameter
