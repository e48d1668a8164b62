def generate(step, tokens, place, most, end, every):
    now, at = tokens.clone(), torch.full((1,), place, device=tokens.device)
    done, made = torch.zeros_like(tokens), []
    for i in range(most):
        now.copy_(step(now, at).argmax(1, keepdim=True).masked_fill(done > 0, end))
        done |= (now == end).long()
        at += 1
        made.append(now.clone())
        if (i + 1) % every == 0 and i + 1 < most:
            if done.min() == 1:
                break
    return torch.hstack(made)
