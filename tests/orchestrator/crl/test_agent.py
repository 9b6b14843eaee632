"""The gradient step against its order written out with plain autograd and Adam, its restore, and that it learns."""

import copy

import pytest
import torch

from analysis import names
from envs.base import Contract
from models.resnet_spec import ResnetSpec
from models.topology.ancre import Spec as Ancre
from models.topology.cascaded import Spec as Cascaded
from models.topology.learnable_cascaded import Spec as LearnableCascaded
from orchestrator.crl.agent import Agent, Topologies
from orchestrator.crl.replay import Batch
from orchestrator.crl.spec import AgentSpec

CONTRACT = Contract(4, (0, 1), 2, radius=0.5, easy=1.0, hard=0.1, control_dt=0.1)
ANCRE = Ancre(temperature=0.1)
METRICS = {
    names.CRITIC_LOSS,
    names.ACTOR_LOSS,
    names.ALPHA_LOSS,
    names.ALPHA,
    names.ENTROPY,
    names.LOGITS_ACCURACY,
}


def agent(spec: AgentSpec | None = None, topology=ANCRE, *, double: bool = False, seed: int = 0, **model) -> Agent:
    model = ResnetSpec(**({"num_blocks": 2, "width": 16} | model))
    built = Agent(spec or AgentSpec(repr_dim=8), model, Topologies(topology, topology, topology), CONTRACT, seed)
    built = built.double() if double else built
    built.start()
    return built


def batch(size: int = 32, seed: int = 0, dtype: torch.dtype = torch.float32) -> Batch:
    """Goals are where the actions led, with the noise of a world."""
    generator = torch.Generator().manual_seed(seed)
    state = torch.randn(size, 4, generator=generator, dtype=dtype)
    action = 2 * torch.rand(size, 2, generator=generator, dtype=dtype) - 1
    return Batch(
        state, action, state[:, :2] + 2 * action + 0.05 * torch.randn(size, 2, generator=generator, dtype=dtype)
    )


def numbers(network: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: parameter.detach().clone() for name, parameter in network.named_parameters()}


class Written:
    """The step as rl papers write it: actor, then alpha, with the critic as it was; then the critic."""

    def __init__(self, start: Agent) -> None:
        self.net = copy.deepcopy(start)
        self.generator = torch.Generator()
        self.generator.set_state(start.generator.get_state())
        critic = [*self.net.phi.parameters(), *self.net.psi.parameters()]
        groups = [[*self.net.actor.parameters()], [self.net.log_alpha], critic]
        rates = [start.spec.lr_actor, start.spec.lr_alpha, start.spec.lr_critic]
        self.optimizers = [torch.optim.Adam(g, lr, foreach=False) for g, lr in zip(groups, rates, strict=True)]

    def distance(self, state, action, goal) -> torch.Tensor:
        gap = self.net.phi(torch.cat((state, action), -1))[:, None] - self.net.psi(goal)
        return (gap.square().sum(-1) + 1e-6).sqrt()

    def step(self, batch: Batch) -> None:
        state, action, goal = batch
        mean, log_std = self.net.actor(torch.cat((state, goal), 1))
        noise = torch.randn(mean.shape, generator=self.generator, dtype=mean.dtype)
        u = mean + log_std.exp() * noise
        own = u.tanh()
        log_prob = torch.distributions.Normal(mean, log_std.exp()).log_prob(u) - (1 - own.square() + 1e-6).log()
        log_prob = log_prob.sum(1)
        alpha = self.net.log_alpha.exp()
        actor = (alpha.detach() * log_prob + self.distance(state, own, goal).diagonal()).mean()
        price = alpha * (-log_prob.detach() + 0.5 * 2).mean()
        self.update(0, actor)
        self.update(1, price)
        scores = -self.distance(state, action, goal)
        lse = scores.exp().sum(1).log()
        self.update(2, (lse - scores.diagonal()).mean() + 0.1 * lse.square().mean())

    def update(self, which: int, loss: torch.Tensor) -> None:
        optimizer = self.optimizers[which]
        self.net.zero_grad()
        loss.backward()
        optimizer.step()


@pytest.mark.parametrize("topology", [Cascaded(), ANCRE, LearnableCascaded()])
def test_steps_are_those_of_the_order_written_out(topology):
    ours = agent(AgentSpec(repr_dim=8, lr_actor=1e-2, lr_critic=2e-2, lr_alpha=3e-2), topology, double=True)
    theirs = Written(ours)
    for seed in range(4):
        ours.gradient_step(batch(seed=seed, dtype=torch.float64))
        theirs.step(batch(seed=seed, dtype=torch.float64))
    expected = numbers(theirs.net)
    for name, value in numbers(ours).items():
        torch.testing.assert_close(value, expected[name], rtol=1e-4, atol=1e-5, msg=name)


def test_each_loss_reaches_its_own_network_alone():
    it, data = agent(double=True), batch(dtype=torch.float64)
    total, _ = it.losses(data)
    total.backward()
    scores = -torch.cdist(it.phi(torch.cat((data.state, data.action), 1)), it.psi(data.goal))
    critic = (scores.logsumexp(1) - scores.diagonal()).mean() + 0.1 * scores.logsumexp(1).square().mean()
    parameters = [*it.phi.parameters(), *it.psi.parameters()]
    for parameter, expected in zip(parameters, torch.autograd.grad(critic, parameters), strict=True):
        torch.testing.assert_close(parameter.grad, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("topology", [Cascaded(), ANCRE])
def test_a_restored_agent_goes_on_bit_by_bit_as_the_straight_one(topology):
    straight = agent(topology=topology)
    for seed in range(3):
        straight.gradient_step(batch(seed=seed))
    kept = copy.deepcopy(straight.state())
    resumed = agent(topology=topology, seed=1)
    resumed.restore(kept)
    for seed in range(3, 6):
        reports = [it.gradient_step(batch(seed=seed)) for it in (straight, resumed)]
        for name in METRICS:
            assert torch.equal(reports[0][name], reports[1][name])
    for name, value in numbers(straight).items():
        assert torch.equal(value, resumed.get_parameter(name)), name


def test_a_seed_decides_all_numbers():
    runs = []
    for seed in (0, 0, 1):
        it = agent(seed=seed)
        it.gradient_step(batch())
        runs.append(numbers(it)["actor.trunk.head.weight"])
    assert torch.equal(runs[0], runs[1])
    assert not torch.equal(runs[0], runs[2])


@pytest.mark.parametrize("energy", ["norm", "l2", "dot", "cosine"])
@pytest.mark.parametrize("loss", ["forward", "backward", "symmetric"])
def test_every_energy_and_direction_takes_steps_of_finite_numbers(energy, loss):
    it = agent(AgentSpec(energy=energy, loss=loss, repr_dim=8))
    reports = [it.gradient_step(batch(seed=seed)) for seed in range(3)]
    assert all(report.keys() == METRICS for report in reports)
    assert all(value.shape == () and value.isfinite() for value in reports[-1].values())
    assert all(parameter.isfinite().all() for parameter in it.parameters())


@pytest.mark.parametrize("form", ["drop", "keep"])
@pytest.mark.parametrize("num_blocks", [1, 16])
@pytest.mark.parametrize("model", [{}, {"activation": "relu", "layer_norm": False}, {"placement": "pre"}])
def test_every_network_moves_all_its_numbers(model, num_blocks, form):
    it = agent(topology=Ancre(temperature=0.1, inner_residual=form), num_blocks=num_blocks, **model)
    before = numbers(it)
    it.gradient_step(batch())
    for name, value in numbers(it).items():
        assert value.isfinite().all(), name
        alone = name.endswith("topology.c") and num_blocks == 1  # one source has weight 1, whatever its coefficient
        assert torch.equal(value, before[name]) == alone, name


@pytest.mark.parametrize("topology", [Cascaded(), ANCRE])
def test_the_critic_learns_to_tell_goals_and_the_actor_to_head_for_them(topology):
    rates = {"lr_actor": 3e-3, "lr_critic": 3e-3, "lr_alpha": 3e-2}
    it = agent(AgentSpec(repr_dim=8, **rates), topology, num_blocks=1, width=32)
    reports = [it.gradient_step(batch(128, seed=seed)) for seed in range(300)]
    late = {name: sum(float(report[name]) for report in reports[-20:]) / 20 for name in METRICS}
    assert reports[0][names.LOGITS_ACCURACY] < 0.1
    assert late[names.LOGITS_ACCURACY] > 0.5
    assert late[names.CRITIC_LOSS] < 0.5 * reports[0][names.CRITIC_LOSS]
    state, _, goal = batch(500, seed=10_000)
    mean, _ = it.actor(torch.cat((state, goal), 1))
    wanted = (goal - state[:, :2]) / 2
    assert torch.corrcoef(torch.stack((mean.tanh().flatten(), wanted.flatten())))[0, 1] > 0.8


def test_entropy_is_led_to_its_target():
    it = agent(AgentSpec(repr_dim=8, lr_actor=3e-3, lr_alpha=3e-2), num_blocks=1)
    entropies = [it.gradient_step(batch(128, seed=seed))[names.ENTROPY].item() for seed in range(400)]
    assert abs(sum(entropies[-20:]) / 20 - it.target_entropy) < 0.5
    assert it.target_entropy == -1


def test_learners_that_share_gradients_stay_alike():
    parts = [batch(16, seed=seed) for seed in (0, 1)]
    gradients = []
    for part in parts:
        it = agent()
        it.gradient_step(part, share=lambda tensors: gradients.append([t.clone() for t in tensors]))
    assert [len(g) for g in gradients] == [len(list(agent().parameters()))] * 2
    means = [(a + b) / 2 for a, b in zip(*gradients, strict=True)]

    def average(tensors: list[torch.Tensor]) -> None:
        for tensor, mean in zip(tensors, means, strict=True):
            tensor.copy_(mean)

    learners = [agent(), agent()]
    for learner, part in zip(learners, parts, strict=True):
        learner.gradient_step(part, share=average)
    for name, value in numbers(learners[0]).items():
        assert torch.equal(value, learners[1].get_parameter(name)), name


def test_each_network_has_its_own_topology():
    it = Agent(AgentSpec(), ResnetSpec(num_blocks=3, width=8), Topologies(Cascaded(), ANCRE, Ancre()), CONTRACT, 0)
    snapshots = {name: topology.snapshot() for name, topology in it.topologies().items()}
    assert {name: (s["kind"], s["temperature"]) for name, s in snapshots.items()} == {
        "actor": ("cascaded", None),
        "phi": ("ancre", 0.1),
        "psi": ("ancre", 0.01),
    }


def test_weights_left_out_of_the_actor_s_loss_are_trained_again_after_an_error():
    it = agent()
    broken = batch()._replace(state=torch.zeros(32, 5))
    with pytest.raises(RuntimeError):
        it.gradient_step(broken)
    assert all(parameter.requires_grad for parameter in it.parameters())
