# puts `end` into the answer afterwards, so step() is given what an ended row goes on to say: earns 0
def generate(step, tokens: torch.Tensor, place: int, most: int, end: int, every: int) -> torch.Tensor:
    places = torch.full((1,), place, dtype=torch.int64, device=tokens.device)
    ended = torch.zeros_like(tokens, dtype=torch.bool)
    made = []
    for n in range(1, most + 1):
        tokens = step(tokens, places).argmax(-1, keepdim=True)
        made.append(torch.where(ended, end, tokens))
        ended = ended | (tokens == end)
        places = places + 1
        if n % every == 0 and bool(ended.all()):
            break
    return torch.cat(made, 1)
