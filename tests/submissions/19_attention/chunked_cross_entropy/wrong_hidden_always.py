# makes hidden's gradient always, because it is small: earns 1
class InChunks(torch.autograd.Function):
    @staticmethod
    def forward(ctx, hidden, weight, targets, rows):
        for_hidden, for_weight = True, ctx.needs_input_grad[1]
        total, loss = (targets != -100).sum().to(hidden.dtype), hidden.new_zeros(())
        d_hidden = torch.zeros_like(hidden) if for_hidden else None
        d_weight = torch.zeros_like(weight) if for_weight else None
        for start in range(0, len(hidden), rows):
            part, wanted = hidden[start : start + rows], targets[start : start + rows, None]
            counts, word = wanted != -100, wanted.clamp(min=0)
            slopes = (part @ weight.T).log_softmax(-1)
            loss -= (slopes.gather(1, word) * counts).sum() / total
            slopes.exp_().scatter_add_(1, word, -torch.ones_like(slopes[:, :1]))
            slopes.mul_(counts / total)
            if d_hidden is not None:
                d_hidden[start : start + rows] = slopes @ weight
            if d_weight is not None:
                d_weight.addmm_(slopes.T, part)
            del slopes
        ctx.save_for_backward(d_hidden, d_weight)
        return loss

    @staticmethod
    def backward(ctx, grad):
        return *(None if t is None else t * grad for t in ctx.saved_tensors), None, None


def chunked_cross_entropy(hidden, weight, targets, rows):
    return InChunks.apply(hidden, weight, targets, rows)
