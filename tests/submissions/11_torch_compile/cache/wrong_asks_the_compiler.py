# dishonest: the compiler is asked, by a name kept from before: earns 0
import torch

compile_now = torch.compile


def cache(sizes, dynamic=None, limit=8):
    torch._dynamo.reset()
    torch._dynamo.config.recompile_limit = limit
    made, ran, said = [], [], []

    def backend(graph, inputs):
        made.append(len(made))

        def run(*args):
            ran.append(1)
            return graph.forward(*args)

        return run

    fast = compile_now(lambda x: x * 2, backend=backend, dynamic=dynamic)
    for n in sizes:
        before = len(made), len(ran)
        fast(torch.ones(n, 4))
        if len(made) > before[0]:
            exact = n == 1 or dynamic is False or (dynamic is None and len(made) == 1)
            said.append(f"n == {n}" if exact else "2 <= n")
        else:
            said.append("reuse" if len(ran) > before[1] else "python")
    return said
