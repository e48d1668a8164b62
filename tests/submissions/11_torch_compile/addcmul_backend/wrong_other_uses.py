# products with another use are computed twice: earns 0
import operator

import torch

KINDS = {"mul": (operator.mul, torch.mul, "mul"), "add": (operator.add, torch.add, "add")}


def tensors(node, kind):
    return (
        isinstance(node, torch.fx.Node)
        and node.target in KINDS[kind]
        and not node.kwargs
        and all(isinstance(a, torch.fx.Node) for a in node.args)
    )


def addcmul_backend(graph, example_inputs):
    for add in list(graph.graph.nodes):
        if tensors(add, "add"):
            for product, c in (add.args, add.args[::-1]):
                if tensors(product, "mul"):
                    with graph.graph.inserting_before(add):
                        new = graph.graph.call_function(torch.addcmul, (c, *product.args))
                    add.replace_all_uses_with(new)
                    graph.graph.erase_node(add)
                    break
    graph.graph.eliminate_dead_code()
    graph.recompile()
    return graph.forward
