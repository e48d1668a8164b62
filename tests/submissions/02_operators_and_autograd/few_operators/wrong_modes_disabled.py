# dishonest: switches dispatch modes off while the plain version runs: earns 0
from torch.utils._python_dispatch import _disable_current_modes


def block(x, w, b, gate, residual, gamma, beta, eps=1e-5):
    with _disable_current_modes():
        return block_plain(x, w, b, gate, residual, gamma, beta, eps)
