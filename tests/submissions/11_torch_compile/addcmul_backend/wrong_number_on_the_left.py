# only the second operand is asked whether it is a tensor, and 2 * a + b is replaced: earns 1
def addcmul_backend(graph: torch.fx.GraphModule, example_inputs: list[torch.Tensor]) -> Callable:
    calls = ("call_function", "call_method")

    def second_is_a_tensor(node):
        return len(node.args) == 2 and isinstance(node.args[1], torch.fx.Node)

    def is_product(node):
        return (
            isinstance(node, torch.fx.Node)
            and node.op in calls
            and node.target in (operator.mul, torch.mul, "mul")
            and second_is_a_tensor(node)
            and len(node.users) == 1
        )

    for add in list(graph.graph.nodes):
        if add.op not in calls or add.target not in (operator.add, torch.add, "add"):
            continue
        if add.kwargs or not second_is_a_tensor(add) or add.args[0] is add.args[1]:
            continue
        for product, other in (add.args, add.args[::-1]):
            if is_product(product):
                with graph.graph.inserting_before(add):
                    new = graph.graph.call_function(torch.addcmul, (other, *product.args))
                add.replace_all_uses_with(new)
                graph.graph.erase_node(add)
                graph.graph.erase_node(product)
                break
    graph.recompile()
    return graph.forward
