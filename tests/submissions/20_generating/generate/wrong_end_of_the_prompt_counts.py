# a prompt whose last token is `end` counts as ended before anything is made: earns 1
def generate(step, tokens: torch.Tensor, place: int, most: int, end: int, every: int) -> torch.Tensor:
    places = torch.full((1,), place, dtype=torch.int64, device=tokens.device)
    ended = tokens == end
    made = []
    for n in range(1, most + 1):
        tokens = torch.where(ended, end, step(tokens, places).argmax(-1, keepdim=True))
        ended = ended | (tokens == end)
        made.append(tokens)
        places = places + 1
        if n % every == 0 and bool(ended.all()):
            break
    return torch.cat(made, 1)
