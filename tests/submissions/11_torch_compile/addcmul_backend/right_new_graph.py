def addcmul_backend(graph, example_inputs):
    """Copies the graph node by node; a sum is copied as addcmul, and dead products are swept out at the end."""
    muls, adds = {operator.mul, torch.mul, "mul"}, {operator.add, torch.add, "add"}
    new, copy = torch.fx.Graph(), {}

    def tensors(node, kinds):
        if not isinstance(node, torch.fx.Node) or node.op not in ("call_function", "call_method"):
            return False
        return node.target in kinds and not node.kwargs and [type(a) for a in node.args] == [torch.fx.Node] * 2

    for node in graph.graph.nodes:
        pairs = (node.args, node.args[::-1]) if tensors(node, adds) and node.args[0] is not node.args[1] else ()
        found = next(((p, c) for p, c in pairs if tensors(p, muls) and len(p.users) == 1), None)
        if found:
            product, c = found
            copy[node] = new.call_function(torch.addcmul, tuple(copy[n] for n in (c, *product.args)))
        else:
            copy[node] = new.node_copy(node, copy.__getitem__)
    new.eliminate_dead_code()
    return torch.fx.GraphModule(graph, new).forward
