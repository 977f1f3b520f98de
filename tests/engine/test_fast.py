"The loss from hidden vectors, whose logits are never all there, beside PyTorch's from all of them."
import torch
import torch.nn.functional as F

from annotated_transformer.engine import fast


def test_the_loss_and_its_gradients_are_those_of_all_logits(monkeypatch):
    "In parts of four rows, the last of two. PyTorch smooths over all V tokens, the right one among them."
    monkeypatch.setattr(fast, "rows_at_once", lambda device, vocab_size: 4)
    torch.manual_seed(0)
    hidden, weight = (torch.randn(n, 6, dtype=torch.float64, requires_grad=True) for n in (10, 9))
    target = torch.randint(9, (10,))
    loss = fast.linear_cross_entropy(hidden, weight, target, 0.1)
    expected = F.cross_entropy(hidden @ weight.T, target, label_smoothing=0.1 * 9 / 8, reduction="sum")
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(torch.autograd.grad(loss, (hidden, weight)),
                               torch.autograd.grad(expected, (hidden, weight)))
