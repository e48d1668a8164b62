# One long table for all rows; masks and logical_and in place of & and |.
def visible(document, position, window, sinks):
    n = document.shape[1]
    owner, place = document.flatten(), position.flatten()

    def rule(b, h, i, j):
        query, key = b * n + i, b * n + j
        mine = torch.logical_and(owner[query].eq(owner[key]), j.le(i))
        return torch.logical_and(mine, torch.logical_or(j > i - window, place[key].lt(sinks)))

    return rule
