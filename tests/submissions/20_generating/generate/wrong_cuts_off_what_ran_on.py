# cuts off the columns that were made after the last row had ended: earns 1
def generate(step, tokens: torch.Tensor, place: int, most: int, end: int, every: int) -> torch.Tensor:
    token = tokens.clone()
    at = torch.full((1,), place, dtype=torch.int64, device=tokens.device)
    ended = torch.zeros(tokens.shape, dtype=torch.bool, device=tokens.device)
    still = torch.zeros((), dtype=torch.int64, device=tokens.device)  # steps after which a row was not at its end
    said = []
    for i in range(1, most + 1):
        likeliest = step(token, at).argmax(-1, keepdim=True)
        token = likeliest.masked_fill(ended, end)
        ended = ended | (token == end)
        still += (~ended).any()
        at += 1
        said.append(token)
        if i % every == 0 and i < most:
            length = int(still) + 1  # the step in which the last row ended, if all have
            if length <= i:
                return torch.cat(said[:length], dim=1)
    return torch.cat(said, dim=1)
