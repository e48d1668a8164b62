def cache(sizes, dynamic=None, limit=8):
    guards = {}

    def call(n):
        if any(holds(n) for holds in guards.values()):
            return "reuse"
        if len(guards) >= limit:
            return "python"
        symbol = n != 1 and dynamic is not False and (dynamic is True or len(guards) > 0)
        name = "2 <= n" if symbol else f"n == {n}"
        guards[name] = (lambda m: m >= 2) if symbol else (lambda m: m == n)
        return name

    return [call(n) for n in sizes]
