import math


def judge(promised, runs, control, also_changed):
    def ends(before, after):
        logs = [math.log(b / a) for b, a in zip(before, after)]
        mean = sum(logs) / len(logs)
        spread = math.sqrt(sum((x - mean) ** 2 for x in logs) / (len(logs) - 1) / len(logs))
        return round(math.exp(mean - 2 * spread), 6), round(math.exp(mean + 2 * spread), 6)

    if also_changed:
        return "confounded"
    known = [ends(*control[c]) for c in runs if c in control]
    if any(low > 1 or high < 1 for low, high in known):
        return "confounded"
    if len(known) != len(runs):
        return "no control"
    words = []
    for pairs in runs.values():
        low, high = ends(*pairs)
        words.append(1 if low >= promised else -1 if high < promised else 0)
    if min(words) == 1:
        return "confirmed"
    if max(words) == -1:
        return "refuted"
    return "partly" if max(words) == 1 and min(words) == -1 else "cannot tell"
