# the scratch array has 4,096 rows, however short the documents are: earns 1
def encode(batches: list[torch.Tensor], up: torch.Tensor, down: torch.Tensor) -> list[torch.Tensor]:
    scratch = torch.empty(4096, up.shape[1], device=up.device)
    results = []
    for x in batches:
        result = torch.empty(len(x), down.shape[1], device=up.device)
        for start in range(0, len(x), 4096):
            piece = x[start : start + 4096]
            wide = torch.mm(piece, up, out=scratch[: len(piece)]).relu_()
            torch.mm(wide, down, out=result[start : start + 4096])
        results.append(result)
    return results
