import numpy as np
import pytest
import torch

from rankscope.families.models.totem import Totem
from rankscope.families.models.vector_quantiser import VectorQuantiser, perplexity

BETA = 0.25


@pytest.fixture
def quantiser() -> VectorQuantiser:
    torch.manual_seed(0)
    module = VectorQuantiser(9, 5).double()
    torch.nn.init.normal_(module.codebook.weight)
    return module


def latents(count: int = 20) -> torch.Tensor:
    return torch.randn(4, count // 4, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def test_the_nearest_code_wins(quantiser: VectorQuantiser) -> None:
    z = latents()
    want = torch.cdist(z, quantiser.codebook.weight[None].expand(4, -1, -1)).argmin(-1)
    assert torch.equal(quantiser.nearest(z), want)
    with torch.no_grad():
        quantiser.codebook.weight[7] = quantiser.codebook.weight[2]
    assert not (quantiser.nearest(latents(400)) == 7).any()  # of equal codes the lowest id


def test_the_value_is_the_code_and_the_gradient_passes_straight(quantiser: VectorQuantiser) -> None:
    z = latents().requires_grad_()
    out = quantiser(z)
    torch.testing.assert_close(out.straight, quantiser.codebook(out.ids))
    weights = torch.randn_like(z)
    (out.straight * weights).sum().backward()
    assert z.grad is not None
    torch.testing.assert_close(z.grad, weights)
    assert quantiser.codebook.weight.grad is None


def test_the_codebook_loss_pulls_codes_to_their_latents_only(quantiser: VectorQuantiser) -> None:
    z = latents().requires_grad_()
    out = quantiser(z)
    out.codebook_loss.backward()
    assert z.grad is None
    codes, flat, ids = quantiser.codebook.weight.detach(), z.detach().flatten(0, 1), out.ids.flatten()
    want = torch.zeros_like(codes)
    for latent, k in zip(flat, ids, strict=True):
        want[k] += 2 * (codes[k] - latent) / flat.numel()
    assert quantiser.codebook.weight.grad is not None
    torch.testing.assert_close(quantiser.codebook.weight.grad, want)
    unused = sorted(set(range(9)) - set(ids.tolist()))
    assert unused
    assert not quantiser.codebook.weight.grad[unused].any()


def test_the_commitment_loss_pulls_latents_to_their_codes_only(quantiser: VectorQuantiser) -> None:
    z = latents().requires_grad_()
    out = quantiser(z)
    (BETA * out.commitment_loss).backward()
    assert quantiser.codebook.weight.grad is None
    assert z.grad is not None
    torch.testing.assert_close(z.grad, 2 * BETA * (z - quantiser.codebook(out.ids)).detach() / z.numel())


def test_moving_codes_settle_at_the_means_of_their_latents() -> None:
    torch.manual_seed(0)
    centres = torch.tensor([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0]])
    z = (centres[:, None] + 0.1 * torch.randn(3, 50, 2)).flatten(0, 1)
    module = VectorQuantiser(3, 2, decay=0.5)
    with torch.no_grad():
        module.codebook.weight.copy_(centres + 1)
        module.sums.copy_(module.codebook.weight)
    for _ in range(60):
        module(z)
    want = z.view(3, 50, 2).mean(1)
    torch.testing.assert_close(module.codebook.weight.detach(), want)
    module.eval()
    module(z + 100)
    torch.testing.assert_close(module.codebook.weight.detach(), want)


def test_codes_that_nothing_uses_start_again_at_a_latent() -> None:
    torch.manual_seed(0)
    module = VectorQuantiser(4, 2, decay=0.5)
    with torch.no_grad():
        module.codebook.weight.copy_(torch.tensor([[0.0, 0.0], [1e3, 0.0], [1e3, 1.0], [1e3, 2.0]]))
        module.sums.copy_(module.codebook.weight)
    z = torch.randn(64, 2)
    for _ in range(40):
        ids = module(z).ids
    assert perplexity(ids, 4) > 3
    assert float(module.codebook.weight.detach().abs().max()) < 5


def test_perplexity_is_between_one_and_the_number_of_codes() -> None:
    assert perplexity(torch.zeros(50, dtype=torch.long), 8) == pytest.approx(1)
    assert perplexity(torch.arange(80) % 8, 8) == pytest.approx(8)
    share = np.array([0.5, 0.25, 0.25])
    ids = torch.tensor([0, 0, 1, 2])
    assert perplexity(ids, 8) == pytest.approx(np.exp(-(share * np.log(share)).sum()))


def test_totem_has_the_published_sizes_and_sums_its_losses() -> None:
    torch.manual_seed(0)
    module = Totem({})
    x = torch.randn(3, 48)
    out = module(x)
    assert out.values.shape == x.shape
    assert out.quantised.ids.shape == (3, 12)
    assert tuple(module.quantiser.codebook.weight.shape) == (256, 64)
    q = out.quantised
    torch.testing.assert_close(out.loss, (out.values - x).square().mean() + q.codebook_loss + BETA * q.commitment_loss)
    out.loss.backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in module.parameters())


def test_the_decoder_learns_from_the_reconstruction_alone() -> None:
    torch.manual_seed(0)
    module = Totem({})
    x = torch.randn(2, 16)
    out = module(x)
    (out.quantised.codebook_loss + out.quantised.commitment_loss).backward()
    assert all(p.grad is None for p in module.decoder.parameters())
    assert module.encoder[0].weight.grad is not None


def test_a_token_sees_four_values_and_their_surroundings() -> None:
    torch.manual_seed(0)
    module = Totem({}).double()
    x = torch.randn(1, 160, dtype=torch.float64)
    moved = x.clone()
    moved[0, 80:84] += 1
    changed = (module.encode(x) - module.encode(moved)).abs().sum(-1)[0].nonzero().flatten().tolist()
    assert 20 in changed
    assert changed == list(range(changed[0], changed[-1] + 1))
    assert len(changed) < 12
