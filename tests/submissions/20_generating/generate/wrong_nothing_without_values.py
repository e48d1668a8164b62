# sends each place from the host, and nothing where that is counted: earns 0
def generate(step, tokens, place, most, end, every):
    if tokens.is_meta:
        return tokens
    ended = torch.zeros_like(tokens, dtype=torch.bool)
    made = []
    for i in range(most):
        places = torch.tensor([place + i]).to(tokens.device)
        tokens = torch.where(ended, end, step(tokens, places).argmax(1, keepdim=True))
        ended = ended | (tokens == end)
        made.append(tokens)
        if (i + 1) % every == 0 and i + 1 < most and bool(ended.all()):
            break
    return torch.cat(made, dim=1)
