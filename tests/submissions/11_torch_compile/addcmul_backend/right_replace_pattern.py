import operator

import torch

ADDS, MULS = (operator.add, torch.add, "add"), (operator.mul, torch.mul, "mul")


def addcmul_backend(graph, example_inputs):
    g = torch.fx.Graph()
    env = {}

    def tensors(node, kinds):
        return (
            isinstance(node, torch.fx.Node)
            and node.target in kinds
            and len(node.args) == 2
            and not node.kwargs
            and all(isinstance(a, torch.fx.Node) for a in node.args)
        )

    folded = {}
    for node in graph.graph.nodes:
        if tensors(node, ADDS) and node.args[0] is not node.args[1]:
            for k in (1, 0):
                if tensors(node.args[k], MULS) and len(node.args[k].users) == 1:
                    folded[node] = (node.args[k], node.args[1 - k])
                    break
    gone = {product for product, _ in folded.values()}
    for node in graph.graph.nodes:
        if node in gone:
            continue
        if node in folded:
            product, c = folded[node]
            a, b = product.args
            env[node] = g.call_function(torch.addcmul, (env[c], env[a], env[b]))
        else:
            env[node] = g.node_copy(node, lambda n: env[n])
    return torch.fx.GraphModule(graph, g).forward
