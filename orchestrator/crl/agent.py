"""The agent: a policy, two encoders, the entropy's price, and one gradient step on all of them.

    phi(s, a), psi(g): (B, R);  f = energy(phi, psi);  pi(a | s, g) = tanh-Gaussian;  alpha = exp(log_alpha)

A step computes all losses with the weights before it, so the actor learns from the critic before its update, then
updates actor, alpha and critic (order of Wang et al.'s code). psi(g) is the same in both losses and computed once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from analysis import names
from envs.base import Contract
from models.resnet_spec import ResnetSpec
from models.stack import Topology
from models.topology.base import TopologySpec
from orchestrator.crl import losses
from orchestrator.crl.replay import Batch
from orchestrator.crl.spec import AgentSpec

Share = Callable[[list[Tensor]], None]  # averages gradients over learners, in place


class Topologies(NamedTuple):
    """How each network's blocks are connected."""

    actor: TopologySpec
    phi: TopologySpec
    psi: TopologySpec


class Agent(nn.Module):
    """The networks, their three Adams and the policy's noise.

    Args:
        seed: of the initial weights and of the noise.
    """

    def __init__(
        self, spec: AgentSpec, model: ResnetSpec, topologies: Topologies, contract: Contract, seed: int
    ) -> None:
        super().__init__()
        self.spec = spec
        self.target_entropy = -spec.entropy_param * contract.action_size
        states, actions, goals = contract.state_size, contract.action_size, contract.goal_size
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.actor = model.actor(states + goals, actions, topologies.actor)
            self.phi = model.encoder(states + actions, spec.repr_dim, topologies.phi)
            self.psi = model.encoder(goals, spec.repr_dim, topologies.psi)
        self.log_alpha = nn.Parameter(torch.zeros(()))
        self.seed = seed

    def start(self, device: torch.device | str = "cpu") -> None:
        """Move to the device and make optimisers and generator there: before the first gradient step."""
        self.to(device)
        spec = self.spec
        self.generator = torch.Generator(device).manual_seed(self.seed)
        self.critic_parameters = [*self.phi.parameters(), *self.psi.parameters()]
        self.optimizers = {
            "actor": torch.optim.Adam([*self.actor.parameters()], spec.lr_actor, fused=True),
            "alpha": torch.optim.Adam([self.log_alpha], spec.lr_alpha, fused=True),
            "critic": torch.optim.Adam(self.critic_parameters, spec.lr_critic, fused=True),
        }

    def topologies(self) -> dict[str, Topology]:
        """By network name, as in topology.json."""
        return {
            "actor": self.actor.trunk.stack.topology,
            "phi": self.phi.stack.topology,
            "psi": self.psi.stack.topology,
        }

    def gradient_step(self, batch: Batch, share: Share | None = None) -> dict[str, Tensor]:
        """One update of every network on one minibatch; metrics of the weights before it, () each.

        Args:
            share: called with all gradients before the update, where there are several learners.
        """
        total, metrics = self.losses(batch)
        total.backward()  # type: ignore[no-untyped-call]
        if share:
            share([p.grad for p in self.parameters() if p.grad is not None])
        for optimizer in self.optimizers.values():
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        return metrics

    def losses(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """The sum of all losses, whose gradient is each network's own, and what to report."""
        state, action, goal = batch
        spec, alpha = self.spec, self.log_alpha.exp()
        psi = self.psi(goal)  # (B, R)
        scores = losses.logits(spec.energy, self.phi(torch.cat((state, action), 1)), psi)  # (B, B)
        critic = losses.info_nce(spec.loss, scores, spec.penalty)
        mean, log_std = self.actor(torch.cat((state, goal), 1))  # (B, A)
        noise = torch.randn(mean.shape, generator=self.generator, device=mean.device, dtype=mean.dtype)
        own, log_prob = losses.sample_action(mean, log_std, noise)
        with frozen(self.phi):
            energies = losses.energy(spec.energy, self.phi(torch.cat((state, own), 1)), psi.detach())  # (B)
        actor = losses.actor_loss(alpha.detach(), log_prob, energies)
        price = losses.alpha_loss(alpha, log_prob, self.target_entropy)
        metrics = {
            names.CRITIC_LOSS: critic,
            names.ACTOR_LOSS: actor,
            names.ALPHA_LOSS: price,
            names.ALPHA: alpha,
            names.ENTROPY: -log_prob.mean(),
            names.LOGITS_ACCURACY: losses.accuracy(scores.detach()),
        }
        return critic + actor + price, {name: value.detach() for name, value in metrics.items()}

    def state(self) -> dict[str, Any]:
        """All that decides the next steps; tensors are those in use, not copies."""
        return {
            "networks": self.state_dict(),
            "optimizers": {name: optimizer.state_dict() for name, optimizer in self.optimizers.items()},
            "generator": self.generator.get_state(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state` of an agent of the same specs, after `start`."""
        self.load_state_dict(state["networks"])
        for name, optimizer in self.optimizers.items():
            optimizer.load_state_dict(state["optimizers"][name])
        self.generator.set_state(state["generator"].cpu())


@contextmanager
def frozen(network: nn.Module) -> Iterator[None]:
    """Forwards in here give no gradient to the network's weights, only through them."""
    parameters = [*network.parameters()]
    for parameter in parameters:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in parameters:
            parameter.requires_grad_(True)
