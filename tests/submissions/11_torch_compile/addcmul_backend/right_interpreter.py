import operator

import torch

KINDS = {"mul": (operator.mul, torch.mul, "mul"), "add": (operator.add, torch.add, "add")}


def binary(node, kind):
    nodes = [a for a in getattr(node, "args", ()) if isinstance(a, torch.fx.Node)]
    return isinstance(node, torch.fx.Node) and node.target in KINDS[kind] and len(nodes) == 2 and not node.kwargs


def addcmul_backend(graph, example_inputs):
    plan = {}
    for node in graph.graph.nodes:
        if binary(node, "add"):
            for product in node.args:
                if binary(product, "mul") and list(product.users) == [node] and node.args.count(product) == 1:
                    plan[node] = product
                    break
    lazy = set(plan.values())

    def run(*inputs):
        values, given = {}, iter(inputs)
        for node in graph.graph.nodes:
            args = torch.fx.map_arg(node.args, lambda n: values.get(n))
            if node in lazy:
                continue
            if node.op == "placeholder":
                values[node] = next(given)
            elif node.op == "get_attr":
                values[node] = getattr(graph, node.target)
            elif node.op == "output":
                return tuple(args[0])
            elif node in plan:
                product = plan[node]
                c = next(a for a in node.args if a is not product)
                values[node] = torch.addcmul(values[c], *(values[a] for a in product.args))
            elif node.op == "call_method":
                values[node] = getattr(args[0], node.target)(*args[1:], **node.kwargs)
            else:
                values[node] = node.target(*args, **node.kwargs)

    return run
