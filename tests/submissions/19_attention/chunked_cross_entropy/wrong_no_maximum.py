# exp of the logits themselves, without the row's maximum: inf where they are large: earns 1
class ChunkedLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx, hidden, weight, targets, rows):
        want_hidden, want_weight = ctx.needs_input_grad[:2]
        grad_hidden = hidden.new_empty(hidden.shape) if want_hidden else None
        grad_weight = weight.new_zeros(weight.shape) if want_weight else None
        counted = (targets != -100).sum()
        loss = hidden.new_zeros(())
        for start in range(0, len(targets), rows):
            part, wanted = hidden[start : start + rows], targets[start : start + rows, None]
            counts, word = wanted != -100, wanted.clamp(min=0)
            logits = part @ weight.T
            right = logits.gather(1, word)
            logits.exp_()
            sums = logits.sum(-1, keepdim=True)
            loss += (sums.log() - right).masked_fill_(~counts, 0.0).sum()
            if want_hidden or want_weight:
                slopes = logits.div_(sums)
                slopes.scatter_add_(1, word, slopes.new_full(word.shape, -1.0))
                slopes.masked_fill_(~counts, 0.0).div_(counted)
                if want_hidden:
                    grad_hidden[start : start + rows] = slopes @ weight
                if want_weight:
                    grad_weight.addmm_(slopes.T, part)
        ctx.save_for_backward(grad_hidden, grad_weight)
        return loss / counted

    @staticmethod
    def backward(ctx, grad):
        grad_hidden, grad_weight = ctx.saved_tensors
        return (
            None if grad_hidden is None else grad_hidden * grad,
            None if grad_weight is None else grad_weight * grad,
            None,
            None,
        )


def chunked_cross_entropy(
    hidden: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor, rows: int
) -> torch.Tensor:
    return ChunkedLoss.apply(hidden, weight, targets, rows)
